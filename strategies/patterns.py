"""Short sequences of statements whose order is what compilers get wrong: they are drawn on purpose.

Most public reports have five statements or fewer, and their order matters more than the operators.
"""

from __future__ import annotations

from collections.abc import Callable

from strategies.draws import Draw, choice
from strategies.dtypes import EXACT, cast
from strategies.pointwise import COPY, draw_pure, draw_write
from strategies.scope import Scope
from strategies.views import VIEWS, draw_view


def draw_pattern(draw: Draw, scope: Scope, targets: list[int]) -> None:
    """One of the patterns, with the first target drawn among these."""
    choice(draw, PATTERNS)(draw, scope, choice(draw, targets))


def _view_then_write(draw: Draw, scope: Scope, target: int) -> None:
    """A view is taken, its base written, and then the view is used."""
    view = _view(draw, scope, target)
    draw_write(draw, scope, target)
    if view in scope.writable():
        draw_write(draw, scope, view)


def _stored_twice(draw: Draw, scope: Scope, target: int) -> None:
    """One value is stored, what it was stored to is written, and the value is stored again."""
    sources = [i for i in range(scope.count) if _stores(scope, target, i)]
    source = choice(draw, sources) if sources else target
    _store(scope, target, source)
    draw_write(draw, scope, target)
    others = [t for t in scope.writable() if t != target and _stores(scope, t, source)]
    _store(scope, choice(draw, others) if others else target, source)


def _copied_then_written(draw: Draw, scope: Scope, target: int) -> None:
    """A copy is made, the original written, and then the copy is written too."""
    tensor = scope.tensor(target)
    copy = scope.emit("aten.clone.default", tensor, range=scope.range(target))[0]
    draw_write(draw, scope, target)
    view = _view(draw, scope, copy)
    draw_write(draw, scope, view if view in scope.writable() else target)


def _swapped(draw: Draw, scope: Scope, target: int) -> None:
    """Two values change places through a temporary."""
    others = [i for i in scope.writable() if _stores(scope, target, i) and _stores(scope, i, target)
              and scope.tensor(i).shape == scope.tensor(target).shape]  # fmt: skip
    other = choice(draw, others) if others else target
    kept = scope.emit("aten.clone.default", scope.tensor(target), range=scope.range(target))[0]
    _store(scope, target, other)
    _store(scope, other, kept)


def _added_to_its_flip(draw: Draw, scope: Scope, target: int) -> None:
    """A part is written, and then the whole takes in its own elements from other places."""
    part = _view(draw, scope, target)
    if part in scope.writable():
        draw_write(draw, scope, part)
    tensor, own = scope.tensor(target), scope.range(target)
    if not tensor.ndim or not scope.takes("aten.flip.default"):
        return
    mirrored = scope.emit("aten.flip.default", tensor, [0], range=own)[0]
    total = own.low * 2, own.high * 2
    exact = EXACT[tensor.dtype]
    if exact.low <= total[0] and total[1] <= exact.high and tensor.dtype.itemsize > 1:
        scope.emit("aten.add_.Tensor", tensor, scope.tensor(mirrored), range=own._replace(low=total[0], high=total[1]))
    else:
        _store(scope, target, mirrored)


def _shifted(draw: Draw, scope: Scope, target: int) -> None:
    """The elements move along by one, through a copy."""
    tensor = scope.tensor(target)
    if not tensor.ndim or tensor.shape[0] < 2 or not scope.takes("aten.slice.Tensor"):
        draw_pure(draw, scope)
        return
    size = tensor.shape[0]
    head, tail = choice(draw, (((0, size - 1), (1, size)), ((1, size), (0, size - 1))))
    source = scope.emit("aten.slice.Tensor", tensor, 0, *head)[0]
    place = scope.emit("aten.slice.Tensor", tensor, 0, *tail)[0]
    kept = scope.emit("aten.clone.default", scope.tensor(source), range=scope.range(target))[0]
    _store(scope, place, kept)


def _view(draw: Draw, scope: Scope, index: int) -> int:
    op, args = draw_view(draw, scope.tensor(index), VIEWS, scope.limits)
    return choice(draw, scope.emit(op, scope.tensor(index), *args, range=None) or [index])


def _stores(scope: Scope, target: int, source: int) -> bool:
    a, b = scope.tensor(target), scope.tensor(source)
    return (
        a.shape == b.shape
        and scope.may_read(target, source)
        and cast(scope.range(source), b.dtype, a.dtype) is not None
    )


def _store(scope: Scope, target: int, source: int) -> None:
    """Copies the source, which `_stores` allowed before; nothing if it is too large by now."""
    found = cast(scope.range(source), scope.tensor(source).dtype, scope.tensor(target).dtype)
    if found is not None and scope.takes(COPY):
        scope.emit(COPY, scope.tensor(target), scope.tensor(source), range=found)


PATTERNS: tuple[Callable[[Draw, Scope, int], None], ...] = (
    _view_then_write,
    _copied_then_written,
    _stored_twice,
    _added_to_its_flip,
    _shifted,
    _swapped,
)
