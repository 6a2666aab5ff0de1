"""Partitions have the fewest regions: a brute-force search with the verifier as its only judge finds no better one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import torch

from executor.backends.weak_memory import WeakMemory
from executor.memory_ssa import MemorySSA
from executor.partition import Partition, hazards, partition
from executor.pipeline import compile_program
from executor.program import Call, Program
from executor.tracing import trace
from executor.verify import races
from tests.alias_programs import random_program


def everything(call: Call) -> bool:
    """A backend that takes every call."""
    del call
    return True


def most(call: Call) -> bool:
    """A backend that leaves some calls to eager."""
    return call.op not in ("aten.neg.default", "aten.sum.default", "aten._to_copy.default")


def prefixes(program: Program, memory: MemorySSA) -> list[MemorySSA]:
    """The memory facts of the program's first calls, for every number of them."""
    found = []
    for count in range(len(program.calls) + 1):
        part = msgspec.structs.replace(program, calls=program.calls[:count])
        whole = MemorySSA(part)
        whole.memory |= memory.memory  # a storage that is written later is memory from the start
        found.append(whole)
    return found


def has_partition(program: Program, memory: MemorySSA, fused: tuple[bool, ...], regions: int) -> bool:
    """Whether some partition with so many regions is legal: depth first, a call at a time, judged by the verifier."""
    parts = prefixes(program, memory)

    def extend(levels: tuple[int | None, ...]) -> bool:
        count = len(levels)
        if count and levels[-1] is not None:
            found = Partition(parts[count].program, levels, fused[:count])
            if any(race.second == count - 1 for race in races(found, parts[count])):
                return False
        if count == len(fused):
            return True
        if memory.accesses[count].address:
            return extend((*levels, None))
        return any(extend((*levels, level)) for level in range(0 if fused[count] else -1, regions))

    return extend(())


@pytest.mark.parametrize("supports", [everything, most])
@pytest.mark.parametrize(
    "seeds", [range(start, start + 100) for start in range(0, 1000, 100)], ids=lambda s: f"{s.start}"
)
def test_no_partition_has_fewer_regions(seeds: range, supports: Callable[[Call], bool]) -> None:
    for seed in seeds:
        program = compile_program(random_program(seed, 8), WeakMemory(), "barrier").program
        memory = MemorySSA(program)
        found = partition(program, supports, memory)
        assert has_partition(program, memory, found.fused, found.regions)
        if found.regions > 1:
            assert not has_partition(program, memory, found.fused, found.regions - 1), f"program {seed}"


def test_a_chain_of_hazards_needs_a_region_each() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        for row in x[:3]:
            row.add_(x.sum())
        return x * 2

    program = compile_program(trace(fn, torch.ones(4, 4)), WeakMemory(), "barrier").program
    found = partition(program, everything)
    assert found.regions == 4
    assert {found.levels[hazard.reader] for hazard in hazards(found, MemorySSA(program))} == {1, 2, 3}


def test_what_waits_for_nothing_comes_first() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.neg() + y.mul(2)

    program = trace(fn, torch.ones(3), torch.ones(3))
    found = partition(program, most)
    assert dict(zip((call.op for call in program.calls), found.levels, strict=True)) == {
        "aten.neg.default": -1,
        "aten.mul.Tensor": 0,
        "aten.add.Tensor": 0,
    }


def test_views_belong_to_no_region() -> None:
    program = trace(lambda x: x[0], torch.ones(3, 3))
    found = partition(program, everything)
    assert found.levels == (None,)
    assert found.regions == 0


def test_only_write_backs_are_hazards() -> None:
    """A write that eager makes anyway would end the region without any alias: its boundary is a break."""
    program = trace(lambda x: (torch._foreach_add_([x], 1), x * 2)[1], torch.ones(3))
    found = partition(program, everything)
    assert found.levels == (-1, 0)
    assert list(hazards(found, MemorySSA(program))) == []
