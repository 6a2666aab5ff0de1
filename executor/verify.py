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

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from executor.early import early_refusal
from executor.errors import AliasRaceError
from executor.geometry import common_element
from executor.memory_ssa import MemorySSA, State, footprint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from executor.partition import Partition
    from executor.program import Program

# Why a backend would make an early write-back wrong: a partition, its memory, the write-back.
EarlyRule = Callable[["Partition", MemorySSA, int], str | None]

__all__ = ["EarlyRule", "Race", "early_refusal", "races", "verify"]


class Race(NamedTuple):
    """Two accesses in the wrong order: the calls in program order, the values that meet, and what is wrong."""

    first: int
    second: int
    values: tuple[int, int]
    wrong: str


def verify(found: Partition, memory: MemorySSA | None = None, refusal: EarlyRule = early_refusal) -> None:
    """Raises `AliasRaceError` if the partition has a race, or an early write-back that `refusal` too refuses."""
    for race in races(found, memory or MemorySSA.of(found.program), refusal):
        raise _error(found.program, race)


def races(found: Partition, memory: MemorySSA, refusal: EarlyRule = early_refusal) -> Iterator[Race]:
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
        Race(i, i, (memory.accesses[i].writes[0],) * 2, f"is written early, but {why}")
        for i in sorted(found.early)
        if (why := early_refusal(found, memory, i) or refusal(found, memory, i)) is not None
    )


def _data(found: Partition, memory: MemorySSA, call: int) -> Iterator[Race]:
    for v in memory.program.calls[call].operands:
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
