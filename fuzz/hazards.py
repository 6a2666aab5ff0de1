"""Which accesses of a program depend on each other through memory, how they lie, and what makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

import torch

from executor.args import refs
from executor.facts import COPIES, facts
from executor.geometry import Overlap, overlap
from executor.program import Call, Program, Value
from executor.schema import accesses, resolve

KINDS = ("none", "write-after-write", "write-after-read", "read-after-write")  # least telling first
RELATIONS = ("none", "same", "disjoint", "must", "contained", "partial")

_NAMES = {Overlap.NO_ALIAS: "disjoint", Overlap.MUST_ALIAS: "must", Overlap.CONTAINED: "contained",
          Overlap.PARTIAL: "partial"}  # fmt: skip
_INDEXED = ("index_", "scatter", "masked_", "put")


class Access(NamedTuple):
    """One value read or written by the call with this index; the outputs are read by a call after the last."""

    call: int
    value: int
    writes: bool


class Hazard(NamedTuple):
    """Two accesses to one storage, the earlier first, at least one of them a write."""

    kind: str
    relation: str
    earlier: Access
    later: Access

    @property
    def hardness(self) -> tuple[int, int]:
        """How hard it is on a compiler: how the accesses lie counts more than their order."""
        return RELATIONS.index(self.relation), KINDS.index(self.kind)


def trail(program: Program) -> Iterator[Access]:
    """All accesses in program order; within a call the reads come first."""
    for k, call in enumerate(program.calls):
        reads, writes = accesses(program, call)
        for value in reads:
            yield Access(k, value, writes=False)
        for value in writes:
            yield Access(k, value, writes=True)
    for value in dict.fromkeys(refs(program.outputs)):
        yield Access(len(program.calls), value, writes=False)


def hazards(program: Program) -> Iterator[Hazard]:
    """Every pair of accesses whose order, or whose lying apart, a compiler has to know."""
    by_storage: dict[int, list[Access]] = {}
    for access in trail(program):
        by_storage.setdefault(program.values[access.value].storage, []).append(access)
    for group in by_storage.values():
        for earlier, later in combinations(group, 2):
            if earlier.call != later.call and (earlier.writes or later.writes):
                yield Hazard(_kind(earlier, later), _relation(program, earlier, later), earlier, later)


def _kind(earlier: Access, later: Access) -> str:
    if earlier.writes:
        return "write-after-write" if later.writes else "read-after-write"
    return "write-after-read"


def _relation(program: Program, earlier: Access, later: Access) -> str:
    if earlier.value == later.value:
        return "same"
    read, write = (earlier, later) if not earlier.writes else (later, earlier)
    return relation(program.values[read.value], program.values[write.value])


def relation(read: Value, write: Value) -> str:
    """How a read lies to a write, in words; "none" for two storages."""
    return _NAMES[overlap(read.footprint, write.footprint)] if read.storage == write.storage else "none"


def worst(program: Program, concerned: Callable[[Hazard], bool] = lambda hazard: True) -> Hazard | None:
    """The hazard that is hardest on a compiler, of those that are concerned; None if there is none."""
    return max(filter(concerned, hazards(program)), key=lambda hazard: hazard.hardness, default=None)


def operator_class(program: Program, call: int) -> str:
    """What kind of call accesses memory, in a word that does not depend on the very operator; "output" after the last."""
    if call == len(program.calls):
        return "output"
    found = program.calls[call]
    return _writing(found) if facts(found.op).written else _reading(program, found)


def _writing(call: Call) -> str:
    if call.op in COPIES:
        return "copy"
    return "indexed write" if call.op.split(".")[1].startswith(_INDEXED) else "in-place"


def _reading(program: Program, call: Call) -> str:
    about, tags = facts(call.op), resolve(call.op).tags
    homes = {program.values[i].storage for i in call.operands}
    if about.metadata or not call.operands:
        return "factory"
    if about.views and any(program.values[i].storage in homes for i in call.results):
        return "view"
    if about.move:
        return "copy"
    if torch.Tag.reduction in tags:
        return "reduction"
    return "pointwise" if torch.Tag.pointwise in tags else "other"
