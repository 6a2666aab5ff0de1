"""Faults in memory SSA: in what calls read and write, and in which writes a read sees."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.faults.base import Fault, Patches
from executor import memory_ssa
from executor.facts import Access, access, facts
from executor.geometry import Overlap
from executor.memory_ssa import MemorySSA, Reach, State
from executor.program import Call, Value

_reaching = State.reaching


def _same_shape_is_identical(state: State, value: int) -> list[Reach]:
    found = _reaching(state, value)
    geometry = state.values[value]
    index = state._index.get(geometry.storage)
    for write in index.meeting(0, 1 << 60) if index is not None and not found else ():
        other = state.values[write.value]
        if (other.shape, other.dtype) == (geometry.shape, geometry.dtype):
            return [Reach(write, Overlap.MUST_ALIAS)]
    return found


def _newest_missed(state: State, value: int) -> list[Reach]:
    found = _reaching(state, value)
    return found[1:] or found


def _all_met_forgotten(state: State, value: int) -> None:
    for older in state.touching(value):
        state._index[state.values[value].storage].remove(older)


def _accesses(changed: Callable[[Access, Call], Access]) -> Patches:
    def found(values: tuple[Value, ...] | list[Value], call: Call) -> Access:
        return changed(access(values, call), call)

    return ((memory_ssa, "access", found),)


def _first_target(what: Access, _: Call) -> Access:
    return what._replace(writes=what.writes[:1])


def _read_by_metadata(what: Access, call: Call) -> Access:
    """Flips look at where elements lie: they are taken for something that does not read them."""
    return what._replace(reads=()) if facts(call.op).move or call.op == "aten.flip.default" else what


def _changes_at_entry_only(memory: MemorySSA, value: int) -> bool:
    return memory.program.values[value].storage in memory.entry


FAULTS: dict[str, Fault] = {
    "disjoint taken for identical": Fault(
        "A read that no write reaches sees a write to another part of its storage, if that has its shape.",
        ((State, "reaching", _same_shape_is_identical),),
    ),
    "a reaching write missed": Fault(
        "Of several writes that a read sees, the newest is overlooked.",
        ((State, "reaching", _newest_missed),),
    ),
    "oldest write taken for the newest": Fault(
        "Of several writes that a read sees, the oldest counts as the newest.",
        ((State, "reaching", lambda state, value: _reaching(state, value)[::-1]),),
    ),
    "a write hides what it covers in part": Fault(
        "After a write, older ones that it overlaps are forgotten, though some of their elements are still there.",
        ((State, "forget", _all_met_forgotten),),
    ),
    "only the first of several targets written": Fault(
        "A call that writes a list of tensors is taken to write the first one.",
        _accesses(_first_target),
    ),
    "copies and casts taken not to read": Fault(
        "What only moves elements is taken to look at its operand's layout alone, as `empty_like` does.",
        _accesses(_read_by_metadata),
    ),
    "memory made by the program never changes": Fault(
        "Only inputs are tracked: a write to an intermediate is not seen by reads of its other views.",
        ((MemorySSA, "is_memory", _changes_at_entry_only),),
    ),
}
