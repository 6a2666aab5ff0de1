"""Writes that combine their target with several values, or its own elements with each other: products, running sums, blends.

All are exact: sums and products of integers within what the dtype holds, and blends that take one side or the other.
"""

from __future__ import annotations

from typing import Any

import torch

from strategies.draws import Draw, below, choice
from strategies.dtypes import EXACT, TRUTH, Range, kind, symmetric
from strategies.indexed import IndexedWrite, draw_of
from strategies.scope import Scope

Drawn = tuple[list[Any], Range] | None


def draw_combined(draw: Draw, scope: Scope, target: int) -> list[int]:
    """One such write of the target. Returns the value written."""
    return draw_of(draw, scope, target, WRITES)


def _alike(scope: Scope, target: int) -> list[int]:
    """The values of the target's shape and dtype that it may read while it is written, and that are exact."""
    tensor = scope.tensor(target)
    if not scope.exact(target):
        return []
    return [i for i in scope.alike(tensor.shape, tensor.dtype) if scope.exact(i) and scope.may_read(target, i)]


def _within(scope: Scope, target: int, args: list[Any], found: Range) -> Drawn:
    return (args, found) if found.within(EXACT[scope.tensor(target).dtype]) else None


def _addcmul(draw: Draw, scope: Scope, target: int) -> Drawn:
    fits = _alike(scope, target)
    if not fits or kind(scope.tensor(target).dtype) == "b":
        return None
    pair = choice(draw, fits), choice(draw, fits)
    return _with_product(scope, target, [scope.tensor(i) for i in pair], pair, 1)


def _with_product(scope: Scope, target: int, args: list[Any], pair: tuple[int, int], terms: int) -> Drawn:
    """The target plus a sum of so many products of two values' elements."""
    product = 2 * terms * scope.range(pair[0]).magnitude * scope.range(pair[1]).magnitude
    return _within(scope, target, args, symmetric(scope.range(target).magnitude + product))


def _factors(draw: Draw, scope: Scope, target: int) -> tuple[int, int] | None:
    """Two matrices, or vectors, whose product has the shape of the target, a matrix or a vector; apart from it."""
    tensor = scope.tensor(target)
    if kind(tensor.dtype) not in "if" or not scope.exact(target) or not tensor.numel():
        return None
    usable = [
        i for i in range(scope.count)
        if scope.tensor(i).dtype is tensor.dtype and scope.exact(i) and scope.apart(target, i)
    ]  # fmt: skip
    pairs = [
        (a, b)
        for a in usable
        if scope.tensor(a).ndim == 2 and scope.tensor(a).shape[0] == tensor.shape[0] and scope.tensor(a).shape[1]
        for b in usable
        if scope.tensor(b).shape == (scope.tensor(a).shape[1], *tensor.shape[1:])
    ]
    return choice(draw, pairs) if pairs else _own_factors(scope, target)


def _own_factors(scope: Scope, target: int) -> tuple[int, int] | None:
    """Copies of the target's first column and row; of a vector's, itself as a column, and its first element."""
    if not all(map(scope.takes, ("aten.slice.Tensor", "aten.clone.default", "aten.unsqueeze.default"))):
        return None
    if scope.tensor(target).ndim == 2:
        pair = _copied_part(scope, target, 1), _copied_part(scope, target, 0)
    else:
        kept = scope.emit("aten.clone.default", scope.tensor(target), range=scope.range(target))[0]
        pair = scope.emit("aten.unsqueeze.default", scope.tensor(kept), 1)[0], _copied_part(scope, target, 0)
    return pair if all(scope.apart(target, i) for i in pair) else None


def _times(scope: Scope, target: int, pair: tuple[int, int], args: list[Any]) -> Drawn:
    return _with_product(scope, target, args, pair, scope.tensor(pair[0]).shape[1])


def _addmm(draw: Draw, scope: Scope, target: int) -> Drawn:
    pair = _factors(draw, scope, target) if scope.tensor(target).ndim == 2 else None
    return None if pair is None else _times(scope, target, pair, [scope.tensor(i) for i in pair])


def _addmv(draw: Draw, scope: Scope, target: int) -> Drawn:
    pair = _factors(draw, scope, target) if scope.tensor(target).ndim == 1 else None
    return None if pair is None else _times(scope, target, pair, [scope.tensor(i) for i in pair])


def _addbmm(draw: Draw, scope: Scope, target: int) -> Drawn:
    """Batches of one matrix each, which are views."""
    pair = _factors(draw, scope, target) if scope.tensor(target).ndim == 2 else None
    if pair is None or not scope.takes("aten.unsqueeze.default"):
        return None
    batches = [scope.tensor(scope.emit("aten.unsqueeze.default", scope.tensor(i), 0)[0]) for i in pair]
    return _times(scope, target, pair, batches)


def _baddbmm(draw: Draw, scope: Scope, target: int) -> Drawn:
    """A batch of columns times a batch of rows, both copies of the target's own."""
    del draw
    tensor = scope.tensor(target)
    if kind(tensor.dtype) != "f" or not scope.exact(target) or tensor.ndim != 3 or not tensor.numel():
        return None
    if not (scope.takes("aten.slice.Tensor") and scope.takes("aten.clone.default")):
        return None
    column, row = (_copied_part(scope, target, dim) for dim in (2, 1))
    return _with_product(scope, target, [scope.tensor(column), scope.tensor(row)], (column, row), 1)


def _copied_part(scope: Scope, target: int, dim: int) -> int:
    """A copy of the first part of the target along a dimension, which it keeps."""
    part = scope.emit("aten.slice.Tensor", scope.tensor(target), dim, 0, 1)[0]
    return scope.emit("aten.clone.default", scope.tensor(part), range=scope.range(target))[0]


def _addr(draw: Draw, scope: Scope, target: int) -> Drawn:
    """The product of a column and a row."""
    tensor = scope.tensor(target)
    if kind(tensor.dtype) not in "if" or not scope.exact(target) or tensor.ndim != 2:
        return None
    sides = [
        [i for i in scope.alike(torch.Size([n]), tensor.dtype) if scope.exact(i) and scope.apart(target, i)]
        for n in tensor.shape
    ]
    if not all(sides):
        return None
    pair = choice(draw, sides[0]), choice(draw, sides[1])
    return _with_product(scope, target, [scope.tensor(i) for i in pair], pair, 1)


def _cumsum(draw: Draw, scope: Scope, target: int) -> Drawn:
    tensor, own = scope.tensor(target), scope.range(target)
    if not tensor.ndim or kind(tensor.dtype) not in "if" or not scope.exact(target):
        return None
    return _within(scope, target, [below(draw, tensor.ndim)], symmetric(own.magnitude * max(tensor.numel(), 1)))


def _cumprod(draw: Draw, scope: Scope, target: int) -> Drawn:
    tensor, own = scope.tensor(target), scope.range(target)
    if not tensor.ndim or kind(tensor.dtype) not in "if" or not scope.exact(target):
        return None
    longest = max(tensor.shape)
    if own.magnitude > 1 and longest > 8:
        return None
    return _within(scope, target, [below(draw, tensor.ndim)], symmetric(max(own.magnitude, 1) ** longest))


def _lerp_number(draw: Draw, scope: Scope, target: int) -> Drawn:
    """All of the other side, or nothing of it."""
    fits = _alike(scope, target) if kind(scope.tensor(target).dtype) == "f" else []
    if not fits:
        return None
    end, weight = choice(draw, fits), below(draw, 2)
    return [scope.tensor(end), weight], scope.range(target).hull(scope.range(end))


def _lerp_tensor(draw: Draw, scope: Scope, target: int) -> Drawn:
    fits = _alike(scope, target) if kind(scope.tensor(target).dtype) == "f" else []
    weights = [i for i in fits if scope.range(i).within(TRUTH)]
    if not weights:
        return None
    end, weight = choice(draw, fits), choice(draw, weights)
    return [scope.tensor(end), scope.tensor(weight)], scope.range(target).hull(scope.range(end))


def _threshold(draw: Draw, scope: Scope, target: int) -> Drawn:
    if kind(scope.tensor(target).dtype) not in "if" or not scope.exact(target):
        return None
    number = choice(draw, (7, 0))
    return [choice(draw, (0, 2)), number], scope.range(target).hull(Range(number, number))


def _heaviside(draw: Draw, scope: Scope, target: int) -> Drawn:
    fits = _alike(scope, target) if kind(scope.tensor(target).dtype) in "if" else []
    if not fits:
        return None
    at_zero = choice(draw, fits)
    return [scope.tensor(at_zero)], scope.range(at_zero).hull(TRUTH)


def _fill(draw: Draw, scope: Scope, target: int) -> Drawn:
    single = [i for i in scope.alike(torch.Size(), scope.tensor(target).dtype) if scope.apart(target, i)]
    if not single:
        return None
    value = choice(draw, single)
    return [scope.tensor(value)], scope.range(value)


def _fill_diagonal(draw: Draw, scope: Scope, target: int) -> Drawn:
    tensor = scope.tensor(target)
    if tensor.ndim != 2 or tensor.is_complex() or not tensor.numel():
        return None
    number = below(draw, 2)
    return [number], Range(number, number)


WRITES: tuple[IndexedWrite, ...] = (
    IndexedWrite("aten.addcmul_.default", _addcmul),
    IndexedWrite("aten.fill_.Tensor", _fill),
    IndexedWrite("aten.cumsum_.default", _cumsum),
    IndexedWrite("aten.addmm_.default", _addmm),
    IndexedWrite("aten.lerp_.Scalar", _lerp_number),
    IndexedWrite("aten.fill_diagonal_.default", _fill_diagonal),
    IndexedWrite("aten.addmv_.default", _addmv),
    IndexedWrite("aten.addr_.default", _addr),
    IndexedWrite("aten.addbmm_.default", _addbmm),
    IndexedWrite("aten.baddbmm_.default", _baddbmm),
    IndexedWrite("aten.cumprod_.default", _cumprod),
    IndexedWrite("aten.lerp_.Tensor", _lerp_tensor),
    IndexedWrite("aten.threshold_.default", _threshold),
    IndexedWrite("aten.heaviside_.default", _heaviside),
)
