"""Statements that move elements into a new tensor: flips, rolls, concatenations, scatters into a copy, casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from strategies.draws import Draw, below, between, choice
from strategies.dtypes import Range, cast
from strategies.scope import Scope
from strategies.views import LARGEST, filled, ranked

Drawn = tuple[list[Any], Range] | None


class Move(NamedTuple):
    """One operator: where it fits a tensor, and how its further arguments are drawn, with the range of its results.

    None means that nothing in scope fits.
    """

    op: str
    fits: Callable[[torch.Tensor], bool]
    arguments: Callable[[Draw, Scope, int], Drawn]


def draw_move(draw: Draw, scope: Scope) -> list[int]:
    """A statement that makes a new tensor of the elements of others. Returns the value that it defines."""
    operand = choice(draw, scope.operands())
    tensor = scope.tensor(operand)
    fits = [move for move in MOVES if scope.takes(move.op) and move.fits(tensor)]
    if not fits:
        return [operand]
    move = choice(draw, fits)
    drawn = move.arguments(draw, scope, operand)
    return [operand] if drawn is None else scope.emit(move.op, *drawn[0], range=drawn[1])


def _flip(draw: Draw, scope: Scope, operand: int) -> Drawn:
    tensor = scope.tensor(operand)
    return [tensor, [below(draw, tensor.ndim)]], scope.range(operand)


def _roll(draw: Draw, scope: Scope, operand: int) -> Drawn:
    tensor = scope.tensor(operand)
    return [tensor, [choice(draw, (1, -1, 2))], [below(draw, tensor.ndim)]], scope.range(operand)


def _triangle(draw: Draw, scope: Scope, operand: int) -> Drawn:
    return [scope.tensor(operand), choice(draw, (0, 1, -1))], scope.range(operand).hull(Range(0, 0))


def _cat(draw: Draw, scope: Scope, operand: int) -> Drawn:
    tensor = scope.tensor(operand)
    dim = below(draw, tensor.ndim)
    fits = [i for i in range(scope.count) if _small(scope.tensor(i)) and _alike(scope.tensor(i), tensor, dim)]
    parts = [operand, *(choice(draw, fits) for _ in range(below(draw, 3)))]
    return _joined(scope, parts, dim)


def _stack(draw: Draw, scope: Scope, operand: int) -> Drawn:
    tensor = scope.tensor(operand)
    fits = scope.alike(tensor.shape, tensor.dtype)
    parts = [operand, *(choice(draw, fits) for _ in range(below(draw, 3)))]
    return _joined(scope, parts, below(draw, tensor.ndim + 1))


def _joined(scope: Scope, parts: list[int], dim: int) -> Drawn:
    found = scope.range(parts[0])
    for part in parts[1:]:
        found = found.hull(scope.range(part))
    return [[scope.tensor(i) for i in parts], dim], found


def _alike(a: torch.Tensor, b: torch.Tensor, dim: int) -> bool:
    """Whether the two can be concatenated along a dimension without a change of dtype."""
    sizes = zip(a.shape, b.shape, strict=False)
    return a.ndim == b.ndim and a.dtype is b.dtype and all(n == m for d, (n, m) in enumerate(sizes) if d != dim)


def _pad(draw: Draw, scope: Scope, operand: int) -> Drawn:
    """Some elements more or fewer at both ends of the last dimension; none is a copy."""
    size = scope.tensor(operand).shape[-1]
    before, after = (between(draw, 0, 2) if below(draw, 3) else -below(draw, (size + 1) // 2) for _ in range(2))
    return [scope.tensor(operand), [before, after], 0], scope.range(operand).hull(Range(0, 0))


def _to(draw: Draw, scope: Scope, operand: int) -> Drawn:
    """A cast, to the same dtype too: that is the tensor itself."""
    tensor, own = scope.tensor(operand), scope.range(operand)
    casts = [(dtype, found) for dtype in scope.dtypes if (found := cast(own, tensor.dtype, dtype)) is not None]
    dtype, found = choice(draw, casts)
    return [tensor, dtype], found


def _select_scatter(draw: Draw, scope: Scope, operand: int) -> Drawn:
    tensor = scope.tensor(operand)
    dim = choice(draw, [d for d, n in enumerate(tensor.shape) if n])
    at = below(draw, tensor.shape[dim])
    return _into(draw, scope, operand, tensor.detach().select(dim, at), (dim, at))


def _slice_scatter(draw: Draw, scope: Scope, operand: int) -> Drawn:
    tensor = scope.tensor(operand)
    dim = choice(draw, [d for d, n in enumerate(tensor.shape) if n])
    start = below(draw, tensor.shape[dim])
    stop = between(draw, start + 1, tensor.shape[dim])
    return _into(draw, scope, operand, tensor.detach().narrow(dim, start, stop - start), (dim, start, stop))


def _diagonal_scatter(draw: Draw, scope: Scope, operand: int) -> Drawn:
    return _into(draw, scope, operand, scope.tensor(operand).detach().diagonal(), ())


def _into(draw: Draw, scope: Scope, operand: int, part: torch.Tensor, args: tuple[int, ...]) -> Drawn:
    """A copy of the operand with another value in the place of a part of it, if there is one that fits."""
    tensor = scope.tensor(operand)
    fits = scope.alike(part.shape, part.dtype)
    if not fits:
        return None
    source = choice(draw, fits)
    return [tensor, scope.tensor(source), *args], scope.range(operand).hull(scope.range(source))


def _where(draw: Draw, scope: Scope, operand: int) -> Drawn:
    tensor = scope.tensor(operand)
    masks = [i for i in range(scope.count) if is_mask(scope, i, tensor)]
    others = scope.alike(tensor.shape, tensor.dtype)
    if not masks:
        return None
    mask, other = choice(draw, masks), choice(draw, others)
    found = scope.range(operand).hull(scope.range(other))
    return [scope.tensor(mask), tensor, scope.tensor(other)], found


def is_mask(scope: Scope, index: int, over: torch.Tensor) -> bool:
    """Whether a value is a mask for all elements of a tensor."""
    mask = scope.tensor(index)
    return mask.dtype is torch.bool and mask.shape == over.shape


def indices(scope: Scope, size: int) -> list[int]:
    """The values that can index so many elements: one-dimensional, whole numbers within them."""
    found = []
    for i in range(scope.count):
        tensor = scope.tensor(i)
        if tensor.dtype is torch.int64 and tensor.ndim == 1 and scope.range(i).within(Range(0, size - 1)):
            found.append(i)
    return found


def _index_select(draw: Draw, scope: Scope, operand: int) -> Drawn:
    tensor = scope.tensor(operand)
    dim = below(draw, tensor.ndim)
    fits = [i for i in indices(scope, tensor.shape[dim]) if _room(tensor, dim, scope.tensor(i))]
    return ([tensor, dim, scope.tensor(choice(draw, fits))], scope.range(operand)) if fits else None


def _index(draw: Draw, scope: Scope, operand: int) -> Drawn:
    tensor = scope.tensor(operand)
    fits = [i for i in indices(scope, tensor.shape[0]) if _room(tensor, 0, scope.tensor(i))]
    return ([tensor, [scope.tensor(choice(draw, fits))]], scope.range(operand)) if fits else None


def _gather(draw: Draw, scope: Scope, operand: int) -> Drawn:
    tensor = scope.tensor(operand)
    fits = indices(scope, tensor.shape[0])
    return ([tensor, 0, scope.tensor(choice(draw, fits))], scope.range(operand)) if fits else None


def _room(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
    return tensor.numel() // max(tensor.shape[dim], 1) * index.numel() <= LARGEST


def _small(tensor: torch.Tensor) -> bool:
    return tensor.numel() * 3 <= LARGEST and tensor.ndim < 5


MOVES: tuple[Move, ...] = (
    Move("aten.flip.default", ranked(1), _flip),
    Move("aten.roll.default", filled, _roll),
    Move("aten.cat.default", lambda t: t.ndim > 0 and _small(t), _cat),
    Move("aten.stack.default", _small, _stack),
    Move("aten.to.dtype", lambda t: True, _to),
    Move("aten.select_scatter.default", filled, _select_scatter),
    Move("aten.slice_scatter.default", filled, _slice_scatter),
    Move("aten.diagonal_scatter.default", ranked(2), _diagonal_scatter),
    Move("aten.index_select.default", ranked(1), _index_select),
    Move("aten.index.Tensor", ranked(1), _index),
    Move("aten.gather.default", lambda t: t.ndim == 1, _gather),
    Move("aten.where.self", lambda t: True, _where),
    Move("aten.constant_pad_nd.default", lambda t: filled(t) and _small(t), _pad),
    Move("aten.tril.default", ranked(2), _triangle),
    Move("aten.triu.default", ranked(2), _triangle),
)
