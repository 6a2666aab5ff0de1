"""How a program's inputs lie on their storages: alone, or several views of one storage.

An input on a storage that is taken already is either a chain of views of its base or a *sibling*: an earlier input's
geometry moved along the storage. Together they draw inputs that are identical, disjoint, nested, interleaved,
transposed and partly overlapping.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from executor.args import constant
from executor.geometry import Overlap, overlap
from executor.limits import Limits
from executor.memory import value_of
from executor.program import Iota, itemsize
from executor.schema import resolve
from strategies.draws import Draw, below, between, choice, more
from strategies.dtypes import DTYPES
from strategies.scope import Scope
from strategies.views import draw_view

_SIZES = (2, 3, 4, 2, 3, 1, 5, 0)


class Base(NamedTuple):
    """One storage's flat content as the tensor that covers it all, and the inputs that lie on it so far."""

    tensor: torch.Tensor
    fill: Iota
    inputs: list[torch.Tensor]


class Drawn(NamedTuple):
    """The inputs' indices, and pairs of positions among them, the later first, that are one tensor passed twice."""

    indices: list[int]
    twins: list[tuple[int, int]]


def draw_inputs(draw: Draw, scope: Scope, limits: Limits) -> Drawn:
    """One to four inputs on one to four storages, within the limits."""
    dtypes = tuple(name for name in DTYPES if limits.dtypes is None or name in limits.dtypes)
    bases = [_base(draw, 0, dtypes)]
    drawn = Drawn([_input(draw, scope, bases[0], limits)], [])
    while len(drawn.indices) < 4 and more(draw, 5):
        place = below(draw, len(bases) + 1) if limits.aliased_inputs else len(bases)
        if place == len(bases):
            bases.append(_base(draw, len(bases), dtypes))
        elif limits.overlapping_inputs and below(draw, 6) == 5:
            _again(draw, scope, bases, drawn)
            continue
        drawn.indices.append(_input(draw, scope, bases[place], limits))
    return drawn


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


def _base(draw: Draw, position: int, dtypes: tuple[str, ...]) -> Base:
    dtype = choice(draw, dtypes)
    shape = [choice(draw, _SIZES) for _ in range(between(draw, 1, 3))]
    count = torch.Size(shape).numel()
    # Distinct contents on each storage, so that a wrong value says where it came from, but small: half types end early.
    fill = Iota(dtype, (1, -7, 31, 3)[position], 25 if itemsize(dtype) == 2 else 0)
    flat = torch.zeros(count, dtype=constant(dtype))
    return Base(flat.view(shape), fill, [])


def _input(draw: Draw, scope: Scope, base: Base, limits: Limits) -> int:
    moveable = any(len(_places(base, other)) > 1 for other in base.inputs)
    tensor = _sibling(draw, base) if moveable and below(draw, 2) else _viewed(draw, base)
    if not limits.overlapping_inputs and any(_overlap(tensor, other) for other in base.inputs):
        tensor = _moved(tensor)  # to a storage of its own: what was drawn still makes a valid program
    base.inputs.append(tensor)
    return scope.add_input(tensor, base.fill)


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    return overlap(value_of(a, 0).footprint, value_of(b, 0).footprint) is not Overlap.NO_ALIAS


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same geometry on a new storage of the same size."""
    flat = torch.zeros(tensor.untyped_storage().nbytes() // tensor.itemsize, dtype=tensor.dtype)
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _viewed(draw: Draw, base: Base) -> torch.Tensor:
    """The base under up to two views, as a tensor object of its own."""
    tensor = base.tensor.view(base.tensor.shape)
    for _ in range(2):
        if below(draw, 4) < 2:
            break
        op, args = draw_view(draw, tensor, _COPIES)
        out = resolve(op)(tensor, *args)
        tensor = out if isinstance(out, torch.Tensor) else choice(draw, out)
    return tensor


_COPIES = frozenset({"aten.reshape.default"})


def _sibling(draw: Draw, base: Base) -> torch.Tensor:
    """An earlier input's geometry moved along the storage: beside it, interleaved with it, or over a part of it."""
    model = choice(draw, [tensor for tensor in base.inputs if len(_places(base, tensor)) > 1])
    offset = choice(draw, _places(base, model)[1:])
    return base.tensor.as_strided(model.shape, model.stride(), offset)


def _places(base: Base, model: torch.Tensor) -> list[int]:
    """Storage offsets at which the geometry of an input fits: its own first, then by distance, those behind it first."""
    if not model.numel():
        return []
    extent = sum((n - 1) * step for n, step in zip(model.shape, model.stride(), strict=True))
    own = int(model.storage_offset())
    return sorted(range(base.tensor.numel() - extent), key=lambda offset: (abs(offset - own), offset < own))[:100]
