"""A region as nvFuser needs to know it, the same for all regions that compute the same: the key of the fusion cache.

Values are numbered anew and lie on no particular storage, source lines are left out. Two regions of different programs
whose dtypes, shapes, strides and operations agree have equal bodies, so that they share one compiled fusion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from executor.args import Ref, rename
from executor.program import Call, Value

if TYPE_CHECKING:
    from executor.regions import Region


class Body(msgspec.Struct, frozen=True):
    """What a region computes. The first values are its inputs.

    `early` are pairs (position among the inputs, value) of stores that the kernel should make itself.
    """

    device: str
    inputs: int
    values: tuple[Value, ...]
    calls: tuple[Call, ...]
    outputs: tuple[int, ...]
    early: tuple[tuple[int, int], ...]


def body_of(region: Region) -> Body:
    """The body of a region."""
    new: dict[int, int] = {}
    for v in (*region.inputs, *(r for call in region.calls for r in call.results)):
        new.setdefault(v, len(new))
    known = region.program.values
    homes = (region.program.storages[known[v].storage].device for v in new)
    return Body(
        next((home for home in homes if home != "cpu"), "cpu"),
        len(region.inputs),
        tuple(_placeless(known[v], moved=i < len(region.inputs)) for i, v in enumerate(new)),
        tuple(_renumbered(call, new) for call in region.calls),
        tuple(new[v] for v in region.outputs),
        tuple((region.inputs.index(target), new[value]) for target, value in region.early),
    )


def _placeless(value: Value, *, moved: bool) -> Value:
    """The value without its storage; an input also without its offset, which no kernel depends on."""
    return msgspec.structs.replace(value, storage=0, offset=0 if moved else value.offset)


def _renumbered(call: Call, new: dict[int, int]) -> Call:
    return Call(
        call.op,
        tuple(rename(arg, lambda v: Ref(new[v])) for arg in call.args),
        tuple((name, rename(arg, lambda v: Ref(new[v]))) for name, arg in call.kwargs),
        tuple(new[v] for v in call.results),
    )
