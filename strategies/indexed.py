"""Writes by index or mask: `index_put_`, `index_copy_`, `scatter_`, `masked_fill_` and their like, and triangles.

Where several elements are written to one place the outcome must not depend on their order: indices are distinct, or the
values are added or equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from strategies.draws import Draw, below, between, choice
from strategies.dtypes import EXACT, TRUTH, Range, kind
from strategies.moves import indices, is_mask
from strategies.pointwise import draw_pure
from strategies.scope import Scope
from strategies.steps import part

Drawn = tuple[list[Any], Range] | None
INDEX = "aten.arange.default"  # of the first rows, where nothing in scope indexes them
_COMPARED = "aten.gt.Scalar"
_REPEAT = "aten.remainder.Scalar"


class IndexedWrite(NamedTuple):
    """One operator, and how the arguments after its target are drawn, with the range of what it writes; None if none fits.

    `keywords` are its keyword arguments.
    """

    op: str
    arguments: Callable[[Draw, Scope, int], Drawn]
    keywords: tuple[tuple[str, str], ...] = ()


def draw_indexed(draw: Draw, scope: Scope, target: int) -> list[int]:
    """A write of a part of the target that an index or a mask names. Returns the value written."""
    return draw_of(draw, scope, target, WRITES)


def draw_of(draw: Draw, scope: Scope, target: int, writes: Sequence[IndexedWrite]) -> list[int]:
    """One of these writes of the target. Returns the value written."""
    write = choice(draw, [write for write in writes if scope.takes(write.op)] or [_NONE])
    drawn = write.arguments(draw, scope, target)
    if drawn is None:
        return [target]
    return scope.emit(write.op, scope.tensor(target), *drawn[0], range=drawn[1], **dict(write.keywords))


def _masked_fill(draw: Draw, scope: Scope, target: int) -> Drawn:
    tensor = scope.tensor(target)
    masks = _masks(scope, target)
    if not masks:
        return None
    number = _number(draw, tensor)
    return [scope.tensor(choice(draw, masks)), number], Range(number, number)


def _masked_scatter(draw: Draw, scope: Scope, target: int) -> Drawn:
    tensor = scope.tensor(target)
    masks = _masks(scope, target)
    sources = [
        i for i in range(scope.count)
        if scope.tensor(i).dtype is tensor.dtype and scope.tensor(i).numel() >= tensor.numel() and scope.apart(target, i)
    ]  # fmt: skip
    if not masks or not sources:
        return None
    mask, source = choice(draw, masks), choice(draw, sources)
    return [scope.tensor(mask), scope.tensor(source)], scope.range(source)


def _masks(scope: Scope, target: int) -> list[int]:
    """The masks for all elements of the target; if there is none, where it is greater than 1."""
    tensor = scope.tensor(target)
    masks = [i for i in range(scope.count) if is_mask(scope, i, tensor) and scope.apart(target, i)]
    compared = kind(tensor.dtype) in "uif" and scope.exact(target) and scope.takes(_COMPARED, torch.bool)
    made = scope.emit(_COMPARED, tensor, 1, range=TRUTH) if compared and not masks else []
    return masks or [i for i in made if is_mask(scope, i, tensor)]


def _index_fill(draw: Draw, scope: Scope, target: int) -> Drawn:
    place = _place(draw, scope, target, distinct=False)
    if place is None:
        return None
    number = _number(draw, scope.tensor(target))
    return [place[0], scope.tensor(place[1]), number], Range(number, number)


def _index_copy(draw: Draw, scope: Scope, target: int) -> Drawn:
    place = _place(draw, scope, target, distinct=True)
    source = _source(draw, scope, target, place)
    if place is None or source is None:
        return None
    return [place[0], scope.tensor(place[1]), scope.tensor(source)], scope.range(source)


def _index_add(draw: Draw, scope: Scope, target: int) -> Drawn:
    place = _place(draw, scope, target, distinct=False)
    source = _source(draw, scope, target, place)
    if place is None or source is None or kind(scope.tensor(target).dtype) == "b":
        return None
    found = _accumulated(scope, target, source)
    return None if found is None else ([place[0], scope.tensor(place[1]), scope.tensor(source)], found)


def _index_put(draw: Draw, scope: Scope, target: int) -> Drawn:
    return _put(draw, scope, target, accumulate=False)


def _index_put_accumulate(draw: Draw, scope: Scope, target: int) -> Drawn:
    return _put(draw, scope, target, accumulate=True)


def _put(draw: Draw, scope: Scope, target: int, *, accumulate: bool) -> Drawn:
    place = _place(draw, scope, target, distinct=not accumulate, dim=0)
    source = _source(draw, scope, target, place)
    if place is None or source is None or (accumulate and kind(scope.tensor(target).dtype) == "b"):
        return None
    found = _accumulated(scope, target, source) if accumulate else scope.range(source)
    return None if found is None else ([[scope.tensor(place[1])], scope.tensor(source), accumulate], found)


def _scatter(draw: Draw, scope: Scope, target: int) -> Drawn:
    return _along(draw, scope, target, distinct=True)


def _scatter_add(draw: Draw, scope: Scope, target: int) -> Drawn:
    drawn = _along(draw, scope, target, distinct=False)
    if drawn is None or kind(scope.tensor(target).dtype) == "b":
        return None
    source = next(i for i in range(scope.count) if scope.tensor(i) is drawn[0][2])
    found = _accumulated(scope, target, source)
    return None if found is None else (drawn[0], found)


def _along(draw: Draw, scope: Scope, target: int, *, distinct: bool) -> Drawn:
    """Dimension, index and source for a scatter along the only dimension of the target."""
    tensor = scope.tensor(target)
    place = _place(draw, scope, target, distinct=distinct) if tensor.ndim == 1 else None
    source = _source(draw, scope, target, place)
    if place is None or source is None:
        return None
    return [0, scope.tensor(place[1]), scope.tensor(source)], scope.range(source)


def _scatter_value(draw: Draw, scope: Scope, target: int) -> Drawn:
    tensor = scope.tensor(target)
    place = _place(draw, scope, target, distinct=False) if tensor.ndim == 1 else None
    if place is None:
        return None
    number = _number(draw, tensor)
    return [0, scope.tensor(place[1]), number], Range(number, number)


def _put_flat(draw: Draw, scope: Scope, target: int) -> Drawn:
    """Elements counted in row-major order, whatever the strides."""
    tensor = scope.tensor(target)
    accumulate = below(draw, 2) == 1 and kind(tensor.dtype) != "b"
    places = [
        i for i in indices(scope, tensor.numel())
        if scope.apart(target, i) and scope.tensor(i).numel() and (accumulate or scope.distinct(i))
    ]  # fmt: skip
    if not places:
        return None
    place = choice(draw, places)
    sources = [i for i in scope.alike(scope.tensor(place).shape, tensor.dtype) if scope.apart(target, i)]
    if not sources:
        return None
    source = choice(draw, sources)
    found = _accumulated(scope, target, source) if accumulate else scope.range(source)
    return None if found is None else ([scope.tensor(place), scope.tensor(source), accumulate], found)


def _scatter_reduce(draw: Draw, scope: Scope, target: int) -> Drawn:
    """The largest of what comes to one place, so that their order means nothing."""
    drawn = None if scope.tensor(target).is_complex() else _scatter_add(draw, scope, target)
    return None if drawn is None else ([*drawn[0], "amax"], drawn[1])


def _scatter_number(draw: Draw, scope: Scope, target: int) -> Drawn:
    """Adds a number to the places that an index names, as often as it does."""
    drawn = _scatter_value(draw, scope, target)
    if drawn is None or not scope.exact(target) or kind(scope.tensor(target).dtype) in "bc":
        return None
    own, most = scope.range(target), 7 * drawn[0][1].numel()
    found = Range(own.low, own.high + most)
    return ([*drawn[0]], found) if found.within(EXACT[scope.tensor(target).dtype]) else None


def _of_value(write: Callable[[Draw, Scope, int], Drawn]) -> Callable[[Draw, Scope, int], Drawn]:
    """The same write of one element of a tensor instead of a number."""

    def drawn(draw: Draw, scope: Scope, target: int) -> Drawn:
        single = [i for i in scope.alike(torch.Size(), scope.tensor(target).dtype) if scope.apart(target, i)]
        found = write(draw, scope, target) if single else None
        if found is None:
            return None
        value = choice(draw, single)
        return [*found[0][:-1], scope.tensor(value)], scope.range(value)

    return drawn


def _triangle(draw: Draw, scope: Scope, target: int) -> Drawn:
    return ([choice(draw, (0, 1, -1))], Range(0, 0)) if scope.tensor(target).ndim >= 2 else None


def _place(draw: Draw, scope: Scope, target: int, *, distinct: bool, dim: int | None = None) -> tuple[int, int] | None:
    """A dimension of the target, and a value that indexes it.

    If there is none, one that counts its first elements; unless they must be `distinct`, perhaps some of them again and again.
    """
    tensor = scope.tensor(target)
    if not tensor.ndim or not tensor.numel():
        return None
    dim = below(draw, tensor.ndim) if dim is None else dim
    size = tensor.shape[dim]
    fits = [
        i for i in indices(scope, size)
        if scope.apart(target, i) and (not distinct or scope.distinct(i)) and scope.tensor(i).numel()
    ]  # fmt: skip
    if not fits and scope.takes(INDEX, torch.int64):
        cpu = {"device": torch.device("cpu"), "pin_memory": False}
        fits = scope.emit(INDEX, size - below(draw, size), range=Range(0, size - 1), **cpu)
        if not distinct and scope.takes(_REPEAT) and below(draw, 2):
            places = between(draw, 1, scope.tensor(fits[0]).numel())
            fits = scope.emit(_REPEAT, scope.tensor(fits[0]), places, range=Range(0, places - 1))
    return (dim, choice(draw, fits)) if fits else None


def _source(draw: Draw, scope: Scope, target: int, place: tuple[int, int] | None) -> int | None:
    """A value shaped like what the index names, apart from the target; if there is none, it is made of the target."""
    if place is None:
        return None
    tensor, count = scope.tensor(target), scope.tensor(place[1]).numel()
    shape = torch.Size(count if d == place[0] else n for d, n in enumerate(tensor.shape))
    fits = [i for i in scope.alike(shape, tensor.dtype) if scope.apart(target, i)]
    if not fits and count <= tensor.shape[place[0]]:
        fresh = draw_pure(draw, scope, operand=target)[0]
        if scope.tensor(fresh).shape == tensor.shape and scope.tensor(fresh).dtype is tensor.dtype:
            made = fresh if count == tensor.shape[place[0]] else part(scope, fresh, place[0], 0, count)
            fits = [made] if scope.apart(target, made) else []
    return choice(draw, fits) if fits else None


def _accumulated(scope: Scope, target: int, source: int) -> Range | None:
    """The range of the target after each element of the source was added, in the worst case all to one place."""
    if not scope.exact(target) or not scope.exact(source):
        return None
    own, added, count = scope.range(target), scope.range(source), scope.tensor(source).numel()
    found = Range(own.low + min(added.low, 0) * count, own.high + max(added.high, 0) * count)
    return found if found.within(EXACT[scope.tensor(target).dtype]) else None


def _number(draw: Draw, tensor: torch.Tensor) -> int:
    return choice(draw, (0, 1) if tensor.dtype is torch.bool else (0, 1, 7))


WRITES: tuple[IndexedWrite, ...] = (
    IndexedWrite("aten.index_put_.default", _index_put),
    IndexedWrite("aten.masked_fill_.Scalar", _masked_fill),
    IndexedWrite("aten.index_put_.default", _index_put_accumulate),
    IndexedWrite("aten.index_copy_.default", _index_copy),
    IndexedWrite("aten.index_add_.default", _index_add),
    IndexedWrite("aten.index_fill_.int_Scalar", _index_fill),
    IndexedWrite("aten.scatter_.src", _scatter),
    IndexedWrite("aten.scatter_.value", _scatter_value),
    IndexedWrite("aten.scatter_add_.default", _scatter_add),
    IndexedWrite("aten.masked_scatter_.default", _masked_scatter),
    IndexedWrite("aten.masked_fill_.Tensor", _of_value(_masked_fill)),
    IndexedWrite("aten.index_fill_.int_Tensor", _of_value(_index_fill)),
    IndexedWrite("aten.put_.default", _put_flat),
    IndexedWrite("aten.scatter_reduce_.two", _scatter_reduce),
    IndexedWrite("aten.scatter_.value_reduce", _scatter_number, (("reduce", "add"),)),
    IndexedWrite("aten.tril_.default", _triangle),
    IndexedWrite("aten.triu_.default", _triangle),
)
_NONE = IndexedWrite("", lambda draw, scope, target: None)
