"""Which region each call belongs to: the fewest regions, by longest path.

A call that a backend takes is *fused*; the regions are the fused calls of one level. All others are *host* calls: what
has no out-of-place form or isn't supported, and the write-backs (`aten.copy_` of a value into memory), which the host
makes after a region's kernels. Calls that only compute addresses belong nowhere and cost nothing.

Level L is region L and then the host calls of level L in program order; host calls that wait for nothing have level -1.
So a fused call that must see what a host call did has to be one level higher; every other order (a host call after
what it needs, a write after a read of what it overwrites, a write after a write) holds within one level. The longest
path through these constraints is the least level of each call, and no partition has fewer regions than it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from executor.memory_ssa import MemorySSA, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from executor.program import Call, Program


class Hazard(NamedTuple):
    """A read of memory by call `reader` that must see what call `writer` wrote there."""

    writer: int
    reader: int
    written: int
    read: int


class Partition(NamedTuple):
    """A program and, for each call, its level and whether it is fused. Address calls have the level None.

    `early`: the write-backs that the region's kernel itself makes.
    """

    program: Program
    levels: tuple[int | None, ...]
    fused: tuple[bool, ...]
    early: frozenset[int] = frozenset()

    @property
    def regions(self) -> int:
        """The number of regions."""
        return len({level for level, fused in zip(self.levels, self.fused, strict=True) if fused})


def fusible(memory: MemorySSA, supports: Callable[[Call], bool]) -> list[bool]:
    """For each call whether it can be in a region: it writes nothing, computes something, and the backend takes it."""
    return [
        not (what.writes or what.address) and supports(call)
        for call, what in zip(memory.program.calls, memory.accesses, strict=True)
    ]


def partition(program: Program, supports: Callable[[Call], bool], memory: MemorySSA | None = None) -> Partition:
    """The partition with the fewest regions."""
    memory = memory or MemorySSA.of(program)
    fused = fusible(memory, supports)
    levels: list[int | None] = []
    for i, needed in enumerate(dependences(memory)):
        if memory.accesses[i].address:
            levels.append(None)
            continue
        level = 0 if fused[i] else -1
        for j in needed:
            before = levels[j]
            if before is not None:
                level = max(level, before + (fused[i] and not fused[j]))
        levels.append(level)
    return Partition(program, tuple(levels), tuple(fused))


def dependences(memory: MemorySSA) -> Iterator[set[int]]:
    """For each call, the earlier calls that it must not overtake: through data and through memory, in any direction."""
    values = memory.program.values
    writes, reads = State(values), State(values)
    for i, (call, what) in enumerate(zip(memory.program.calls, memory.accesses, strict=True)):
        needed = {memory.owner[values[v].storage] for v in call.operands if values[v].storage in memory.owner}
        for v in what.reads:
            if memory.is_memory(v):
                needed.update(write.call for write in writes.touching(v))
        for v in what.writes:
            needed.update(write.call for write in writes.touching(v))
            needed.update(read.call for read in reads.touching(v))
        needed.discard(i)
        yield needed
        for v in what.writes:
            writes.write(i, v)
            reads.forget(v)  # whoever must wait for those waits for this write
        for v in what.reads:
            if memory.is_memory(v):
                reads.add(i, v)


def hazards(found: Partition, memory: MemorySSA) -> Iterator[Hazard]:
    """The reads of memory by fused calls that wait for a write-back right at their region's boundary."""
    for (reader, read), reach in memory.reaching_writes().items():
        level = found.levels[reader]
        if not found.fused[reader] or level is None:
            continue
        for write, _ in reach:
            before = found.levels[write.call]
            if memory.stored(write.call) is not None and before == level - 1:
                yield Hazard(write.call, reader, write.value, read)
