"""Short sequences of statements whose order is what compilers get wrong: they are drawn on purpose.

Most public reports have five statements or fewer, and their order matters more than the operators.
"""

from __future__ import annotations

from collections.abc import Callable

from executor.args import constant
from executor.geometry import Overlap, overlap
from strategies.draws import Draw, below, between, choice
from strategies.indexed import draw_indexed
from strategies.pointwise import COPY, OPERATORS, draw_pure, draw_write
from strategies.scope import Scope
from strategies.steps import add, adds, part, rows, store, stores, write
from strategies.views import VIEWS, draw_view, filled, other_dtypes

_OVERWRITES = tuple(op for op in OPERATORS if op.inplace in (COPY, "aten.fill_.Scalar", "aten.zero_.default"))


def draw_pattern(draw: Draw, scope: Scope, targets: list[int]) -> None:
    """One of the patterns, with the first target drawn among these."""
    choice(draw, PATTERNS)(draw, scope, choice(draw, targets))


def _view_then_write(draw: Draw, scope: Scope, target: int) -> None:
    """A view is taken, its base written, and then the view is used."""
    view = _view(draw, scope, target)
    draw_write(draw, scope, target)
    write(draw, scope, view)


def _stored_twice(draw: Draw, scope: Scope, target: int) -> None:
    """One value is stored, what it was stored to is written, and the value is stored again."""
    sources = [i for i in range(scope.count) if stores(scope, target, i)]
    source = choice(draw, sources) if sources else target
    store(scope, target, source)
    draw_write(draw, scope, target)
    others = [t for t in scope.writable() if t != target and stores(scope, t, source)]
    store(scope, choice(draw, others) if others else target, source)


def _copied_then_written(draw: Draw, scope: Scope, target: int) -> None:
    """A copy is made, the original written, and then the copy is written too."""
    tensor = scope.tensor(target)
    copy = scope.emit("aten.clone.default", tensor, range=scope.range(target))[0]
    draw_write(draw, scope, target)
    view = _view(draw, scope, copy)
    draw_write(draw, scope, view if view in scope.writable() else target)


def _part_over_all(draw: Draw, scope: Scope, target: int) -> None:
    """A part is copied over all of a copy of its tensor, and then, through another copy, over the tensor itself."""
    piece = _view(draw, scope, target)
    whole, kept = (scope.emit("aten.clone.default", scope.tensor(i), range=scope.range(i))[0] for i in (target, piece))
    shape, room = scope.tensor(piece).shape[::-1], scope.tensor(target).shape[::-1]
    covers = len(shape) <= len(room) and all(n in (1, m) for n, m in zip(shape, room, strict=False))
    for to, source in ((whole, piece), (target, kept)):
        if covers and scope.takes(COPY) and scope.tensor(to).dtype is scope.tensor(source).dtype:
            scope.emit(COPY, scope.tensor(to), scope.tensor(source), range=scope.range(source))


def _swapped(draw: Draw, scope: Scope, target: int) -> None:
    """Two values change places through a temporary."""
    others = [i for i in scope.writable() if stores(scope, target, i) and stores(scope, i, target)
              and scope.tensor(i).shape == scope.tensor(target).shape]  # fmt: skip
    other = choice(draw, others) if others else target
    kept = scope.emit("aten.clone.default", scope.tensor(target), range=scope.range(target))[0]
    store(scope, target, other)
    store(scope, other, kept)


def _added_to_its_flip(draw: Draw, scope: Scope, target: int) -> None:
    """A part is written, or what an index names, and then the whole takes in its own elements from other places."""
    if below(draw, 2):
        draw_indexed(draw, scope, target)
    else:
        write(draw, scope, _view(draw, scope, target))
    tensor, own = scope.tensor(target), scope.range(target)
    if not tensor.ndim or not scope.takes("aten.flip.default"):
        return
    mirrored = scope.emit("aten.flip.default", tensor, [0], range=own)[0]
    if adds(scope, target, mirrored):
        add(scope, target, mirrored)
    else:
        store(scope, target, mirrored)


def _shifted(draw: Draw, scope: Scope, target: int) -> None:
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


def _scattered_then_overwritten(draw: Draw, scope: Scope, target: int) -> None:
    """Rows are put into a copy of their tensor, where they were or others, and then the tensor is overwritten."""
    tensor = scope.tensor(target)
    if filled(tensor) and scope.takes("aten.slice_scatter.default"):
        start = below(draw, tensor.shape[0])
        stop = between(draw, start + 1, tensor.shape[0])
        own = scope.tensor(rows(scope, target, start, stop))
        source = choice(draw, scope.alike(own.shape, own.dtype)[::-1])
        found = scope.range(target).hull(scope.range(source))
        scope.emit("aten.slice_scatter.default", tensor, scope.tensor(source), 0, start, stop, range=found)
    draw_write(draw, scope, target, _OVERWRITES)


def _bytes_read_late(draw: Draw, scope: Scope, target: int) -> None:
    """A copy of the bytes as other numbers is written, then their origin, and the copy is read as numbers of the first kind."""
    tensor = scope.tensor(target)
    names = [name for name in other_dtypes(tensor) if scope.limits.takes_dtype(name)]
    if not names or not scope.takes("aten.view.dtype"):
        draw_write(draw, scope, target)
        return
    bits = scope.emit("aten.view.dtype", tensor, constant(choice(draw, names[::-1])))[0]
    copy = draw_pure(draw, scope, operand=bits)[0]
    write(draw, scope, _view(draw, scope, copy))
    write(draw, scope, _view(draw, scope, target))
    if scope.tensor(copy).dtype is scope.tensor(bits).dtype and scope.tensor(copy).shape == scope.tensor(bits).shape:
        scope.emit("aten.view.dtype", scope.tensor(copy), tensor.dtype)


def _view(draw: Draw, scope: Scope, index: int) -> int:
    op, args = draw_view(draw, scope.tensor(index), VIEWS, scope.limits)
    return choice(draw, scope.emit(op, scope.tensor(index), *args, range=None) or [index])


def draw_crossing(draw: Draw, scope: Scope, targets: list[int]) -> None:
    """A write and a read of two values that overlap in part, in either order; such values are made if there are none.

    Or one statement does both, through a copy.
    """
    target = choice(draw, [i for i in targets if max(scope.tensor(i).shape, default=0) > 1] or targets)
    if below(draw, 6) == 5:
        _shifted(draw, scope, target)
        return
    near = [i for i in range(scope.count) if i != target and _crosses(scope, target, i)]
    written, read = (target, choice(draw, near)) if near else _crossing(draw, scope, target)
    if below(draw, 2):
        draw_pure(draw, scope, operand=read)
        write(draw, scope, written)
    else:
        write(draw, scope, written)
        draw_pure(draw, scope, operand=read)


def _crosses(scope: Scope, target: int, other: int) -> bool:
    """Whether the two have some bytes in common, but not all."""
    written, read = scope.value(target), scope.value(other)
    if written.storage != read.storage:
        return False
    return overlap(read.footprint, written.footprint) in (Overlap.PARTIAL, Overlap.CONTAINED)


def _crossing(draw: Draw, scope: Scope, target: int) -> tuple[int, int]:
    """Two parts of the target that have some in common, or the target and a part of it; itself if it has none."""
    tensor = scope.tensor(target)
    dims = [d for d, n in enumerate(tensor.shape) if n > 1]
    if not dims or not tensor.numel() or not scope.takes("aten.slice.Tensor"):
        return target, target
    dim = choice(draw, dims)
    size = tensor.shape[dim]
    if size == 2:
        return target, part(scope, target, dim, 0, 1)
    start = between(draw, 1, size - 2)
    stop = between(draw, start + 1, size - 1)
    pair = part(scope, target, dim, 0, stop), part(scope, target, dim, start, size)
    return pair[::-1] if below(draw, 2) else pair


PATTERNS: tuple[Callable[[Draw, Scope, int], None], ...] = (
    _view_then_write,
    _copied_then_written,
    _stored_twice,
    _added_to_its_flip,
    _shifted,
    _swapped,
    _part_over_all,
    _scattered_then_overwritten,
    _bytes_read_late,
)
