"""Which accesses of a program depend on each other through memory, and how they lie: what a bug's signature is made of."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from corpus.signature import Signature
from executor.args import refs
from executor.geometry import Overlap, overlap
from executor.program import Program, Value
from executor.schema import accesses

KINDS = ("none", "write-after-write", "write-after-read", "read-after-write")  # least telling first
RELATIONS = ("none", "disjoint", "same", "must", "contained", "partial")

_NAMES = {Overlap.NO_ALIAS: "disjoint", Overlap.MUST_ALIAS: "must", Overlap.CONTAINED: "contained",
          Overlap.PARTIAL: "partial"}  # fmt: skip


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


def worst(program: Program) -> tuple[str, str]:
    """Kind and relation of the hazard that is hardest on a compiler: by relation first, then by kind."""
    found = max(hazards(program), key=lambda h: (RELATIONS.index(h.relation), KINDS.index(h.kind)), default=None)
    return (found.kind, found.relation) if found else ("none", "none")


def inputs_relation(program: Program) -> str:
    """The hardest relation between two of the inputs; "twins" for one tensor passed twice and nothing harder."""
    pairs = list(combinations([program.values[i] for i in program.inputs], 2))
    found = [relation(a, b) for a, b in pairs] + [relation(b, a) for a, b in pairs]
    hardest = max(found, key=RELATIONS.index, default="none")
    return "twins" if program.twins and hardest == "must" else hardest


def operators(program: Program) -> tuple[str, ...]:
    """The operators that a program calls, sorted, without namespace and overload."""
    return tuple(sorted({call.op.split(".")[1] for call in program.calls}))


def sign(program: Program | None, target: str, symptom: str, detail: str = "") -> Signature:
    """The signature of a failure; without a program it says only what happened to whom."""
    if program is None:
        return Signature(target, symptom, detail)
    dependence, how = worst(program)
    return Signature(target, symptom, detail, dependence, how, inputs_relation(program), operators(program))
