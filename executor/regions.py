"""A partitioned program as a list of steps: regions for the backend, and what the host does between them.

A region takes values as inputs, runs calls, and hands out the values that somebody outside needs. Views are addresses,
so a region hands out only what its calls computed, and whoever needs a view of that makes it anew. The write-backs of a
level come after its region, in program order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from executor.args import List, Ref, refs
from executor.facts import UPDATE_ALIASES, access, facts
from executor.memory_ssa import MemorySSA
from executor.partition import hazards
from executor.program import Call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from executor.partition import Hazard, Partition
    from executor.program import Program


@dataclass(frozen=True, slots=True)
class Region:
    """Calls for a backend to run as one unit.

    `inputs` are values that exist before it, `outputs` values of its calls that are needed after it. `early` are pairs
    (target among the inputs, value of a call) that the backend's kernel stores itself. `aliases` maps each output that
    a backend may hand out as an input's own memory to that input; `detached` are those that must not stay so, and that
    the host copies. `groups` are the inputs that share a storage, by storage.
    """

    level: int
    program: Program
    calls: tuple[Call, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    early: tuple[tuple[int, int], ...] = ()
    aliases: dict[int, int] = field(default_factory=dict)
    detached: frozenset[int] = frozenset()

    @property
    def groups(self) -> dict[int, tuple[int, ...]]:
        """The inputs that share a storage with another input, by storage."""
        found: dict[int, list[int]] = {}
        for value in self.inputs:
            found.setdefault(self.program.values[value].storage, []).append(value)
        return {storage: tuple(members) for storage, members in found.items() if len(members) > 1}


@dataclass(frozen=True, slots=True)
class Barrier:
    """The boundary before region `level` that hazards force; `aliases` are the values that it orders, each once."""

    level: int
    hazards: tuple[Hazard, ...]
    aliases: tuple[int, ...]


Step = Region | Barrier | Call


class Layout:
    """Puts the calls of a partition in the order in which they run."""

    def __init__(self, found: Partition, memory: MemorySSA) -> None:
        self.found, self.memory, self.program = found, memory, found.program
        self.steps: list[Step] = []
        self.made = set(self.program.inputs).union(self.program.constants)
        self.home = {i: level for i, (level, fused) in enumerate(zip(found.levels, found.fused, strict=True)) if fused}
        self._needed = self._needed_outside()
        self._barriers = barriers(found, memory)

    def run(self) -> list[Step]:
        """All steps."""
        calls = self.program.calls
        by_level: dict[int, tuple[list[int], list[int]]] = {}
        for i, level in enumerate(self.found.levels):
            if level is not None:
                by_level.setdefault(level, ([], []))[0 if self.found.fused[i] else 1].append(i)
        for level in sorted(by_level):
            fused, host = by_level[level]
            if level in self._barriers:
                self._need(self._barriers[level].aliases)
                self.steps.append(self._barriers[level])
            if fused:
                self._region(level, fused, host)
            for i in host:
                if i not in self.found.early:
                    self._need(calls[i].operands)
                    self.steps.append(calls[i])
                    self.made.update(calls[i].results)
        self._need(refs(self.program.outputs))
        return _without_detours(self.program, self.steps)

    def _region(self, level: int, fused: list[int], host: list[int]) -> None:
        calls: list[Call] = []
        inputs: dict[int, None] = {}
        inside: set[int] = set()
        for i in fused:
            call = self.program.calls[i]
            for v in call.operands:
                self._bring_in(v, level, calls, inputs, inside)
            calls.append(call)
            inside.update(call.results)
        early = []
        for i in host:
            if i in self.found.early:
                target, value = self.program.calls[i].operands
                inputs[target] = None
                early.append((target, value))
        self._need(inputs)
        outputs = tuple(r for i in fused for r in self.program.calls[i].results if r in self._needed)
        sources = self._sources(calls, inputs, early)
        aliases = {v: sources[v][0] for v in outputs if v in sources}
        detached = frozenset(v for v in aliases if any(self._must_detach(v, source, level) for source in sources[v]))
        self.steps.append(
            Region(level, self.program, tuple(calls), tuple(inputs), outputs, tuple(early), aliases, detached)
        )
        self.made.update(outputs)

    def _bring_in(self, v: int, level: int, calls: list[Call], inputs: dict[int, None], inside: set[int]) -> None:
        """Makes an operand available in a region: as an input, or as a view of what the region computes."""
        if v in inside or v in inputs:
            return
        owner = self.memory.owner.get(self.program.values[v].storage)
        if owner is None or self.home.get(owner) != level:
            inputs[v] = None
            return
        view = self.program.calls[self.memory.maker[v]]
        for base in view.operands:
            self._bring_in(base, level, calls, inputs, inside)
        calls.append(view)
        inside.update(view.results)

    def _need(self, values: Iterable[int]) -> None:
        """Has the host make the addresses of these values, where they aren't there yet."""
        for v in values:
            if v in self.made:
                continue
            call = self.program.calls[self.memory.maker[v]]
            self._need(call.operands)
            self.steps.append(call)
            self.made.update(call.results)

    def _needed_outside(self) -> set[int]:
        """The values that the host has to have: for its calls, as inputs of other regions, as outputs."""
        found: set[int] = set()
        wanted = list(refs(self.program.outputs))
        for i, call in enumerate(self.program.calls):
            if self.memory.accesses[i].address:
                continue
            level = self.found.levels[i] if i in self.found.early else self.home.get(i)
            wanted += [v for v in call.operands if level is None or self._level_of(v) != level]
        while wanted:
            v = wanted.pop()
            if v in found:
                continue
            found.add(v)
            maker = self.memory.maker.get(v)
            if maker is not None and self.memory.accesses[maker].address:
                wanted += self.program.calls[maker].operands
        return found

    def _level_of(self, v: int) -> int | None:
        owner = self.memory.owner.get(self.program.values[v].storage)
        return None if owner is None else self.home.get(owner)

    def _sources(
        self, calls: list[Call], inputs: dict[int, None], early: list[tuple[int, int]]
    ) -> dict[int, tuple[int, ...]]:
        """The inputs as whose memory a backend may hand out a value, the likeliest first.

        They are those from which moving elements alone leads to it, through a value that the kernel stores itself too:
        that one is its target.
        """
        stored = {value: target for target, value in early}
        found: dict[int, tuple[int, ...]] = {v: (v,) for v in inputs}
        for call in calls:
            operands = call.operands
            if operands and operands[0] in found and self._only_moves(call, operands[0]):
                found.update(dict.fromkeys(call.results, found[operands[0]]))
            for v in call.results:
                if v in stored:
                    found[v] = (stored[v], *found.get(v, ()))
        return found

    def _only_moves(self, call: Call, operand: int) -> bool:
        """Whether the results hold the operand's elements as they are, in some arrangement that a view can make."""
        values, known = self.program.values, facts(call.op)
        a = values[operand]
        kept = all((a.dtype, a.conj, a.neg) == (b.dtype, b.conj, b.neg) for b in (values[r] for r in call.results))
        return kept and (known.move or (known.views and call.op != "aten.as_strided.default"))

    def _must_detach(self, v: int, source: int, level: int) -> bool:
        """Whether it would show if this output were that input's memory."""
        homes = (self.program.values[v].storage, self.program.values[source].storage)
        if homes[0] in self.memory.returned or homes[0] in self.memory.memory:
            return True
        return any(
            self.program.values[w].storage == homes[1]
            for i, what in enumerate(self.memory.accesses)
            if what.writes and (self.found.levels[i] or 0) >= level
            for w in what.writes
        )


def _without_detours(program: Program, steps: list[Step]) -> list[Step]:
    """The steps without the copies of memory that the host makes only to store them next, elsewhere: stored from there."""
    found: list[Step] = []
    last: int | None = None  # where the last step is that is no address, if it is a copy of memory
    for step in steps:
        if isinstance(step, Call) and access(program.values, step).address:
            found.append(step)
            continue
        copied = found[last] if last is not None else None
        last = None
        if isinstance(step, Call) and isinstance(copied, Call) and _only_stores(program, step, copied, steps):
            found.remove(copied)
            found.append(Call(step.op, (step.args[0], copied.args[0]), (), step.results, step.source))
            continue
        if isinstance(step, Call) and step.op == "aten.clone.default":
            last = len(found)
        found.append(step)
    return found


def _only_stores(program: Program, store: Call, copied: Call, steps: list[Step]) -> bool:
    """Whether the call only stores a copy that nobody else needs, in other memory than that of which it is one."""
    if store.op != "aten.copy_.default" or store.operands[-1:] != copied.results:
        return False
    uses = [*refs(program.outputs), *(v for step in steps for v in _uses(step))]
    source, target = (program.values[call.operands[0]] for call in (copied, store))
    alike = (source.dtype, source.shape) == (target.dtype, target.shape)
    return alike and uses.count(copied.results[0]) == 1 and not source.meets(target)


def _uses(step: Step) -> Iterable[int]:
    return step.inputs if isinstance(step, Region) else step.aliases if isinstance(step, Barrier) else step.operands


def barriers(found: Partition, memory: MemorySSA) -> dict[int, Barrier]:
    """The boundaries that hazards force, by the level that they precede."""
    by_level: dict[int, list[Hazard]] = {}
    for hazard in hazards(found, memory):
        level = found.levels[hazard.reader]
        assert level is not None, "a fused call has a level"
        by_level.setdefault(level, []).append(hazard)
    return {
        level: Barrier(level, tuple(forced), tuple(dict.fromkeys(v for h in forced for v in (h.written, h.read))))
        for level, forced in by_level.items()
    }


def linear(program: Program, steps: list[Step]) -> tuple[Program, tuple[tuple[int, str], ...]]:
    """The steps as a program again, with comments on its calls: (the number of the call before which it stands, text).

    Regions are written out; a barrier is the no-op `aliasfuzz.update_aliases`.
    """
    calls: list[Call] = []
    marks: list[tuple[int, str]] = []
    made = {*program.inputs, *program.constants}
    inside = False
    for step in steps:
        if isinstance(step, Region):
            marks.append((len(calls), f"region {step.level}{_groups(step)}"))
        elif inside:
            marks.append((len(calls), "on the host"))
        inside = isinstance(step, Region)
        for call in _written_out(step):
            if not call.results or not made.issuperset(call.results) or facts(call.op).written:
                calls.append(call)
                made.update(call.results)
    return msgspec.structs.replace(program, calls=tuple(calls)), tuple(marks)


def _groups(region: Region) -> str:
    groups = [f"{len(members)} inputs on storage {storage}" for storage, members in region.groups.items()]
    return f" (alias groups: {', '.join(groups)})" if groups else ""


def _written_out(step: Step) -> Iterable[Call]:
    if isinstance(step, Region):
        stores = [Call("aten.copy_.default", (Ref(target), Ref(value)), (), (target,)) for target, value in step.early]
        return (*step.calls, *stores)
    if isinstance(step, Barrier):
        return (Call(UPDATE_ALIASES, (List(tuple(Ref(v) for v in step.aliases)),)),)
    return (step,)
