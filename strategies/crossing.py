"""Crossing statements: a write and a read of two values that have some memory in common, but not all of it or not in order.

They are what a compiler has to get right before all else, so they are drawn more often than anything else.
"""

from __future__ import annotations

from executor.geometry import Overlap, overlap
from strategies.draws import Draw, below, between, choice, either_end
from strategies.pointwise import draw_pure
from strategies.scope import Scope
from strategies.steps import part, rows, store, write


def draw_crossing(draw: Draw, scope: Scope, targets: list[int]) -> None:
    """A write and a read of two values that cross, in either order; such values are made if there are none.

    Or one statement does both, through a copy.
    """
    target = either_end(draw, [i for i in targets if max(scope.tensor(i).shape, default=0) > 1] or targets)
    if below(draw, 6) == 5:
        shifted(draw, scope, target)
        return
    near = [i for i in range(scope.count) if i != target and _crosses(scope, target, i)]
    written, read = (target, either_end(draw, near)) if near else _parts(draw, scope, target)
    if scope.tensor(target).is_complex() and below(draw, 3):
        written, read = (_conjugated(scope, written), read) if below(draw, 2) else (written, _conjugated(scope, read))
    if below(draw, 2):
        draw_pure(draw, scope, operand=read)
        write(draw, scope, written)
    else:
        write(draw, scope, written)
        draw_pure(draw, scope, operand=read)


def _conjugated(scope: Scope, index: int) -> int:
    """The value's conjugate as a view; itself if it is not complex."""
    tensor = scope.tensor(index)
    if not tensor.is_complex() or not scope.takes("aten._conj.default"):
        return index
    return scope.emit("aten._conj.default", tensor)[0]


def shifted(draw: Draw, scope: Scope, target: int) -> None:
    """The elements move along by one, through a copy."""
    tensor = scope.tensor(target)
    if not tensor.ndim or tensor.shape[0] < 2 or not scope.takes("aten.slice.Tensor"):
        draw_pure(draw, scope)
        return
    size = tensor.shape[0]
    head, tail = choice(draw, (((0, size - 1), (1, size)), ((1, size), (0, size - 1))))
    source, place = rows(scope, target, *head), rows(scope, target, *tail)
    kept = scope.emit("aten.clone.default", scope.tensor(source), range=scope.range(target))[0]
    store(scope, place, kept)


def _crosses(scope: Scope, target: int, other: int) -> bool:
    """Whether the two have some bytes in common, but not all, or in another order."""
    written, read = scope.value(target), scope.value(other)
    if written.storage != read.storage:
        return False
    return overlap(scope.footprint(other), scope.footprint(target)) in (Overlap.PARTIAL, Overlap.CONTAINED)


def _parts(draw: Draw, scope: Scope, target: int) -> tuple[int, int]:
    """Two parts of the target that have some in common, or the target and a reading of it; itself if it has none."""
    tensor = scope.tensor(target)
    dims = [d for d, n in enumerate(tensor.shape) if n > 1]
    if not dims or not tensor.numel() or not scope.takes("aten.slice.Tensor"):
        return target, target
    way = below(draw, 6)
    if way == 5 and (reading := _reading(draw, scope, target, dims)) is not None:
        return target, reading
    dim = choice(draw, dims)
    size = tensor.shape[dim]
    if len(dims) > 1 and (way == 3 or size == 2):
        return _row_and_column(draw, scope, target, dims)
    if size == 2:
        return _in_some_order(draw, part(scope, target, dim, 0, 1), target)
    if way == 4:
        return _in_some_order(draw, part(scope, target, dim, below(draw, 2), size, step=2), target)
    start = between(draw, 1, size - 2)
    stop = between(draw, start + 1, size - 1)
    return _in_some_order(draw, part(scope, target, dim, 0, stop), part(scope, target, dim, start, size))


def _in_some_order(draw: Draw, one: int, other: int) -> tuple[int, int]:
    """Which of the two is written and which is read. The whole holds all of its part, but the part not all of the whole."""
    return (other, one) if below(draw, 2) else (one, other)


def _row_and_column(draw: Draw, scope: Scope, target: int, dims: list[int]) -> tuple[int, int]:
    """The first or last parts along two of the dimensions, which meet in a corner."""
    one = choice(draw, dims)
    other = choice(draw, [dim for dim in dims if dim != one])
    shape = scope.tensor(target).shape
    starts = [below(draw, 2) * (shape[dim] - 1) for dim in (one, other)]
    row, column = (part(scope, target, dim, at, at + 1) for dim, at in zip((one, other), starts, strict=True))
    return row, column


def _reading(draw: Draw, scope: Scope, target: int, dims: list[int]) -> int | None:
    """All elements of the target as other numbers or in another order: conjugated, or transposed; None if it can't be."""
    tensor = scope.tensor(target)
    if tensor.is_complex() and scope.takes("aten._conj.default"):
        return scope.emit("aten._conj.default", tensor)[0]
    pairs = [(a, b) for a in dims for b in dims if a < b]
    if not pairs or not scope.takes("aten.transpose.int"):
        return None
    square = [(a, b) for a, b in pairs if tensor.shape[a] == tensor.shape[b]]
    return scope.emit("aten.transpose.int", tensor, *choice(draw, square or pairs))[0]
