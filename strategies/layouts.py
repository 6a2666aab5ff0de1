"""How a program's inputs lie on their storages: alone, or several views of one storage.

An input on a storage that is taken already is either a chain of views of its base or a *sibling*: an earlier input's
geometry moved along the storage. Together they draw inputs that are identical, disjoint, nested, interleaved,
transposed and partly overlapping. Or it is a *reading* of an earlier input: the same elements flat, as another dtype,
or conjugated.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec
import torch

from executor.geometry import Overlap, overlap
from executor.limits import Limits, displaced, reread
from executor.memory import fill_tensor, on_base, value_of
from executor.program import Iota, itemsize
from executor.schema import resolve
from strategies.draws import Draw, below, choice
from strategies.dtypes import COMMON, RARE
from strategies.scope import Scope
from strategies.views import MORE_VIEWS, VIEWS, View, draw_view, readings

_MOST = 4  # inputs
_COUNTS = ((51, 1), (92, 2), (125, 3), (256, 4))  # of inputs, each below so many of 256: one more in four cases of five
_SIZES = (1, 2, 2, 3, 3, 4, 5, 6)  # smallest first; repeats are weights
_LONG = (37, 40)  # shifts show only beyond one vector register


class Base(NamedTuple):
    """One storage's flat content as the tensor that covers it all, and the inputs that lie on it so far."""

    tensor: torch.Tensor
    fill: Iota
    inputs: list[torch.Tensor]


class Drawn(NamedTuple):
    """The inputs' indices, and pairs of positions among them, the later first, that are one tensor passed twice."""

    indices: list[int]
    twins: list[tuple[int, int]]


def draw_places(draw: Draw) -> list[bool]:
    """One to four places, and which of them have an input: nearly always all, but Hypothesis may give up each alone."""
    taken = [below(draw, 256) > 0 for _ in range(_MOST)][::-1]
    drawn = below(draw, _COUNTS[-1][0])
    count = next(count for limit, count in _COUNTS if drawn < limit)
    return taken[:count] if any(taken[:count]) else [True]


def draw_inputs(draw: Draw, scope: Scope, places: list[bool], *, rare: bool, first: tuple[str, ...] = ()) -> Drawn:
    """An input in each of these places, on one to four storages, within the limits; rare dtypes and views too if asked.

    The first one has one of the dtypes `first`, if some are given that the limits allow.
    """
    limits = scope.limits
    names = COMMON + RARE if rare else COMMON
    dtypes = tuple(filter(limits.takes_dtype, names)) or tuple(filter(limits.takes_dtype, COMMON + RARE))
    views = VIEWS + MORE_VIEWS if rare else VIEWS
    bases, drawn = list[Base](), Drawn([], [])
    for taken in places:
        draw.begin_place()
        if not taken:
            continue
        place = _place(draw, len(bases)) if limits.aliased_inputs else len(bases)
        if place == len(bases):
            indexes = rare and "int64" in dtypes and below(draw, 4) == 3 and bool(bases)
            own = dtypes if bases else tuple(filter(limits.takes_dtype, first)) or dtypes
            bases.append(_index_base(draw) if indexes else _base(draw, len(bases), own, limits))
        elif limits.overlapping_inputs and below(draw, 6) == 5:
            _again(draw, scope, bases, drawn)
            continue
        drawn.indices.append(_input(draw, scope, bases, place, views, rare=rare))
    return drawn


def _place(draw: Draw, count: int) -> int:
    """One of so many storages, or the next one. It is drawn even where it can only be the first, so that inputs may go."""
    drawn = below(draw, max(count, 1) + 1)
    return drawn if count else 0


def _again(draw: Draw, scope: Scope, bases: list[Base], drawn: Drawn) -> None:
    """An earlier input passed once more. It is a value of its own, since each parameter's uses are told apart."""
    earlier = below(draw, len(drawn.indices))
    first = scope.tensor(drawn.indices[earlier])
    fill = next(
        base.fill for base in bases if base.tensor.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
    )
    tensor = first.as_strided(first.shape, first.stride(), first.storage_offset())
    drawn.twins.append((len(drawn.indices), _eldest(drawn.twins, earlier)))
    drawn.indices.append(scope.add_input(tensor, fill))


def _eldest(twins: list[tuple[int, int]], position: int) -> int:
    return dict(twins).get(position, position)


def _base(draw: Draw, position: int, dtypes: tuple[str, ...], limits: Limits) -> Base:
    form = below(draw, 24)  # ranks 1 to 3, and now and then a long dimension, or one of size 0
    if form == 23 and below(draw, 12) == 11:
        return _large(choice(draw, dtypes), limits.side)
    shape = [choice(draw, _LONG)] if form == 23 else [choice(draw, _SIZES) for _ in range(1 + form % 3)]
    if form == 22 and limits.empty_inputs:
        shape[below(draw, len(shape))] = 0
    skipped = (0, 0, 0, 1, 3)[form // 3 % 5]  # elements before all inputs: a hidden base, misaligned
    count = torch.Size(shape).numel()
    dtype = choice(draw, dtypes)
    # Distinct contents on each storage, so that a wrong value says where it came from, but small: short types end early.
    start = (1, -7, 31, 3)[position]
    fill = Iota(dtype, abs(start) if dtype == "uint8" else start, 25 if itemsize(dtype) <= 2 else 0)
    return Base(_filled(fill, count + skipped)[skipped:].view(shape), fill, [])


def _large(dtype: str, side: int) -> Base:
    """A square for which a kernel needs many blocks of threads, with small numbers that begin anew in each row elsewhere."""
    fill = Iota(dtype, 1, 25)
    return Base(fill_tensor(fill, side * side).view(side, side), fill, [])


def _index_base(draw: Draw) -> Base:
    """Whole numbers that can index a dimension of a few elements, each once or several times."""
    count, period = choice(draw, ((2, 0), (3, 0), (3, 2), (4, 0), (4, 2)))
    fill = Iota("int64", 0, period)
    return Base(_filled(fill, count), fill, [])


def _filled(fill: Iota, count: int) -> torch.Tensor:
    """A flat tensor with these contents: what the program computes while it is drawn is what it computes when it runs."""
    return _contents(fill, count).clone()


_contents = lru_cache(maxsize=4096)(fill_tensor)


def _input(draw: Draw, scope: Scope, bases: list[Base], place: int, views: tuple[View, ...], *, rare: bool) -> int:
    base = bases[place]
    tensor = _placed(draw, scope.limits, base, views, rare=rare)
    if not all(_may_share(scope.limits, tensor, other) for other in base.inputs):
        base, tensor = _moved(tensor, base.fill)  # what was drawn still makes a valid program
        bases.append(base)
    base.inputs.append(tensor)
    return scope.add_input(tensor, base.fill)


def _placed(draw: Draw, limits: Limits, base: Base, views: tuple[View, ...], *, rare: bool) -> torch.Tensor:
    if base.inputs and (not limits.displaced_inputs or below(draw, 6) > (3 if rare else 4)):
        return _reading(draw, choice(draw, base.inputs), limits, rare=rare)
    moveable = any(len(_places(base, other)) > 1 for other in base.inputs)
    return _sibling(draw, base) if moveable and below(draw, 2) else _viewed(draw, base, views, limits)


def _reading(draw: Draw, earlier: torch.Tensor, limits: Limits, *, rare: bool) -> torch.Tensor:
    """An earlier input's elements as another tensor object: the same, or flat; if rare, also as other numbers."""
    same = earlier.as_strided(earlier.shape, earlier.stride(), earlier.storage_offset())
    if rare and limits.reread_inputs and (found := readings(earlier, limits)) and below(draw, 2):
        return choice(draw, found)
    return choice(draw, [same, earlier.view(-1)] if earlier.is_contiguous() and earlier.numel() else [same])


def _may_share(limits: Limits, tensor: torch.Tensor, other: torch.Tensor) -> bool:
    a, b = value_of(tensor, 0), value_of(other, 0)
    return (
        (limits.overlapping_inputs or overlap(a.footprint, b.footprint) is Overlap.NO_ALIAS)
        and (limits.displaced_inputs or not displaced(a, b))
        and (limits.reread_inputs or not reread(a, b))
    )


def _moved(tensor: torch.Tensor, fill: Iota) -> tuple[Base, torch.Tensor]:
    """A new storage of the same size, with these contents, and a tensor of the same geometry on it."""
    base = _filled(fill, tensor.untyped_storage().nbytes() // itemsize(fill.dtype))
    return Base(base, fill, []), on_base(base, value_of(tensor, 0))


def _viewed(draw: Draw, base: Base, views: tuple[View, ...], limits: Limits) -> torch.Tensor:
    """The base under up to two views, as a tensor object of its own."""
    tensor = base.tensor.view(base.tensor.shape)
    for _ in range((0, 0, 1, 2)[below(draw, 4)]):
        op, args = draw_view(draw, tensor, views, limits)
        out = resolve(op)(tensor, *args)
        tensor = out if isinstance(out, torch.Tensor) else choice(draw, out)
    same = tensor.untyped_storage().data_ptr() == base.tensor.untyped_storage().data_ptr()
    if same and (tensor.numel() or limits.empty_inputs):
        return tensor
    return base.tensor.view(base.tensor.shape)  # `reshape` and its like made a copy, or nothing is left


def _sibling(draw: Draw, base: Base) -> torch.Tensor:
    """An earlier input's geometry moved along the storage: beside it, interleaved with it, or over a part of it."""
    model = choice(draw, [tensor for tensor in base.inputs if len(_places(base, tensor)) > 1])
    offset = choice(draw, _places(base, model)[1:])
    return on_base(base.tensor, msgspec.structs.replace(value_of(model, 0), offset=offset))


def _places(base: Base, model: torch.Tensor) -> list[int]:
    """Storage offsets at which the geometry of an input fits: its own first, then by distance, those behind it first."""
    if not model.numel() or model.dtype is not base.tensor.dtype:
        return []
    extent = sum((n - 1) * step for n, step in zip(model.shape, model.stride(), strict=True))
    own = int(model.storage_offset())
    return sorted(range(base.tensor.numel() - extent), key=lambda offset: (abs(offset - own), offset < own))[:100]
