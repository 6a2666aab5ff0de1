"""Early write-backs: stores that a region's kernel makes itself, while it still computes.

Such a store lands at any moment after its value is known, so nobody may look at what it overwrites but the thread that
overwrites it. That holds if the region is one kernel (which its backend sees to), if no call on the host comes in
between, if that thread has loaded all that it reads of the target before it has the value to store, and if the index
maps from the target to whatever leaves the region, composed, are the identity, but for reductions that the value to store
waits for. Shapes alone often tell (`executor/reach.py`); where they don't, small tensors are listed element by
element (`executor/elements.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.elements import at_own_positions
from executor.facts import loads
from executor.geometry import WriteKind, write_kind
from executor.reach import Reach, leaving, plain

if TYPE_CHECKING:
    from executor.memory_ssa import MemorySSA
    from executor.partition import Partition


def early_refusal(found: Partition, memory: MemorySSA, store: int) -> str | None:
    """Why the region's kernel may not make this write-back itself; None if it may."""
    program, values = found.program, found.program.values
    value, level = memory.stored(store), found.levels[store]
    if value is None:
        return "it is no write-back of a value"
    target = memory.accesses[store].writes[0]
    maker = memory.owner.get(values[value].storage)
    if (
        maker is None
        or not found.fused[maker]
        or found.levels[maker] != level
        or value not in program.calls[maker].results
    ):
        return "its value is not computed in the region"
    if values[target].conj or values[target].neg:
        return "its target is lazily conjugated or negated"
    region = {i for i, fused in enumerate(found.fused) if fused and found.levels[i] == level}
    seen = _seen_by_others(found, memory, store, region)
    if seen is not None:
        return seen
    outside = leaving(memory, region, store)
    late = _late_loads(memory, region, store, outside)
    moved = (
        _other_inputs(memory, region, target)
        or _other_positions(memory, region, store, outside)
        or ("its target may be loaded after it is stored, for a value that leaves the region" if late else None)
    )
    return None if moved is None or at_own_positions(memory, region, store, late) else moved


def _seen_by_others(found: Partition, memory: MemorySSA, store: int, region: set[int]) -> str | None:
    """Whether a call on the host, or another kernel's store, meets the target while the region runs."""
    values = found.program.values
    target = memory.accesses[store].writes[0]

    def meets(v: int) -> bool:
        return values[v].meets(values[target])

    hosts = [i for i in range(store) if found.levels[i] == found.levels[store] and not found.fused[i]]
    if any(meets(v) for i in hosts for v in (*memory.accesses[i].reads, *memory.accesses[i].writes)):
        return "a host call that comes before it touches its target"
    if any(
        meets(memory.accesses[i].writes[0]) for i in found.early if i > store and found.levels[i] == found.levels[store]
    ):
        return "its target is written early twice"
    if memory.owner.get(values[target].storage) in region:
        return "its target is computed in the region"
    return None


def _late_loads(memory: MemorySSA, region: set[int], store: int, outside: set[int]) -> set[int]:
    """The inputs that meet the target, that something which leaves the region needs, and the stored value does not."""
    if not outside:
        return set()
    calls, values = [memory.program.calls[i] for i in region], memory.program.values
    target, stored = memory.program.calls[store].operands
    late = loads(calls, values, outside) - loads(calls, values, {stored})
    return {v for v in late if values[v].meets(values[target])}


def _other_inputs(memory: MemorySSA, region: set[int], target: int) -> str | None:
    """Whether the region reads memory of the target in another shape or at other positions."""
    values = memory.program.values
    where = plain(memory, target)
    inputs = {v for i in region for v in memory.accesses[i].reads if values[v].meets(values[target])}
    if any(
        (read := plain(memory, v)).shape != where.shape or write_kind(where, [read]) is not WriteKind.DEFINED
        for v in inputs
    ):
        return "another input of the region overlaps its target"
    return None


def _other_positions(memory: MemorySSA, region: set[int], store: int, outside: set[int]) -> str | None:
    """Whether an element of the target may be read for another position, on the way to any output; by shapes alone."""
    return Reach(memory, region, store).refusal(outside)
