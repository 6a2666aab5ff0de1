"""A temporary's first and only complete store is its allocation.

`y = empty_strided(...); y.copy_(v)` becomes `y = v` where v is a fresh tensor laid out like y and nobody needs v to
stay as it is. This is copy coalescing of SSA destruction, for memory instead of registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from executor.builder import renamed
from executor.memory_ssa import MemorySSA

if TYPE_CHECKING:
    from executor.program import Call, Program


def coalesce(program: Program) -> Program:
    """The same program with stores into fresh memory replaced by the stored values, where they may be that memory."""
    memory = MemorySSA.of(program)
    merged: dict[int, int] = {}  # the stored value -> the memory that it becomes
    gone: set[int] = set()
    for i in range(len(program.calls)):
        found = _allocation(memory, i, merged)
        if found is not None:
            allocation, target, value = found
            merged[value] = target
            gone.update((allocation, i))
    if not merged:
        return program
    calls = _in_order(
        [_merge(call, merged) for i, call in enumerate(program.calls) if i not in gone],
        {*program.inputs, *program.constants},
    )
    homes = {program.values[value].storage: program.values[target].storage for value, target in merged.items()}
    values = tuple(
        msgspec.structs.replace(value, storage=homes[value.storage]) if value.storage in homes else value
        for value in program.values
    )
    return msgspec.structs.replace(program, calls=calls, values=values)


def _allocation(memory: MemorySSA, store: int, merged: dict[int, int]) -> tuple[int, int, int] | None:
    """(the allocating call, the memory, the value stored) if the store can be the allocation itself."""
    program = memory.program
    value = memory.stored(store)
    if value is None or value in merged:
        return None
    target = memory.accesses[store].writes[0]
    a, b = program.values[target], program.values[value]
    allocation, maker = memory.owner.get(a.storage), memory.owner.get(b.storage)
    if allocation is None or maker is None or not memory.accesses[allocation].address:
        return None
    fits = (
        msgspec.structs.replace(a, storage=b.storage) == b
        and a.offset == 0
        and target in program.calls[allocation].results
    )
    plain = value in program.calls[maker].results and b.storage not in memory.returned
    first = not any(_touches(memory, i, a.storage) for i in range(store))
    return (allocation, target, value) if fits and plain and first and _may_change(memory, store, value) else None


def _touches(memory: MemorySSA, number: int, storage: int) -> bool:
    """Whether the call needs the memory to be there, be it only to know its shape (`zeros_like`)."""
    program = memory.program
    return not memory.accesses[number].address and any(
        program.values[v].storage == storage for v in program.calls[number].operands
    )


def _may_change(memory: MemorySSA, store: int, value: int) -> bool:
    """Whether nothing else needs the value as it is after its new memory changes, or to store it."""
    program = memory.program
    home, target = program.values[value].storage, memory.accesses[store].writes[0]
    later = (
        i
        for i in range(store + 1, len(program.calls))
        if any(program.values[w].storage == program.values[target].storage for w in memory.accesses[i].writes)
    )
    changed = next(later, None)
    if changed is None:
        return True
    return not any(
        program.values[i].storage == home
        for n, call in enumerate(program.calls)
        if n != store and (n >= changed or memory.accesses[n].writes)
        for i in call.operands
    )


def _merge(call: Call, merged: dict[int, int]) -> Call:
    call = renamed(call, merged)
    if any(r in merged for r in call.results):
        call = msgspec.structs.replace(call, results=tuple(merged.get(r, r) for r in call.results))
    return call


def _in_order(calls: list[Call], made: set[int]) -> tuple[Call, ...]:
    """The calls, those that take the address of memory which is allocated later now moved behind its allocation."""
    early = {result for call in calls for result in call.results}
    ordered: list[Call] = []
    waiting: list[Call] = []
    for call in calls:
        if any(v in early and v not in made for v in call.operands):
            waiting.append(call)
            continue
        ordered.append(call)
        made.update(call.results)
        for late in list(waiting):
            if all(v in made or v not in early for v in late.operands):
                waiting.remove(late)
                ordered.append(late)
                made.update(late.results)
    return tuple(ordered)
