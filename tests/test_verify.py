"""The verifier against the adversary: what it accepts is right under every schedule, what it rejects can go wrong."""

from __future__ import annotations

import itertools

import pytest
import torch

from benchmarks.exhaustive_races import judge, small_programs
from executor.args import Ref
from executor.backends.schedules import drawn, under
from executor.backends.tagged import Interner, in_program_order
from executor.backends.weak_memory import WeakMemory
from executor.errors import AliasRaceError
from executor.memory_ssa import MemorySSA
from executor.partition import Partition, partition
from executor.passes.functional import out_of_place
from executor.pipeline import with_early
from executor.program import Iota, Param, Program, Storage
from executor.recorder import Recorder, outputs_tree
from executor.tracing import trace
from executor.verify import early_refusal, verify
from tests.alias_programs import random_program

A = torch.ops.aten


def everything(call: object) -> bool:
    """A backend that takes every call."""
    del call
    return True


def lowered(fn: object, *args: torch.Tensor) -> tuple[Program, MemorySSA]:
    """The function in out-of-place form."""
    program = out_of_place(trace(fn, *args))  # type: ignore[arg-type]
    return program, MemorySSA(program)


def test_a_read_merged_with_the_write_it_must_see_is_a_race() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return x[:, 1] * 2

    program, memory = lowered(fn, torch.ones(3, 3))
    good = partition(program, everything, memory)
    verify(good, memory)
    levels = tuple(None if level is None else 0 for level in good.levels)
    with pytest.raises(AliasRaceError) as caught:
        verify(good._replace(levels=levels), memory)
    error, line = caught.value, fn.__code__.co_firstlineno
    calls, values = program.calls, program.values
    assert (calls[error.first].op, calls[error.second].op) == ("aten.copy_.default", "aten.mul.Tensor")
    assert [values[v].shape for v in error.values] == [(3,), (3,)]
    assert error.element == 4  # x[0, 1]
    assert f"test_verify.py:{line + 1}" in str(error)
    assert f"test_verify.py:{line + 2}" in str(error)
    assert "byte 4 of storage 0" in str(error)


def test_a_write_before_a_read_of_what_it_overwrites_is_a_race() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        x.zero_()
        return y

    program, memory = lowered(fn, torch.ones(3))
    good = partition(program, everything, memory)
    verify(good, memory)
    read = next(i for i, call in enumerate(program.calls) if call.op == "aten.mul.Tensor")
    levels = tuple(1 if i == read else level for i, level in enumerate(good.levels))
    with pytest.raises(AliasRaceError, match="overwritten before it is read"):
        verify(good._replace(levels=levels), memory)


def test_two_writes_in_the_wrong_order_are_a_race() -> None:
    def fn(x: torch.Tensor) -> None:
        x.fill_(1)
        x[0].fill_(2)

    program, memory = lowered(fn, torch.ones(3))
    good = partition(program, everything, memory)
    first = min(i for i, what in enumerate(memory.accesses) if what.writes)
    levels = tuple(1 if i == first else level for i, level in enumerate(good.levels))
    with pytest.raises(AliasRaceError, match="written twice, in the wrong order"):
        verify(good._replace(levels=levels), memory)


def test_data_must_flow_upwards() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x * 2) + 1

    program, memory = lowered(fn, torch.ones(3))
    with pytest.raises(AliasRaceError, match="used before it is computed"):
        verify(Partition(program, (1, 0), (True, True)), memory)
    verify(Partition(program, (0, 1), (True, True)), memory)


EARLY = {
    "its target is read at another position": lambda x, y: (y.copy_((x * 2).t() + 1), x.add_(1)),
    "its target is read by a call that is not pointwise": lambda x, y: (y.copy_(x * x.sum()), x.add_(1)),
    "another input of the region overlaps its target": lambda x, y: (y[0].copy_(x[0] * 2), x.add_(1)),
    "a host call that comes before it touches its target": lambda x, y: (x[0].copy_(y[0] * 2), x.copy_(y + 1)),
    "its value is not computed in the region": lambda x, _: x.fill_(1),
    "a copy of what was there leaves the region": lambda x, y: (y.copy_(x.clone()), x.add_(1)),
}


@pytest.mark.parametrize("reason", EARLY)
def test_early_write_backs_that_somebody_could_see_are_refused(reason: str) -> None:
    program, memory = lowered(EARLY[reason], torch.ones(3, 3), torch.ones(3, 3))
    found = partition(program, everything, memory)
    last = max(i for i, what in enumerate(memory.accesses) if what.writes)
    refusal = early_refusal(found, memory, last)
    assert refusal is not None
    assert refusal.startswith(reason)
    with pytest.raises(AliasRaceError, match="is written early, but"):
        verify(found._replace(early=frozenset({last})), memory)


def test_of_two_early_write_backs_to_one_target_the_first_is_refused() -> None:
    program, memory = lowered(lambda x, y: (x.copy_(y + 1), x.copy_(y * 2)), torch.ones(3), torch.ones(3))
    found = partition(program, everything, memory)
    first, second = (i for i, what in enumerate(memory.accesses) if what.writes)
    assert found.levels[first] == found.levels[second]
    assert early_refusal(found._replace(early=frozenset({first})), memory, first) is None
    both = found._replace(early=frozenset({first, second}))
    assert early_refusal(both, memory, first) == "its target is written early twice"


def test_a_pointwise_update_may_be_written_early() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return y * 2

    program, memory = lowered(fn, torch.ones(3, 3), torch.ones(3, 3))
    found = with_early(partition(program, everything, memory), memory, WeakMemory(early=1.0))
    assert len(found.early) == 1
    verify(found, memory)
    with pytest.raises(AliasRaceError, match="is written early, but the backend needs it whole"):
        verify(found, memory, lambda *_: "the backend needs it whole")


def test_all_single_calls_exhaustively() -> None:
    found = judge(small_programs(4, 1, 1))
    assert found.accepted > 100
    assert found.accepted_wrong == 0
    assert found.rejected_wrong == found.rejected > 0


def test_a_sample_of_all_pairs_of_calls_on_two_storages() -> None:
    found = judge(itertools.islice(small_programs(4, 2, 2), 0, None, 1009))
    assert found.accepted > 100
    assert found.accepted_wrong == 0
    assert found.rejected_wrong > 0.7 * found.rejected > 0


def test_random_programs_are_right_under_every_schedule() -> None:
    early = 0
    for seed in range(250):
        program = out_of_place(random_program(seed, 7))
        memory, ids = MemorySSA(program), Interner()
        found = with_early(partition(program, everything, memory), memory, WeakMemory(seed, early=1.0))
        verify(found, memory)
        early += len(found.early)
        wanted = in_program_order(program, ids)
        assert all(under(found, ids, drawn(schedule)) == wanted for schedule in range(3)), f"program {seed}"
    assert early > 50


def test_recorded_programs_are_verified_too() -> None:
    recorder = Recorder()
    x = torch.ones(4)
    recorder.input(x, Storage(16, Iota("float32")))
    recorder.call(A.add_.Tensor, x, 1)
    program = recorder.program([Param("x", Ref(0))], outputs_tree([0]))
    verify(partition(program, everything))
