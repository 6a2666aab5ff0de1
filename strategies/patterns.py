"""Short sequences of statements whose order is what compilers get wrong: they are drawn on purpose.

Most public reports have five statements or fewer, and their order matters more than the operators.
"""

from __future__ import annotations

from collections.abc import Callable

from strategies.draws import Draw, choice
from strategies.pointwise import draw_pure, draw_write
from strategies.scope import Scope
from strategies.steps import add, adds, rows, store, stores
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


def _swapped(draw: Draw, scope: Scope, target: int) -> None:
    """Two values change places through a temporary."""
    others = [i for i in scope.writable() if stores(scope, target, i) and stores(scope, i, target)
              and scope.tensor(i).shape == scope.tensor(target).shape]  # fmt: skip
    other = choice(draw, others) if others else target
    kept = scope.emit("aten.clone.default", scope.tensor(target), range=scope.range(target))[0]
    store(scope, target, other)
    store(scope, other, kept)


def _added_to_its_flip(draw: Draw, scope: Scope, target: int) -> None:
    """A part is written, and then the whole takes in its own elements from other places."""
    part = _view(draw, scope, target)
    if part in scope.writable():
        draw_write(draw, scope, part)
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


def _view(draw: Draw, scope: Scope, index: int) -> int:
    op, args = draw_view(draw, scope.tensor(index), VIEWS, scope.limits)
    return choice(draw, scope.emit(op, scope.tensor(index), *args, range=None) or [index])


PATTERNS: tuple[Callable[[Draw, Scope, int], None], ...] = (
    _view_then_write,
    _copied_then_written,
    _stored_twice,
    _added_to_its_flip,
    _shifted,
    _swapped,
)
