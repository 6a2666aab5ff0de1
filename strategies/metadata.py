"""Statements that change what a tensor is: its shape, strides, offset or storage in place, and no element.

More often than not a view of the tensor is taken before, and the tensor or the view changes: the other has to stay as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import torch

from executor.schema_fixes import SET_DATA
from strategies.draws import Draw, below, between, choice
from strategies.pointwise import draw_write
from strategies.scope import Scope
from strategies.views import VIEWS, draw_view, parted, strided


class Change(NamedTuple):
    """One operator, and the lists of arguments after the tensor that may be drawn, the plainest first; none does not fit."""

    op: str
    arguments: Callable[[Draw, Scope, int], list[tuple[Any, ...]]]


def draw_change(draw: Draw, scope: Scope) -> None:
    """A change of a value's metadata, perhaps after a view of it, perhaps with a use of either behind it."""
    current = scope.recorder.current
    targets = [i for i in range(scope.count) if current(i) == i and i not in scope.fixed]
    if not targets:
        return
    target = choice(draw, targets)
    if below(draw, 4) == 3:  # one of the program's own
        target = scope.emit("aten.clone.default", scope.tensor(target), range=scope.range(target))[0]
    view = _view(draw, scope, target) if below(draw, 4) else target
    if view not in scope.fixed and below(draw, 3) == 2:
        target, view = view, target
    given = not scope.limits.metadata_of_inputs and target in map(current, scope.inputs)
    rows = [(c.op, arguments) for c in CHANGES if scope.takes(c.op) and (c.op == SET_DATA or not given)
            for arguments in [c.arguments(draw, scope, target)] if arguments]  # fmt: skip
    if not rows:
        return
    op, options = choice(draw, rows)
    changed = scope.emit(op, scope.tensor(target), *choice(draw, options))[0]
    used = choice(draw, (changed, view))
    if used in scope.writable() and below(draw, 2):
        draw_write(draw, scope, used)
    elif parted(scope.tensor(used)) and scope.takes("aten.unbind.int"):
        scope.emit("aten.unbind.int", scope.tensor(used))


def _view(draw: Draw, scope: Scope, index: int) -> int:
    """A view of the value; now and then one of all of it, or the value itself under another name."""
    tensor = scope.tensor(index)
    op, args = draw_view(draw, tensor, VIEWS, scope.limits)
    if below(draw, 4) == 3:
        op, args = choice(
            draw, (("aten.alias.default", ()), ("aten.to.dtype", (tensor.dtype,)), ("aten.contiguous.default", ()))
        )
    return choice(draw, scope.emit(op, tensor, *args) or [index])


def _transpose(_: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    rank = scope.tensor(index).ndim
    return [(a, b) for a in range(rank) for b in range(a + 1, rank)]


def _t(_: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    return [()] if scope.tensor(index).ndim == 2 else []


def _unsqueeze(_: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    rank = scope.tensor(index).ndim
    return [(dim,) for dim in range(rank + 1)] if rank < 5 else []


def _squeeze(_: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    tensor = scope.tensor(index)
    return [] if _lazy(tensor) else [(dim,) for dim, n in enumerate(tensor.shape) if n == 1]


def _squeeze_some(draw: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    ones = [dim for (dim,) in _squeeze(draw, scope, index)]
    return [(ones[:count],) for count in range(1, len(ones) + 1)]


def _squeeze_all(_: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    return [()] if 1 in scope.tensor(index).shape else []


def _source(_: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    """The values whose place in memory it can take: others first, and one that lies as it does last."""
    tensor = scope.tensor(index)
    fits = [
        other for other in map(scope.tensor, range(scope.count)) if other.dtype is tensor.dtype and not _lazy(other)
    ]
    return [] if _lazy(tensor) else [(other,) for other in sorted(fits, key=lambda other: other is tensor)]


def _part_of_source(draw: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    """One or two dimensions somewhere on the storage of another value, or its own, behind that value's first element."""
    sources = [other for (other,) in _source(draw, scope, index) if other.is_contiguous() and _behind(scope, other)]
    if not sources:
        return []
    source = choice(draw, sources)
    shape, strides, offset = strided(draw, _behind(scope, source))
    return [(source, offset, shape, strides)]


def _behind(scope: Scope, tensor: torch.Tensor) -> int:
    """Elements of the storage from the tensor's first one on."""
    return max(_room(scope, scope.recorder.ref(tensor).index) - int(tensor.storage_offset()), 0)


def _anywhere(_: Draw, __: Scope, ___: int) -> list[tuple[Any, ...]]:
    return [()]


def _data(draw: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    """What `_source` gives, or now and then tensors of any dtype."""
    found = _source(draw, scope, index)
    if found and below(draw, 12) == 11:
        found += [(other,) for other in map(scope.tensor, range(scope.count)) if not _lazy(other)]
    return found


def _lazy(tensor: torch.Tensor) -> bool:
    """Whether elements are conjugated or negated as they are read.

    Of such a tensor `squeeze_` of some dimensions and `resize_as_` make a plain copy, change that, and write it back as if the
    tensor were contiguous: over what lies between its elements, with a warning from `Resize.cpp`.
    """
    return bool(tensor.is_conj() or tensor.is_neg())


def _room(scope: Scope, index: int) -> int:
    """Elements of the storage, as the value's dtype counts them; none where some of them mean nothing."""
    tensor = scope.tensor(index)
    return min(tensor.untyped_storage().nbytes() // tensor.itemsize, 60) if scope.whole(index) else 0


def _as_strided(draw: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    """One or two dimensions somewhere on the storage."""
    room = _room(scope, index)
    if not room:
        return []
    shape, strides, offset = strided(draw, room)
    value = msgspec.structs.replace(scope.value(index), shape=tuple(shape), strides=tuple(strides), offset=offset)
    if value.footprint.self_overlaps and not scope.limits.overlapping_as_strided:
        shape, strides = [1], [1]
    return [(shape, strides, offset)]


def _resize(draw: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    """Fewer elements or more, as the storage has them, flat or in rows."""
    room = _room(scope, index) - int(scope.tensor(index).storage_offset())
    if room < 1:
        return []
    count = between(draw, 1, room)
    return [([count],), *[([rows, count // rows],) for rows in range(1, count + 1) if count % rows == 0]]


def _resize_as(_: Draw, scope: Scope, index: int) -> list[tuple[Any, ...]]:
    if _lazy(scope.tensor(index)):
        return []
    room = _room(scope, index) - int(scope.tensor(index).storage_offset())
    return [(other,) for other in map(scope.tensor, range(scope.count)) if 0 < other.numel() <= room]


CHANGES: tuple[Change, ...] = (
    Change("aten.transpose_.default", _transpose),
    Change("aten.unsqueeze_.default", _unsqueeze),
    Change("aten.t_.default", _t),
    Change("aten.squeeze_.dim", _squeeze),
    Change("aten.as_strided_.default", _as_strided),
    Change("aten.resize_.default", _resize),
    Change("aten.set_.source_Tensor", _source),
    Change("aten.set_.source_Tensor_storage_offset", _part_of_source),
    Change("aten.set_.default", _anywhere),
    Change(SET_DATA, _data),
    Change("aten.squeeze_.default", _squeeze_all),
    Change("aten.squeeze_.dims", _squeeze_some),
    Change("aten.swapaxes_.default", _transpose),
    Change("aten.swapdims_.default", _transpose),
    Change("aten.resize_as_.default", _resize_as),
)
