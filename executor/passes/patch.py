"""Patching: an element-wise call that reads memory which newer writes have overwritten in parts, without a barrier.

Let `a` hold a known value `s`, but for some parts `p`, where newer writes put `t`. Then `out = op(a, b)` is `op(s, b)` but
for its own parts `p`, which are `op(t, b[p])`: a store into fresh memory, small, and so late that nobody waits for it.

    out = op(s, b)
    patch = op(t, b[p])
    out[p].copy_(patch)

Whoever reads `out` reads partly overwritten memory again: it is patched in turn. So is what `out` is copied to. Stores
into the program's own memory are made when somebody has to read them there, at the end if nobody has to.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from executor.builder import Builder, renamed
from executor.geometry import Overlap
from executor.memory_ssa import MemorySSA, State, footprint
from executor.passes.boxes import box_of, element_wise, restricted, total, turned
from executor.passes.forward import forward
from executor.passes.index_maps import project
from executor.passes.overwritten import Part, Rereads, Seen, merged

if TYPE_CHECKING:
    from collections.abc import Callable

    from executor.memory_ssa import Reach
    from executor.passes.boxes import Box
    from executor.program import Call, Program, Source, Value


class Patch(NamedTuple):
    """A call that can be patched.

    `reads`: the operands that were overwritten in parts. `boxes`: the parts of its result, in the order of their stores.
    `again`: bytes of the result that calls will read which cannot be patched, so that they wait for the parts.
    """

    program: Program
    call: Call
    reads: tuple[Value, ...]
    boxes: tuple[Box, ...]
    again: int

    @property
    def part_bytes(self) -> int:
        """Bytes of all parts of the result."""
        itemsize = self.program.values[self.call.results[0]].itemsize
        return sum(math.prod(box.counts) for box in self.boxes) * itemsize


def patch(program: Program, choose: Callable[[Patch], bool]) -> Program:
    """The same program with those calls patched that can be, and that `choose` wants patched."""
    memory = MemorySSA.of(program)
    if not any(_candidate(memory, i, reach) for (i, _), reach in memory.reaching_writes().items()):
        return program
    found = _Patching(memory, choose)
    done = found.run()
    return forward(done) if found.patched else program


def _candidate(memory: MemorySSA, reader: int, reach: list[Reach]) -> bool:
    if len(reach) < 2 or reach[-1].overlap is Overlap.PARTIAL or memory.accesses[reader].writes:
        return False
    program = memory.program
    known = all(memory.stored(write.call) is not None for write, _ in reach)
    return known and element_wise(program.calls[reader], program.values)


class _Patching:
    """One walk through a program. Each write is known by a number of its own, not by its call's."""

    def __init__(self, memory: MemorySSA, choose: Callable[[Patch], bool]) -> None:
        self.memory, self.program, self.choose = memory, memory.program, choose
        self.builder = Builder(self.program)
        self.values = self.builder.values
        self.state = State(self.values)
        self.stored: dict[int, int] = {}  # what a write put into memory, where that is a value
        self.patched: set[int] = set()  # the storages of patched results
        self._writes = 0
        self._late: dict[int, list[Call]] = {}  # stores that wait, by storage
        self._rereads = Rereads(memory)

    def run(self) -> Program:
        """The rewritten program."""
        for i, call in enumerate(self.program.calls):
            what = self.memory.accesses[i]
            if what.address:
                self.builder.calls.append(call)
            elif not (self._store(i, call) if what.writes else self._patch(i, call)):
                self._keep(i, call)
        for home in list(self._late):
            self._flush(home)
        return self.builder.finish()

    def _keep(self, number: int, call: Call) -> None:
        """Appends a call as it is; whatever it touches in memory is there before."""
        for v in call.operands:
            self._flush(self.values[v].storage)
        self.builder.calls.append(call)
        for v in self.memory.accesses[number].writes:
            self._note(v, None)

    def _flush(self, home: int) -> None:
        self.builder.calls += self._late.pop(home, ())

    def _note(self, target: int, value: int | None) -> None:
        """Records a write, of this value if it is known."""
        self._writes += 1
        self.state.write(self._writes, target)
        if value is not None:
            self.stored[self._writes] = value

    def _write(self, target: int, value: int, box: Box | None, source: Source | None) -> None:
        """The store of a value into memory, or into a box of it; a late one if the memory is the program's own."""
        home = self.values[target].storage
        here = self.builder.calls
        if home not in self.memory.entry:
            self.builder.calls = self._late.setdefault(home, [])
        if box is not None:
            geometry = box.within(self.values[target])
            target = self.builder.as_strided(target, geometry, geometry.offset, source)
        self.builder.copy(target, value, source)
        self.builder.calls = here
        self._note(target, value)

    def _store(self, number: int, call: Call) -> bool:
        """Appends a write-back; one of a patched result as those of what lies below and of the parts."""
        value = self.memory.stored(number)
        if value is None:
            return False
        target = self.memory.accesses[number].writes[0]
        if self.values[value].storage not in self.patched:
            self._write(target, value, None, call.source)
            return True
        seen = self._seen(value)
        lazy = self.values[target].conj or self.values[target].neg
        made = None if seen is None or (lazy and seen.parts) else self._made(value, seen, call.source)
        if made is None:
            return False
        below, parts = made
        self._write(target, below, None, call.source)
        for box, part in parts.items():
            self._write(target, part, box, call.source)
        return True

    def _is_memory(self, value: int) -> bool:
        return self.memory.is_memory(value) or self.values[value].storage in self.patched

    def _seen(self, read: int) -> Seen | None:
        """What a read of memory sees; None if not all of it is known, or parts of it are no boxes."""
        reach = self.state.reaching(read)
        if not reach or reach[-1].overlap is Overlap.PARTIAL:
            return None
        geometry = self.values[read]
        parts: list[Part] = []
        for write, _ in reach[-2::-1]:
            target = self.values[write.value]
            box = box_of(target, geometry)
            if write.call not in self.stored or box is None or footprint(target).self_overlaps:
                return None
            parts.append(Part(box, self.stored[write.call], target))
        under = reach[-1]
        return Seen(self.stored[under.write.call], under, tuple(parts)) if under.write.call in self.stored else None

    def _made(self, read: int, seen: Seen, source: Source | None) -> tuple[int, dict[Box, int]] | None:
        """Appends views that give what lies below the parts of a read, and each part as a box."""
        write, how = seen.under
        geometry = self.values[read]
        below = project(self.builder, seen.stored, geometry, self.values[write.value], how, source)
        boxes: dict[Box, int] = {}
        for part in seen.parts:
            value = turned(self.builder, part.stored, part.box.within(geometry), part.target, source)
            if value is None:
                return None
            boxes[part.box] = value
        return None if below is None else (below, boxes)

    def _patch(self, number: int, call: Call) -> bool:
        """Appends a call patched; False if it is not partly overwritten, cannot be patched, or should not be."""
        reads = [v for v in self.memory.accesses[number].reads if self._is_memory(v)]
        if not reads or not element_wise(call, self.values):
            return False
        found = {v: self._seen(v) for v in reads}
        seen = {v: what for v, what in found.items() if what is not None}
        result = call.results[0]
        parts = {v: what for v, what in seen.items() if what.parts}
        if not parts or any(self.values[v].shape != self.values[result].shape for v in parts):
            return False
        boxes = merged(list(parts.values()))
        fresh = self.memory.owner.get(self.values[result].storage) == number
        if boxes is None or not fresh or self._is_memory(result) or not total(call, self.values):
            return False
        again = self._rereads.of(number)
        if not self.choose(Patch(self.program, call, tuple(self.values[v] for v in parts), boxes, again)):
            return False
        for v in call.operands:
            if v not in seen:
                self._flush(self.values[v].storage)
        start = len(self.builder.calls)
        if self._lower(call, seen, boxes):
            return True
        del self.builder.calls[start:]
        return False

    def _lower(self, call: Call, seen: dict[int, Seen], boxes: tuple[Box, ...]) -> bool:
        builder, result, source = self.builder, call.results[0], call.source
        made = {v: self._made(v, what, source) for v, what in seen.items()}
        below = {v: what[0] for v, what in made.items() if what is not None}
        start = len(builder.calls)
        whole = builder.twin(result)
        builder.replace_operands(msgspec.structs.replace(call, results=(whole,)), below)
        if len(below) < len(made) or any(v in below for late in builder.calls[start:] for v in late.operands):
            return False
        patches: dict[Box, int] = {}
        for box in boxes:
            new: dict[int, int] = {}
            for v in dict.fromkeys(call.operands):
                parts = made.get(v)
                own = None if parts is None else parts[1].get(box)
                new[v] = own if own is not None else self._beside(below.get(v, v), box, source)
            patches[box] = self._computed(call, new)
            geometry = self.values[patches[box]]
            if geometry.shape != box.counts or geometry.dtype != self.values[result].dtype:
                return False
        builder.empty(result, source)
        self.patched.add(self.values[result].storage)
        self._write(result, whole, None, source)
        for box, value in patches.items():
            self._write(result, value, box, source)
        return True

    def _beside(self, value: int, box: Box, source: Source | None) -> int:
        """An operand that was not overwritten at a box of the result: its own part there."""
        return restricted(self.builder, value, box.under(self.values[value].shape), source)

    def _computed(self, call: Call, new: dict[int, int]) -> int:
        """Appends the call on other operands, as a new value."""
        other = renamed(call, new)
        return self.builder.emit(call.op, *other.args, kwargs=other.kwargs, source=call.source)
