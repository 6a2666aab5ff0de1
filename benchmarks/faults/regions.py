"""Faults in the partition, in regions, and in early write-backs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.faults.base import UNVERIFIED, Fault
from executor import early, elements, partition, pipeline
from executor.args import refs
from executor.memory_ssa import MemorySSA
from executor.program import Call
from executor.regions import Layout, Step

_dependences = partition.dependences
Dependences = Callable[[MemorySSA], Iterator[set[int]]]


def _no_hazards(memory: MemorySSA) -> Iterator[set[int]]:
    for needed, what in zip(_dependences(memory), memory.accesses, strict=True):
        yield {i for i in needed if what.writes or not memory.accesses[i].writes}


def _without(dropped: Callable[[bool, bool], bool]) -> Dependences:
    """Without the dependences through memory of which this holds: whether the earlier and the later call write."""

    def dependences(memory: MemorySSA) -> Iterator[set[int]]:
        for i, needed in enumerate(_dependences(memory)):
            later = bool(memory.accesses[i].writes)
            data = _data(memory, i)
            yield {j for j in needed if j in data or not dropped(bool(memory.accesses[j].writes), later)}

    return dependences


def _data(memory: MemorySSA, number: int) -> set[int | None]:
    """The calls that make what a call uses."""
    values, call = memory.program.values, memory.program.calls[number]
    return {memory.owner.get(values[v].storage) for v in call.operands}


def _views_wait_for_nothing(memory: MemorySSA) -> Iterator[set[int]]:
    for i, needed in enumerate(_dependences(memory)):
        made = {memory.maker.get(v) for v in memory.program.calls[i].operands}
        yield {j for j in needed if j in made or memory.accesses[j].writes or j not in _data(memory, i)}


def _named_outside(layout: Layout) -> set[int]:
    """`_needed_outside` without what views that are needed are views of."""
    found = set(refs(layout.program.outputs))
    for i, call in enumerate(layout.program.calls):
        if not layout.memory.accesses[i].address:
            level = layout.home.get(i)
            found.update(v for v in call.operands if level is None or layout._level_of(v) != level)
    return found


class _Backwards(Layout):
    """Makes the write-backs of a level from the last to the first."""

    def run(self) -> list[Step]:
        stores, steps = list[Step](), list[Step]()
        for step in super().run():
            if isinstance(step, Call) and step.op == "aten.copy_.default":
                stores.insert(0, step)
            else:
                steps += [*stores, step]
                stores = []
        return steps + stores


FAULTS: dict[str, Fault] = {
    "barrier dropped": Fault(
        "Reads do not wait for writes to the memory that they read.",
        ((partition, "dependences", _no_hazards), *UNVERIFIED),
        "barrier",
    ),
    "a write does not wait for reads": Fault(
        "A write-back may come before reads of what was there.",
        ((partition, "dependences", _without(lambda earlier, later: later and not earlier)), *UNVERIFIED),
        "barrier",
    ),
    "a write does not wait for writes": Fault(
        "Of two write-backs to the same memory, either may be the last.",
        ((partition, "dependences", _without(lambda earlier, later: later and earlier)), *UNVERIFIED),
        "barrier",
    ),
    "ordered by data alone": Fault(
        "Calls are ordered by who makes what they use, and not at all by memory. Thunder's `dataflow` fusion does so.",
        ((partition, "dependences", _without(lambda _, __: True)), *UNVERIFIED),
        "barrier",
    ),
    "users of views wait for nothing": Fault(
        "A call waits for what makes its operands, but not for what these are views of.",
        ((partition, "dependences", _views_wait_for_nothing), *UNVERIFIED),
        "barrier",
    ),
    "what only a view is taken of not handed out": Fault(
        "A region keeps a value to itself of which others need just a view.",
        ((Layout, "_needed_outside", _named_outside),),
    ),
    "write-backs in reverse": Fault(
        "The host makes the write-backs after a region in any order.",
        ((pipeline, "Layout", _Backwards),),
    ),
    "an input's memory handed out": Fault(
        "What the fuser hands out as an input's own memory is not copied, though it would show.",
        ((Layout, "_must_detach", lambda *_: False),),
    ),
    "early write-back beside reads of other positions": Fault(
        "A kernel overwrites an element that another thread has still to read: shifts, flips, transpositions.",
        ((early, "_other_positions", lambda *_: None),),
    ),
    "early write-back beside other inputs": Fault(
        "A kernel overwrites what it reads through another input.",
        ((early, "_other_inputs", lambda *_: None),),
    ),
    "early write-back before other loads": Fault(
        "A kernel loads its target for another output after it has stored it.",
        ((early, "_late_loads", lambda *_: set()),),
    ),
    "early write-back before the host": Fault(
        "A kernel overwrites what a call on the host, or another early write-back, has still to see.",
        ((early, "_seen_by_others", lambda *_: None),),
    ),
    "index maps taken for identities": Fault(
        "Where shapes do not tell, each element is taken to depend on the target's element at its own position.",
        ((early, "at_own_positions", lambda *_: True),),
    ),
    "reductions taken for pointwise": Fault(
        "Threads that wait for a reduction are taken to know already what they read of an early write-back's target.",
        ((early, "crosses", lambda *_: False), (elements, "crosses", lambda *_: False)),
    ),
}
