"""Store-to-load forwarding: a read of memory whose newest write covers it uses the written value instead.

The value is exact where the read covers the same elements in the same order, and some views of it where the read is a
part. What remains reading memory afterwards is what needs memory: entry states, and reads that several writes reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.builder import Builder
from executor.geometry import Overlap
from executor.memory_ssa import MemorySSA
from executor.passes.index_maps import project

if TYPE_CHECKING:
    from executor.memory_ssa import Reach
    from executor.program import Call, Program, Source


def forward(program: Program) -> Program:
    """The same program with written values in the place of what is known to be them in memory."""
    memory = MemorySSA.of(program)
    reaching = memory.reaching_writes()
    if not reaching:
        return program
    builder, changed = Builder(program), False
    for i, call in enumerate(program.calls):
        what = memory.accesses[i]
        # A call that only memory can tell the result of runs eagerly, between regions: it reads memory for free.
        if what.writes:
            builder.calls.append(call)
        else:
            seen = {v: reaching[i, v] for v in what.reads if (i, v) in reaching}
            new = _forwarded(builder, call, memory, seen)
            changed = changed or bool(new)
            builder.replace_operands(call, new)
    return builder.finish() if changed else program


def _forwarded(builder: Builder, call: Call, memory: MemorySSA, seen: dict[int, list[Reach]]) -> dict[int, int]:
    """For each operand whose value in memory is known, that value; `seen` are the writes that each sees."""
    new: dict[int, int] = {}
    for value, reach in seen.items():
        found = forwarded(builder, memory, value, reach[0], call.source)
        if found is not None:
            new[value] = found
    return new


def forwarded(builder: Builder, memory: MemorySSA, read: int, newest: Reach, source: Source | None) -> int | None:
    """Appends what gives a read the value of the write that covers it; None if that isn't known, or no view of it."""
    stored = memory.stored(newest.write.call)
    if stored is None or newest.overlap is Overlap.PARTIAL:
        return None
    values = builder.values
    return project(builder, stored, values[read], values[newest.write.value], newest.overlap, source)
