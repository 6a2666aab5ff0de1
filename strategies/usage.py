"""Shapes of use from real models: caches, flat buffers, running statistics, rotations, rings, accumulated gradients.

Each is a few statements in the order in which models write them. What does not fit a value (its rank, its dtype, the range
of its elements) is left out or replaced by a plainer statement, so that every draw gives a program.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from strategies.draws import Draw, below, between, choice
from strategies.dtypes import EXACT, TRUTH, Range, kind
from strategies.pointwise import draw_pure, draw_write
from strategies.scope import Scope
from strategies.steps import add, adds, rows, store, stores, write


def draw_usage(draw: Draw, scope: Scope, targets: list[int]) -> None:
    """One of the shapes of use, with the first target drawn among these; those that can be sliced come first."""
    target = choice(draw, sorted(targets, key=lambda i: not scope.tensor(i).ndim or scope.tensor(i).shape[0] < 2))
    tensor = scope.tensor(target)
    if not tensor.ndim or tensor.shape[0] < 2 or not scope.takes("aten.slice.Tensor"):
        draw_write(draw, scope, target)
        return
    choice(draw, USES)(draw, scope, target)


def _cache(draw: Draw, scope: Scope, target: int) -> None:
    """A key-value cache: new rows go in behind the old ones, then all rows up to there are read."""
    length = scope.tensor(target).shape[0]
    start = below(draw, length)
    stop = between(draw, start + 1, length)
    write(draw, scope, rows(scope, target, start, stop))
    filled = rows(scope, target, 0, stop)
    draw_pure(draw, scope, operand=filled)


def _flat_buffer(draw: Draw, scope: Scope, target: int) -> None:
    """An optimizer's step: parameters are parts of one flat buffer, each is updated, then the buffer is read as a whole."""
    tensor = scope.tensor(target)
    flat = target
    if tensor.is_contiguous() and tensor.ndim > 1 and scope.takes("aten.view.default"):
        flat = scope.emit("aten.view.default", tensor, [tensor.numel()])[0]
    length = scope.tensor(flat).shape[0]
    middle = between(draw, 1, length - 1)
    first, second = rows(scope, flat, 0, middle), rows(scope, flat, middle, length)
    for part in (first, second):
        write(draw, scope, part)
    draw_pure(draw, scope, operand=flat)


def _running_statistic(draw: Draw, scope: Scope, target: int) -> None:
    """A running statistic: an element of a buffer decays and takes in a reduction of another value."""
    slot = scope.emit("aten.select.int", scope.tensor(target), 0, 0)[0]
    draw_write(draw, scope, slot)
    sources = _summable(scope, slot)
    if not sources or scope.tensor(slot).ndim:
        return
    mean = _summed(scope, choice(draw, sources))
    if adds(scope, slot, mean):
        add(scope, slot, mean)


def _shifted_by_a_sum(draw: Draw, scope: Scope, target: int) -> None:
    """A normalization: a tensor is shifted by a reduction of another, or of itself, and then updated in place."""
    sources = _summable(scope, target)
    if sources and scope.exact(target) and scope.takes("aten.add.Tensor"):
        mean = _summed(scope, choice(draw, sources))
        own, shift = scope.range(target), scope.range(mean)
        found = Range(own.low + shift.low, own.high + shift.high)
        if found.within(EXACT[scope.tensor(target).dtype]):
            scope.emit("aten.add.Tensor", scope.tensor(target), scope.tensor(mean), range=found)
    draw_write(draw, scope, target)


def _normalization(draw: Draw, scope: Scope, target: int) -> None:
    """A normalization in place: each element has what a sum over its row gives added, of the tensor itself or of one like it."""
    tensor = scope.tensor(target)
    like = [i for i in scope.alike(tensor.shape, tensor.dtype) if i != target and i in _summable(scope, target)]
    if target not in _summable(scope, target) or not scope.takes("aten.sum.dim_IntList"):
        draw_write(draw, scope, target)
        return
    source = choice(draw, [target, target, *like])
    dim, keep = below(draw, tensor.ndim), below(draw, 4) > 0
    longest = _total(scope, source)
    sums = scope.emit("aten.sum.dim_IntList", scope.tensor(source), [dim], keep, range=longest)[0]
    own, shape = scope.range(target), scope.tensor(sums).shape
    found = Range(own.low + longest.low, own.high + longest.high)
    fits = shape == tensor.shape[tensor.ndim - len(shape) :] or keep  # in a square, these are other rows' sums
    if fits and found.within(EXACT[tensor.dtype]) and scope.takes("aten.add_.Tensor"):
        scope.emit("aten.add_.Tensor", tensor, scope.tensor(sums), range=found)


def _rotation(draw: Draw, scope: Scope, target: int) -> None:
    """A rotary embedding: the halves change places, one of them negated, and go back in place of the whole."""
    tensor, own = scope.tensor(target), scope.range(target)
    half = tensor.shape[0] // 2
    parts = [rows(scope, target, half, half * 2), rows(scope, target, 0, half)]
    negated = below(draw, 2)
    if kind(tensor.dtype) in "if" and scope.exact(target) and scope.takes("aten.neg.default"):
        own = Range(-own.magnitude, own.magnitude)
        parts[negated] = scope.emit("aten.neg.default", scope.tensor(parts[negated]), range=own)[0]
    rotated = scope.emit("aten.cat.default", [scope.tensor(part) for part in parts], 0, range=own)[0]
    whole = target if tensor.shape[0] == half * 2 else rows(scope, target, 0, half * 2)
    if stores(scope, whole, rotated):
        store(scope, whole, rotated)


def _ring(draw: Draw, scope: Scope, target: int) -> None:
    """A ring buffer: all rows move up by one, through a copy, and the last one is new."""
    length = scope.tensor(target).shape[0]
    kept = scope.emit("aten.clone.default", scope.tensor(rows(scope, target, 1, length)), range=scope.range(target))[0]
    place = rows(scope, target, 0, length - 1)
    if stores(scope, place, kept):
        store(scope, place, kept)
    write(draw, scope, scope.emit("aten.select.int", scope.tensor(target), 0, length - 1)[0])


def _accumulated_gradient(draw: Draw, scope: Scope, target: int) -> None:
    """Gradient accumulation: two values are added to a buffer, which is read, and then begins at zero again."""
    for _ in range(2):
        fits = [i for i in range(scope.count) if adds(scope, target, i)]
        if fits:
            add(scope, target, choice(draw, fits))
    draw_pure(draw, scope, operand=target)
    if scope.takes("aten.zero_.default"):
        scope.emit("aten.zero_.default", scope.tensor(target), range=Range(0, 0))


def _masked_assignment(draw: Draw, scope: Scope, target: int) -> None:
    """An assignment where a condition holds that the target itself is compared for, through a view of its part."""
    part = rows(scope, target, 0, between(draw, 1, scope.tensor(target).shape[0]))
    tensor = scope.tensor(part)
    known = kind(tensor.dtype) in "uif" and scope.exact(part) and part in scope.writable()
    if not (known and scope.takes("aten.gt.Scalar", torch.bool) and scope.takes("aten.masked_fill_.Scalar")):
        write(draw, scope, part)
        return
    mask = scope.emit("aten.gt.Scalar", tensor, choice(draw, (1, 2, 0)), range=TRUTH)[0]
    scope.emit("aten.masked_fill_.Scalar", tensor, scope.tensor(mask), 0, range=Range(0, 0))


def _summable(scope: Scope, like: int) -> list[int]:
    """The values of a dtype of which the sum of all elements is exact, and of that dtype."""
    dtype = scope.tensor(like).dtype
    if kind(dtype) not in "fc":
        return []
    return [
        i for i in range(scope.count)
        if scope.tensor(i).dtype is dtype and scope.exact(i) and _total(scope, i).within(EXACT[dtype])
    ]  # fmt: skip


def _total(scope: Scope, index: int) -> Range:
    tensor, own = scope.tensor(index), scope.range(index)
    return Range(min(own.low, 0) * tensor.numel(), max(own.high, 0) * tensor.numel())


def _summed(scope: Scope, index: int) -> int:
    return scope.emit("aten.sum.default", scope.tensor(index), range=_total(scope, index))[0]


USES: tuple[Callable[[Draw, Scope, int], None], ...] = (
    _cache,
    _ring,
    _flat_buffer,
    _accumulated_gradient,
    _masked_assignment,
    _running_statistic,
    _rotation,
    _shifted_by_a_sum,
    _normalization,
)
