"""Reaching writes against a brute-force twin that follows every byte."""

from __future__ import annotations

import time

import pytest
import torch

from executor.args import Ref
from executor.facts import access
from executor.geometry import Overlap
from executor.memory_ssa import IntervalIndex, MemorySSA, State, Write, footprint
from executor.program import Call, Inputs, Param, Program, Storage, Value
from executor.recorder import Recorder, outputs_tree
from executor.tracing import trace
from tests.alias_programs import random_program

A = torch.ops.aten


def writers_by_byte(program: Program) -> dict[tuple[int, int], set[int]]:
    """For each (call, value read in memory) the calls whose bytes it sees, found by simulating every byte."""
    last: dict[tuple[int, int], int] = {}
    found: dict[tuple[int, int], set[int]] = {}
    for number, call in enumerate(program.calls):
        what = access(program.values, call)
        for v in what.reads:
            value = program.values[v]
            found[number, v] = {
                last[value.storage, byte]
                for byte in footprint(value).byte_set().tolist()
                if (value.storage, byte) in last
            }
        for v in what.writes:
            value = program.values[v]
            last.update({(value.storage, byte): number for byte in footprint(value).byte_set().tolist()})
    return found


@pytest.mark.parametrize("seed", range(300))
def test_reaching_writes_are_those_whose_bytes_a_read_sees(seed: int) -> None:
    program = random_program(seed)
    memory = MemorySSA(program)
    wanted = writers_by_byte(program)
    found = memory.reaching_writes()
    for (call, v), calls in wanted.items():
        if memory.is_memory(v):
            reached = {reach.write.call for reach in found.get((call, v), [])}
            # A write that later writes cover only together is still listed: safe, and cheaper to find.
            assert calls <= reached, f"call {call} reads v{v}"


def test_a_write_that_hides_older_ones_ends_the_list() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x[0].mul_(2)
        x.neg_()
        x[:1].add_(3)
        return x + 1

    program = trace(fn, torch.ones(3, 2))
    [reach] = [
        reach for (call, _), reach in MemorySSA(program).reaching_writes().items() if call == len(program.calls) - 1
    ]
    assert [program.calls[found.write.call].op for found in reach] == ["aten.add_.Tensor", "aten.neg_.default"]
    assert [found.overlap for found in reach] == [Overlap.PARTIAL, Overlap.MUST_ALIAS]


def test_disjoint_columns_do_not_reach_each_other() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[:, 0].add_(1)
        return x[:, 1] * 2

    assert MemorySSA(trace(fn, torch.ones(3, 2))).reaching_writes() == {}


def test_only_storages_that_exist_at_entry_or_change_are_memory() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        kept, changed = x * 2, x * 3
        changed.add_(kept)
        return changed

    memory = MemorySSA(trace(fn, torch.ones(3)))
    kept, changed = (call.results[0] for call in memory.program.calls[:2])
    assert not memory.is_memory(kept)
    assert memory.is_memory(changed)
    assert memory.returned == {memory.program.values[changed].storage}


def test_what_copies_a_fixed_value_is_a_store_and_nothing_else_is() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> None:
        x.copy_(x * 2)
        x.copy_(y)
        y.add_(1)

    memory = MemorySSA(trace(fn, torch.ones(3), torch.ones(3)))
    stored = [memory.stored(i) for i in range(len(memory.program.calls)) if memory.accesses[i].writes]
    assert stored == [memory.program.calls[0].results[0], None, None]


def test_the_index_finds_what_a_list_would() -> None:
    index, writes = IntervalIndex(), []
    for seq in range(60):
        start, size = seq * 37 % 90, seq * 11 % 17 + 1
        writes.append(Write(seq, seq, 0, footprint(Value(0, "uint8", (size,), (1,), start))))
        index.add(writes[-1])
        if seq % 5 == 4:
            index.remove(writes.pop(seq * 7 % len(writes)))
        for low in range(0, 100, 9):
            meeting = [w for w in writes if w.footprint.start < low + 6 and low < w.footprint.stop]
            assert index.meeting(low, low + 6) == meeting[::-1]
    assert len(index) == len(writes)


def test_empty_values_neither_reach_nor_are_reached() -> None:
    values = [Value(0, "float32", (0,), (1,)), Value(0, "float32", (4,), (1,))]
    state = State(values)
    state.write(0, 0)
    assert state.reaching(1) == []
    state.write(1, 1)
    assert state.reaching(0) == []


def test_a_thousand_calls_on_two_storages_take_less_than_a_second() -> None:
    recorder = Recorder()
    bases = [torch.ones(4000), torch.ones(4000)]
    inputs = [recorder.input(base, Storage(16000)) for base in bases]
    for number in range(334):
        base, start = bases[number % 2], number * 53 % 3000
        window = recorder.call(A.slice.Tensor, base, 0, start, start + 700, 1 + number % 3)
        other = recorder.call(A.slice.Tensor, base, 0, start * 7 % 3000, start * 7 % 3000 + window.numel())
        recorder.call(A.add_.Tensor, window, other) if abs(start - start * 7 % 3000) > 2800 else recorder.call(
            A.neg_.default, window
        )
    program = recorder.program([Param(f"x{i}", Ref(v)) for i, v in enumerate(inputs)], outputs_tree(inputs))
    assert len(program.calls) > 1000
    start_time = time.perf_counter()
    MemorySSA(program).reaching_writes()
    assert time.perf_counter() - start_time < 1


def test_an_unknown_call_writes_what_its_schema_says() -> None:
    call = Call("aten.add_.Tensor", (Ref(0), Ref(1)), (), (0,))
    inputs = Inputs((Storage(16),), (Value(0, "float32", (4,), (1,)),) * 2)
    assert access(inputs.values, call).writes == (0,)
    assert access(inputs.values, call).reads == (0, 1)
