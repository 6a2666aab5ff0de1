"""Single statements that patterns and shapes of use are made of: a slice, a store, an addition in place."""

from __future__ import annotations

from executor.args import to_python
from strategies.draws import Draw
from strategies.dtypes import EXACT, Range, cast, kind
from strategies.fitting import COPY
from strategies.pointwise import draw_write
from strategies.scope import Scope


def rows(scope: Scope, index: int, start: int, stop: int) -> int:
    """The value's rows from `start` up to `stop`, as a view."""
    return part(scope, index, 0, start, stop)


def part(scope: Scope, index: int, dim: int, start: int, stop: int, step: int = 1) -> int:
    """The value from `start` up to `stop` along a dimension, or each `step`-th element of that, as a view."""
    steps = (step,) if step > 1 else ()
    return scope.emit("aten.slice.Tensor", scope.tensor(index), dim, start, stop, *steps)[0]


def again(scope: Scope, found: Range) -> int:
    """The last call once more, whose result was in this range."""
    call, tensors = scope.recorder.calls[-1], scope.recorder.tensors
    args = [to_python(arg, tensors) for arg in call.args]
    kwargs = {name: to_python(arg, tensors) for name, arg in call.kwargs}
    return scope.emit(call.op, *args, range=found, **kwargs)[0]


def write(draw: Draw, scope: Scope, index: int) -> None:
    """A drawn in-place statement on the value, if it may be written."""
    if scope.overlaps(index):
        return
    draw_write(draw, scope, index)


def stores(scope: Scope, target: int, source: int) -> bool:
    """Whether the source can be copied to the target: no broadcast, a cast that is the same everywhere."""
    a, b = scope.tensor(target), scope.tensor(source)
    return (
        a.shape == b.shape
        and scope.may_read(target, source)
        and cast(scope.range(source), b.dtype, a.dtype) is not None
    )


def store(scope: Scope, target: int, source: int) -> None:
    """Copies the source, which `stores` allowed before; nothing if it is too large by now."""
    found = cast(scope.range(source), scope.tensor(source).dtype, scope.tensor(target).dtype)
    if found is not None and scope.takes(COPY):
        scope.emit(COPY, scope.tensor(target), scope.tensor(source), range=found)


def adds(scope: Scope, target: int, source: int) -> bool:
    """Whether the source can be added in place: no broadcast, no cast, no sum beyond what is exact."""
    a, b = scope.tensor(target), scope.tensor(source)
    alike = a.shape == b.shape and a.dtype is b.dtype and kind(a.dtype) != "b"
    return alike and scope.may_read(target, source) and _sum(scope, target, source).within(EXACT[a.dtype])


def add(scope: Scope, target: int, source: int) -> None:
    """Adds the source in place, which `adds` allows."""
    if scope.takes("aten.add_.Tensor"):
        total = _sum(scope, target, source)
        scope.emit("aten.add_.Tensor", scope.tensor(target), scope.tensor(source), range=total)


def _sum(scope: Scope, target: int, source: int) -> Range:
    one, other = scope.range(target), scope.range(source)
    return Range(one.low + other.low, one.high + other.high)
