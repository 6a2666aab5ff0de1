"""Short sequences of statements whose order is what compilers get wrong: they are drawn on purpose.

Most public reports have five statements or fewer, and their order matters more than the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from executor.args import constant
from strategies.crossing import shifted
from strategies.draws import Draw, below, between, choice
from strategies.dtypes import Range
from strategies.fitting import COPY, Table
from strategies.indexed import draw_indexed
from strategies.pointwise import OPERATORS, draw_pure, draw_write
from strategies.scope import Scope
from strategies.steps import add, adds, again, rows, store, stores, write
from strategies.views import LARGEST, VIEWS, draw_view, filled, other_dtypes

_OVERWRITES = Table(op for op in OPERATORS if op.inplace in (COPY, "aten.fill_.Scalar", "aten.zero_.default"))


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


def _computed_twice(draw: Draw, scope: Scope, target: int) -> None:
    """One thing is computed twice, a part of the first result is written, and then the second is stored or used."""
    first = draw_pure(draw, scope, operand=target)[0]
    if first == target:
        return
    second = again(scope, scope.range(first))
    write(draw, scope, _view(draw, scope, first))
    if stores(scope, target, second):
        store(scope, target, second)
    else:
        draw_pure(draw, scope, operand=second)


def _part_over_all(draw: Draw, scope: Scope, target: int) -> None:
    """A part is copied over all of a copy of its tensor, and then, through another copy, over the tensor itself."""
    piece = _view(draw, scope, target)
    whole, kept = (scope.emit("aten.clone.default", scope.tensor(i), range=scope.range(i))[0] for i in (target, piece))
    shape, room = scope.tensor(piece).shape[::-1], scope.tensor(target).shape[::-1]
    covers = len(shape) <= len(room) and all(n in (1, m) for n, m in zip(shape, room, strict=False))
    for to, source in ((whole, piece), (target, kept)):
        if covers and scope.takes(COPY) and scope.tensor(to).dtype is scope.tensor(source).dtype:
            scope.emit(COPY, scope.tensor(to), scope.tensor(source), range=scope.range(source))


def _left_as_it_is(draw: Draw, scope: Scope, target: int) -> None:
    """A form that changes nothing gives the tensor itself, a view of it or a copy; one of the two is written, the other used."""
    tensor = scope.tensor(target)
    forms = [(op, args) for op, args in _unchanged(tensor) if scope.takes(op)]
    if not forms:
        draw_write(draw, scope, target)
        return
    op, args = choice(draw, forms)
    found = scope.emit(op, *args)[0]
    written, used = choice(draw, ((found, target), (target, found)))
    write(draw, scope, written)
    draw_pure(draw, scope, operand=used)


def _unchanged(tensor: torch.Tensor) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Operators with arguments whose result has the tensor's elements as they are."""
    yield "aten.contiguous.default", (tensor,)
    yield "aten.to.dtype", (tensor, tensor.dtype)
    if tensor.is_floating_point():
        yield "aten.dropout.default", (tensor, 0.5, False)
    if filled(tensor):
        yield "aten.constant_pad_nd.default", (tensor, [0, 0], 0)
        yield "aten.cat.default", ([tensor], 0)
        yield "aten.split.Tensor", (tensor, tensor.shape[0], 0)
    if tensor.ndim < 5:
        yield "aten.stack.default", ([tensor], 0)


def _expanded_and_filled(draw: Draw, scope: Scope, target: int) -> None:
    """A tensor is expanded and filled through that, the one write that eager lets go to one element several times."""
    tensor = scope.tensor(target)
    fills = [(op, args) for op, args in (("aten.fill_.Scalar", (1,)), ("aten.zero_.default", ())) if scope.takes(op)]
    small = tensor.ndim < 5 and 0 < tensor.numel() * 3 <= LARGEST
    taken = scope.limits.overlapping_fills and scope.takes("aten.expand.default") and bool(fills)
    plain = not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg())  # of others eager writes through a copy
    if not (taken and small and plain):
        draw_write(draw, scope, target)
        return
    if below(draw, 2):
        target = scope.emit("aten.clone.default", tensor, range=scope.range(target))[0]
    wide = scope.emit("aten.expand.default", scope.tensor(target), [between(draw, 2, 3), *tensor.shape])[0]
    op, args = choice(draw, fills)
    number = sum(args)
    scope.emit(op, scope.tensor(wide), *args, range=Range(number, number))
    draw_pure(draw, scope, operand=choice(draw, (target, wide)))


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


def _transposed(draw: Draw, scope: Scope, target: int) -> None:
    """A tensor is filled anew through its transpose, and what is computed of that is used in the order of its storage."""
    fits = [i for i in scope.writable() if _is_matrix(scope.tensor(i))]
    if not fits or not all(map(scope.takes, ("aten.transpose.int", "aten.view.default", "aten.as_strided.default"))):
        draw_write(draw, scope, target)
        return
    target = choice(draw, fits)
    tensor = scope.tensor(target)
    dims = [dim for dim, n in enumerate(tensor.shape) if n > 1]
    turned = scope.emit("aten.transpose.int", tensor, dims[0], choice(draw, dims[1:]))[0]
    kept = scope.emit("aten.clone.default", tensor, range=scope.range(target))[0]
    source = scope.emit("aten.view.default", scope.tensor(kept), [*scope.tensor(turned).shape])[0]
    store(scope, turned, source)
    result = draw_pure(draw, scope, operand=turned)[0]
    if result != turned and scope.whole(result):
        flat = scope.emit("aten.as_strided.default", scope.tensor(result), [scope.tensor(result).numel()], [1], 0)[0]
        draw_pure(draw, scope, operand=flat)


def _is_matrix(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and sum(n > 1 for n in tensor.shape) > 1


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


PATTERNS: tuple[Callable[[Draw, Scope, int], None], ...] = (
    _view_then_write,
    _computed_twice,
    _copied_then_written,
    _stored_twice,
    _added_to_its_flip,
    shifted,
    _left_as_it_is,
    _expanded_and_filled,
    _swapped,
    _part_over_all,
    _transposed,
    _scattered_then_overwritten,
    _bytes_read_late,
)
