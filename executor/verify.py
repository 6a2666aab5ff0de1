"""Proves that a partition is free of alias races, before anything runs.

The fuser believes a region's inputs independent (see `executor/backends/weak_memory.py`), and host calls run between
regions in program order. So a partition is right if and only if

- each fused call reads memory as it is when its region starts: every earlier write that it sees belongs to a lower
  level, and no later write over what it reads does;
- host calls come after what they need and before what needs them, levels first, then program order;
- data flows upwards;
- an early write-back, made by the region's kernel itself, can be seen by nobody else (`early_refusal`).

Nothing is taken from the passes: reads, writes and overlaps are found again from the program's geometry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from executor.args import refs
from executor.errors import AliasRaceError
from executor.facts import facts, operand_list
from executor.geometry import Overlap, WriteKind, common_element, overlap, write_kind
from executor.memory_ssa import MemorySSA, State, footprint
from executor.schema import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from executor.partition import Partition
    from executor.program import Program, Value


class Race(NamedTuple):
    """Two accesses in the wrong order: the calls in program order, the values that meet, and what is wrong."""

    first: int
    second: int
    values: tuple[int, int]
    wrong: str


def verify(found: Partition, memory: MemorySSA | None = None) -> None:
    """Raises `AliasRaceError` if the partition has a race."""
    for race in races(found, memory or MemorySSA.of(found.program)):
        raise _error(found.program, race)


def races(found: Partition, memory: MemorySSA) -> Iterator[Race]:
    """Every race of the partition, in program order of the second call."""
    writes, reads = State(found.program.values), State(found.program.values)
    for i, what in enumerate(memory.accesses):
        if what.address:
            continue
        yield from _data(found, memory, i)
        for v in what.reads:
            if memory.is_memory(v):
                yield from (
                    Race(w.call, i, (w.value, v), "is read before the write that it must show is made")
                    for w in writes.touching(v)
                    if not _ordered(found, w.call, i)
                )
                reads.add(i, v)
        for v in what.writes:
            yield from (
                Race(r.call, i, (r.value, v), "is overwritten before it is read")
                for r in reads.touching(v)
                if r.call != i and not _ordered(found, r.call, i)
            )
            yield from (
                Race(w.call, i, (w.value, v), "is written twice, in the wrong order")
                for w in writes.touching(v)
                if w.call != i and not _ordered(found, w.call, i)
            )
        for v in what.writes:
            writes.write(i, v)
    yield from (
        Race(i, i, (memory.accesses[i].writes[0],) * 2, f"is written early, but {refusal}")
        for i in sorted(found.early)
        if (refusal := early_refusal(found, memory, i)) is not None
    )


def _data(found: Partition, memory: MemorySSA, call: int) -> Iterator[Race]:
    for v in operand_list(memory.program.calls[call]):
        maker = memory.owner.get(memory.program.values[v].storage)
        if (
            maker is not None
            and maker != call
            and not memory.accesses[maker].address
            and not _ordered(found, maker, call)
        ):
            yield Race(maker, call, (v, v), "is used before it is computed")


def _ordered(found: Partition, first: int, second: int) -> bool:
    """Whether what the earlier call did is there when the later one runs, and not before what it still needs."""
    a, b = found.levels[first], found.levels[second]
    if a is None or b is None:
        return a is None
    return a < b or (a == b and (found.fused[first] or not found.fused[second]))


def early_refusal(found: Partition, memory: MemorySSA, store: int) -> str | None:
    """Why the region's kernel may not make this write-back itself; None if it may.

    It may if the region is one kernel (which its backend sees to) in which each element of the target is read by nobody
    but the thread that overwrites it, and if nobody else looks at the target's memory.
    """
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
    return _others(found, memory, store, region) or _pointwise(memory, region, target)


def _others(found: Partition, memory: MemorySSA, store: int, region: set[int]) -> str | None:
    """Whether anybody else of this level looks at, or writes, the target's memory."""
    values = found.program.values
    target = memory.accesses[store].writes[0]
    where = footprint(values[target])

    def meets(v: int) -> bool:
        return _meets(values[v], values[target])

    inputs = {v for i in region for v in memory.accesses[i].reads if meets(v)}
    if any(
        values[v].shape != where.shape or write_kind(where, [footprint(values[v])]) is not WriteKind.DEFINED
        for v in inputs
    ):
        return "another input of the region overlaps its target"
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


def _pointwise(memory: MemorySSA, region: set[int], target: int) -> str | None:
    """Whether every element of the target is read for its own position alone, all the way to every output."""
    program, values = memory.program, memory.program.values
    shape = values[target].shape
    # The values that depend on the target. All inputs of the region that meet it do so at the same positions.
    inputs = {v for i in region for v in memory.accesses[i].reads}
    reached = {
        i
        for i, value in enumerate(values)
        if value == values[target] or (i in inputs and _meets(value, values[target]))
    }
    copies = set(reached)  # those that a fuser may take for the target itself
    for i, call in enumerate(program.calls):
        operands = operand_list(call) if memory.accesses[i].address else memory.accesses[i].reads
        used = [v for v in operands if v in reached or _root(memory, v) in reached]
        if i not in region or not used:
            continue
        if torch.Tag.pointwise not in resolve(call.op).tags and not facts(call.op).move:
            return "its target is read by a call that is not pointwise"
        if any(v not in reached for v in used) or any(values[v].shape != shape for v in (*used, *call.results)):
            return "its target is read at another position"
        reached.update(call.results)
        if (
            facts(call.op).move
            and not copies.isdisjoint(used)
            and values[used[0]].dtype == values[call.results[0]].dtype
        ):
            copies.update(call.results)
    outside = {
        _root(memory, v)
        for i, call in enumerate(program.calls)
        if i not in region and not memory.accesses[i].address
        for v in operand_list(call)
    } | {_root(memory, v) for v in refs(program.outputs)}
    if any(v in outside and memory.maker.get(v) in region for v in copies):
        return "a copy of what was there leaves the region, and may be the target itself"
    return None


def _meets(a: Value, b: Value) -> bool:
    """Whether two values have memory in common."""
    return a.storage == b.storage and overlap(footprint(a), footprint(b)) is not Overlap.NO_ALIAS


def _root(memory: MemorySSA, value: int) -> int:
    """The value of which this one is a view."""
    maker = memory.maker.get(value)
    while maker is not None and memory.accesses[maker].address and memory.program.calls[maker].args:
        operands = operand_list(memory.program.calls[maker])
        if not operands:
            break
        value = operands[0]
        maker = memory.maker.get(value)
    return value


def _error(program: Program, race: Race) -> AliasRaceError:
    a, b = (program.values[v] for v in race.values)
    common = common_element(footprint(a), footprint(b)) if a.storage == b.storage else None
    where = f", byte {common.byte} of storage {a.storage} among others," if common else ""
    message = (
        f"{_value(program, race.values[0])} and {_value(program, race.values[1])} meet{where} and the memory "
        f"{race.wrong}: {_call(program, race.first)}, then {_call(program, race.second)}"
    )
    return AliasRaceError(message, race.first, race.second, race.values, common.byte if common else None)


def _value(program: Program, index: int) -> str:
    value = program.values[index]
    shape = "x".join(map(str, value.shape)) or "0-d"
    return f"v{index} ({value.dtype} {shape}, strides {value.strides}, offset {value.offset}, storage {value.storage})"


def _call(program: Program, index: int) -> str:
    call = program.calls[index]
    line = f" at {call.source.file}:{call.source.line}" if call.source else ""
    return f"call {index} {call.op}{line}"
