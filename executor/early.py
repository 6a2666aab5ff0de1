"""Early write-backs: stores that a region's kernel makes itself, while it still computes.

Such a store lands at any moment after its value is known, so nobody may look at what it overwrites but the thread that
overwrites it. That holds if the region is one kernel (which its backend sees to), if no call on the host comes in
between, if that thread has loaded all that it reads of the target before it has the value to store, and if the index
maps from the target to whatever leaves the region, composed, are the identity. Shapes alone often tell; where they
don't, small tensors are listed element by element (`executor/elements.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.args import refs
from executor.elements import at_own_positions, crosses, elementwise, squeezed
from executor.facts import facts, loads
from executor.geometry import WriteKind, write_kind
from executor.memory_ssa import footprint

if TYPE_CHECKING:
    from executor.geometry import Footprint
    from executor.memory_ssa import MemorySSA
    from executor.partition import Partition
    from executor.program import Value


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
    leaving = _leaving(memory, region, store)
    late = _late_loads(memory, region, store, leaving)
    moved = (
        _other_inputs(memory, region, target)
        or _other_positions(memory, region, store, leaving)
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


def _late_loads(memory: MemorySSA, region: set[int], store: int, leaving: set[int]) -> set[int]:
    """The inputs that meet the target, that something which leaves the region needs, and the stored value does not."""
    if not leaving:
        return set()
    calls, values = [memory.program.calls[i] for i in region], memory.program.values
    target, stored = memory.program.calls[store].operands
    late = loads(calls, values, leaving) - loads(calls, values, {stored})
    return {v for v in late if values[v].meets(values[target])}


def _leaving(memory: MemorySSA, region: set[int], store: int) -> set[int]:
    """What somebody needs outside the region, or what its views are of; what the store needs is not counted."""
    outside = {_root(memory, v) for v in refs(memory.program.outputs)} | {
        _root(memory, v)
        for i, call in enumerate(memory.program.calls)
        if i not in region and i != store and not memory.accesses[i].address
        for v in call.operands
    }
    return {v for v in outside if memory.owner.get(memory.program.values[v].storage) in region}


def _other_inputs(memory: MemorySSA, region: set[int], target: int) -> str | None:
    """Whether the region reads memory of the target in another shape or at other positions."""
    values = memory.program.values
    where = _squeezed(values[target])
    inputs = {v for i in region for v in memory.accesses[i].reads if values[v].meets(values[target])}
    if any(
        (read := _squeezed(values[v])).shape != where.shape or write_kind(where, [read]) is not WriteKind.DEFINED
        for v in inputs
    ):
        return "another input of the region overlaps its target"
    return None


def _other_positions(memory: MemorySSA, region: set[int], store: int, leaving: set[int]) -> str | None:
    """Whether an element of the target may be read for another position, on the way to any output; by shapes alone."""
    program, values = memory.program, memory.program.values
    target = memory.accesses[store].writes[0]
    shape = squeezed(values[target].shape)
    # The values that depend on the target. All inputs of the region that meet it do so at the same positions.
    inputs = {v for i in region for v in memory.accesses[i].reads}
    reached = {
        i for i, value in enumerate(values) if value == values[target] or (i in inputs and value.meets(values[target]))
    }
    copies = set(reached)  # those that a fuser may take for the target itself
    waiting: set[int] = set()  # what waits for a reduction, and may load the target again then
    for i, call in enumerate(program.calls):
        operands = call.operands if memory.accesses[i].address else memory.accesses[i].reads
        used = [
            v if v in reached else _whole(memory, v) for v in operands if not reached.isdisjoint((v, _root(memory, v)))
        ]
        if i in region and (crosses(call, values) or any(_root(memory, v) in waiting for v in operands)):
            waiting.update(call.results)
        if i not in region or not used:
            continue
        if not elementwise(call):
            return "its target is read by a call that is not pointwise"
        if any(v not in reached for v in used) or any(
            squeezed(values[v].shape) != shape for v in (*used, *call.results)
        ):
            return "its target is read at another position"
        reached.update(call.results)
        if (
            facts(call.op).move
            and not copies.isdisjoint(used)
            and values[used[0]].dtype == values[call.results[0]].dtype
        ):
            copies.update(call.results)
    if not leaving.isdisjoint(reached & waiting):
        return "what is read of its target waits for a reduction and leaves the region"
    outside = leaving.union(_root(memory, v) for v in program.calls[store].operands)
    if any(v in outside and memory.maker.get(v) in region for v in copies):
        return "a copy of what was there leaves the region, and may be the target itself"
    return None


def _squeezed(value: Value) -> Footprint:
    """Where a value lies, without its dimensions of size 1."""
    where = footprint(value)
    if 1 not in where.shape:
        return where
    strides = tuple(s for n, s in zip(where.shape, where.strides, strict=True) if n != 1)
    return where.moved(squeezed(where.shape), strides, where.offset)


def _whole(memory: MemorySSA, value: int) -> int:
    """The value of which this one is a view, if only dimensions of size 1 tell them apart; else the value itself."""
    values, root = memory.program.values, _root(memory, value)
    return root if _squeezed(values[root]) == _squeezed(values[value]) else value


def _root(memory: MemorySSA, value: int) -> int:
    """The value of which this one is a view."""
    maker = memory.maker.get(value)
    while maker is not None and memory.accesses[maker].address and memory.program.calls[maker].args:
        operands = memory.program.calls[maker].operands
        if not operands:
            break
        value = operands[0]
        maker = memory.maker.get(value)
    return value
