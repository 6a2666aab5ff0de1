"""Where a wrong element comes from: the place that a mismatch names, the calls that reach it, the accesses that broke."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from executor.args import Arg, Dict, List, Ref, Tuple, children
from executor.geometry import Overlap, overlap
from executor.program import Program, Value, contiguous_strides, itemsize
from executor.schema import accesses
from fuzz.hazards import Hazard, operator_class, worst
from fuzz.oracle import Mismatch
from fuzz.subjects import mixed_storages

_PLACE = re.compile(r"(output|storage)(?: (\d+))?(?:\[([\d, ]+)\])?")


# Least telling first.
ONE_SHAPE = "disjoint of one shape"
RELATIONS = ("none", "disjoint", ONE_SHAPE, "identical", "overlapping", "overlapping with strides")


class Accused(NamedTuple):
    """The accesses whose order or overlap broke, in order; all empty where none are concerned.

    They are two, or a read with several writes that reach it.

    `accesses` are the classes of what makes them, `statements` the indices of these calls in the program (the number of
    calls for its return), and `relation` is how the two lie.
    """

    accesses: tuple[str, ...] = ()
    relation: str = "none"
    statements: tuple[int, ...] = ()


def accused(program: Program, mismatch: Mismatch | None) -> Accused:
    """The hardest hazard of those that concern the first wrong element, or of all if it is not known.

    Where none does, the last write that reaches the element, and the caller, who looks at it.
    """
    place = wrong_place(program, mismatch) if mismatch is not None else None
    reaching = makers(program, place) if place is not None else list(range(len(program.calls)))

    def concerned(hazard: Hazard) -> bool:
        if hazard.later.call == len(program.calls):
            return place is None or program.values[hazard.later.value].meets(place)
        return hazard.earlier.call in reaching or hazard.later.call in reaching

    found = worst(program, concerned)
    if found is not None:
        statements = _statements(program, found)
        classes = tuple(operator_class(program, k) for k in statements)
        return Accused(classes, laid(program, found), statements)
    if place is None or not reaching or mismatch is None or mismatch.symptom not in ("value", "memory"):
        return Accused()
    return Accused((operator_class(program, reaching[0]), "caller"), "identical", (reaching[0],))


def _statements(program: Program, hazard: Hazard) -> tuple[int, ...]:
    """The two calls; for a read, all those before it whose writes reach what it reads."""
    calls = {hazard.earlier.call, hazard.later.call}
    if hazard.kind == "read-after-write":
        read = program.values[hazard.later.value]
        for k, call in enumerate(program.calls[: hazard.later.call]):
            if any(read.meets(program.values[i]) for i in accesses(program, call).writes):
                calls.add(k)
    return tuple(sorted(calls))


def laid(program: Program, hazard: Hazard) -> str:
    """How the two lie, with what mistakes about it depend on: whether disjoint ones look alike, or one is not dense."""
    one, other = program.values[hazard.earlier.value], program.values[hazard.later.value]
    if hazard.relation == "disjoint":
        return ONE_SHAPE if (one.shape, one.dtype) == (other.shape, other.dtype) else "disjoint"
    if hazard.relation in ("same", "must"):
        return "identical"
    plain = all(value.strides == contiguous_strides(value.shape) for value in (one, other))
    return "overlapping" if plain else "overlapping with strides"


def wrong_place(program: Program, mismatch: Mismatch) -> Value | None:
    """The element, or the tensor, that a mismatch says is wrong; None if it names none."""
    place = _PLACE.fullmatch(mismatch.where)
    if place is None:
        return None
    index = tuple(int(i) for i in place[3].split(", ")) if place[3] else ()
    number = int(place[2] or 0)
    return _stored(program, number, index) if place[1] == "storage" else _returned(program, number, index)


def _returned(program: Program, number: int, index: tuple[int, ...]) -> Value | None:
    leaf = list(_leaves(program.outputs))[number]
    if not isinstance(leaf, Ref):
        return None
    value = program.values[leaf.index]
    if len(index) != len(value.shape):
        return value
    offset = value.offset + sum(i * step for i, step in zip(index, value.strides, strict=True))
    return msgspec.structs.replace(value, shape=(), strides=(), offset=offset)


def _stored(program: Program, number: int, index: tuple[int, ...]) -> Value:
    entry = program.entry
    home = sorted({program.values[i].storage for i in program.inputs})[number]
    fill = entry.storages[number].fill
    size = itemsize(fill.dtype) if fill is not None and number not in mixed_storages(program, entry) else 1
    start = index[0] * size if index else 0
    return Value(home, "uint8", (size if index else entry.storages[number].nbytes,), (1,), start)


def _leaves(tree: Arg) -> Iterator[Arg]:
    if isinstance(tree, List | Tuple | Dict):
        for child in children(tree):
            yield from _leaves(child)
    else:
        yield tree


def makers(program: Program, wanted: Value) -> list[int]:
    """The calls on which the elements of a value depend after the last call, the latest first."""
    live, found = [wanted], []
    for k in range(len(program.calls) - 1, -1, -1):
        call = program.calls[k]
        reads, writes = accesses(program, call)
        homes = {program.values[i].storage for i in call.operands}
        made = [*writes, *(i for i in call.results if program.values[i].storage not in homes)]
        if any(value.meets(program.values[i]) for value in live for i in made):
            found.append(k)
            live = [value for value in live if not any(_covers(program.values[i], value) for i in made)]
            live += [program.values[i] for i in reads]
    return found


def _covers(write: Value, value: Value) -> bool:
    inside = (Overlap.MUST_ALIAS, Overlap.CONTAINED)
    return write.storage == value.storage and overlap(value.footprint, write.footprint) in inside
