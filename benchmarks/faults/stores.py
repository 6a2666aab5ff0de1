"""Faults in write-backs: in which stores are dead, and in which may be the allocation of their memory."""

from __future__ import annotations

import copy

import msgspec

from benchmarks.faults.base import Fault
from benchmarks.faults.values import _stale_stores
from executor import pipeline
from executor.args import refs
from executor.geometry import Footprint, Overlap, overlap
from executor.memory_ssa import MemorySSA
from executor.passes import cleanup, coalesce, writeback
from executor.passes.writeback import Remainder
from executor.program import Program

_is_dead, _dead_calls = writeback._is_dead, cleanup.dead_calls


def _slices_are_dead(memory: MemorySSA, store: int) -> bool:
    target = memory.program.values[memory.accesses[store].writes[0]]
    return _is_dead(memory, store) or bool(target.offset)


def _unreturned_is_dead(memory: MemorySSA, store: int) -> bool:
    believed = copy.copy(memory)
    believed.entry = set()
    return _is_dead(believed, store)


def _put_back(memory: MemorySSA, store: int) -> bool:
    values, stored = memory.program.values, memory.stored(store)
    maker = memory.maker.get(stored, -1) if stored is not None else -1
    if maker < 0 or memory.program.calls[maker].op != "aten.clone.default":
        return False
    return values[memory.program.calls[maker].operands[0]] == values[memory.accesses[store].writes[0]]


def _all_subtracted(left: Remainder, other: Footprint) -> None:
    left.empty = left.empty or overlap(left.whole, other) is not Overlap.NO_ALIAS


def _unused_first(program: Program) -> Program:
    used = {*refs(program.outputs), *(v for call in program.calls for v in call.operands)}
    calls = tuple(call for call in program.calls if len(call.results) < 2 or call.results[0] in used)
    return _dead_calls(msgspec.structs.replace(program, calls=calls))


FAULTS: dict[str, Fault] = {
    "write-back forgotten": Fault(
        "A store to a part that begins behind its storage's start is taken to be dead.",
        ((writeback, "_is_dead", _slices_are_dead),),
    ),
    "write-back of a stale value": Fault(
        "Of two stores to one tensor, the second stores what the first one did.",
        ((pipeline, "out_of_place", _stale_stores),),
    ),
    "a store dead for a later one that covers a part": Fault(
        "A store is taken to be overwritten by any later one that overlaps it.",
        ((Remainder, "subtract", _all_subtracted),),
    ),
    "a store dead though it is read before the next": Fault(
        "A store is dead if another one follows, whoever reads it in between.",
        ((Remainder, "meets", lambda *_: False),),
        "barrier",
    ),
    "inputs that are not returned need no write-back": Fault(
        "A mutated input is only written back if an output lies on it.",
        ((writeback, "_is_dead", _unreturned_is_dead),),
    ),
    "a value put back taken for no change": Fault(
        "`x.copy_(k)`, k a copy of x, is dropped, though x was written in between.",
        ((writeback, "_changes_nothing", _put_back),),
    ),
    "a call dead for its first result": Fault(
        "A call that returns several tensors is dropped if nobody uses the first.",
        ((pipeline, "dead_calls", _unused_first),),
    ),
    "a value that is still needed becomes memory": Fault(
        "A stored value is computed right into fresh memory, which is written later, though others need the value as it is.",
        ((coalesce, "_may_change", lambda *_: True),),
    ),
    "a later store taken for the allocation": Fault(
        "A store to fresh memory becomes its allocation, though others have read or written it before.",
        ((coalesce, "_touches", lambda *_: False),),
    ),
}
