"""The adversary uses every freedom that it has: what is legal survives it, what is not goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from executor import executable
from executor.backends.schedules import drawn, under
from executor.backends.tagged import Interner, in_program_order
from executor.backends.weak_memory import WeakMemory, moves, topological
from executor.executable import Executable
from executor.memory_ssa import MemorySSA
from executor.partition import Partition, partition
from executor.passes.functional import out_of_place
from executor.pipeline import compile_program
from executor.program import Program
from executor.regions import Layout, Region
from executor.tracing import trace
from tests.alias_programs import meaning

SEEDS = range(20)


def regions(program: Program, seed: int = 0) -> list[Region]:
    """The regions of the compiled program."""
    return [step for step in compile_program(program, WeakMemory(seed)).steps if isinstance(step, Region)]


def run_early(fn: Callable[..., Any], seed: int, *args: torch.Tensor) -> tuple[list[object], list[object]]:
    """What eager does and what a kernel does that makes the last write-back early, allowed or not."""
    program = out_of_place(trace(fn, *args))
    memory = MemorySSA(program)
    late = partition(program, lambda _: True, memory)
    last = max(i for i in range(len(program.calls)) if memory.stored(i) is not None)
    found = Partition(program, late.levels, late.fused, frozenset({last}))
    run = Executable(program, Layout(found, memory).run(), memory, WeakMemory(seed)).run
    return meaning(program), meaning(program, run)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.sum() * x, x.add_(1))[0],
        lambda x: ((x * 2).t() + 1, x.add_(1))[0],
        lambda x: (x.flip(0) + 1, x.mul_(2))[0],
        lambda x: (x.clone(), x.add_(1))[0],
        lambda x: (x.sum() + 1, x.add_(1))[0],
        lambda x: x.sub_(x.sum(1)),
    ],
)
def test_illegal_early_writes_go_wrong_under_some_schedule(fn: Callable[..., Any]) -> None:
    outcomes = [run_early(fn, seed, torch.arange(1.0, 17.0).reshape(4, 4)) for seed in SEEDS]
    assert any(wanted != found for wanted, found in outcomes)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 2 + 1, x.add_(1))[0],
        lambda x: x.mul_(3),
        lambda x: (x.add_(1), x * 2)[0],
    ],
)
def test_legal_early_writes_never_do(fn: Callable[..., Any]) -> None:
    for seed in SEEDS:
        wanted, found = run_early(fn, seed, torch.arange(1.0, 17.0).reshape(4, 4))
        assert wanted == found


def test_outputs_reached_by_moves_are_handed_out_as_their_input() -> None:
    program = trace(lambda x: x.t().clone(memory_format=torch.contiguous_format), torch.arange(6.0).reshape(2, 3))
    [region] = regions(program)
    x = torch.arange(6.0).reshape(2, 3)
    inputs = [x if program.values[v].shape == (2, 3) else x.t() for v in region.inputs]
    handed = [WeakMemory(seed).compile(region)(inputs)[0] for seed in SEEDS]
    assert all(torch.equal(out, x.t()) for out in handed)
    shared = [out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for out in handed]
    assert any(shared)
    assert not all(shared)


def test_the_host_takes_a_returned_copy_out_of_its_input() -> None:
    program = trace(lambda x: (x.clone(), x.add_(1)), torch.ones(4))
    for seed in SEEDS:
        assert meaning(program, compile_program(program, WeakMemory(seed)).run) == meaning(program)


def test_without_that_a_returned_copy_shows_the_new_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "_shares", lambda _tensor, _inputs: False)
    program = trace(lambda x: (x.clone(), x.add_(1)), torch.ones(4))
    assert any(meaning(program, compile_program(program, WeakMemory(seed)).run) != meaning(program) for seed in SEEDS)


def test_a_seed_replays() -> None:
    program = trace(lambda x: (x.clone(), x * 2, x + 1), torch.ones(4))
    [region] = regions(program)
    x = torch.ones(4)

    def shares(seed: int) -> list[bool]:
        outputs = WeakMemory(seed).compile(region)([x])
        return [out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for out in outputs]

    assert [shares(seed) for seed in SEEDS] == [shares(seed) for seed in SEEDS]


def test_every_topological_order_is_drawn() -> None:
    program = trace(lambda x: (x + 1, x + 2, x + 3), torch.ones(2))
    orders = {tuple(call.results for call in topological(program.calls, random.Random(seed))) for seed in range(100)}
    assert len(orders) == 6
    chain = trace(lambda x: ((x + 1) * 2).neg(), torch.ones(2))
    assert topological(chain.calls, random.Random(1)) == list(chain.calls)


def test_what_waits_for_a_reduction_sees_what_was_stored_early() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y.sum(), x.add_(1))[0]

    for seed in SEEDS:
        wanted, found = run_early(fn, seed, torch.arange(4.0), torch.ones(2))
        assert found != wanted


def test_two_elements_are_computed_one_after_the_other() -> None:
    for seed in SEEDS:
        wanted, found = run_early(lambda x: (x.flip(0) + 1, x.mul_(2))[0], seed, torch.ones(2))
        assert found != wanted


def test_moves_lead_from_an_output_back_to_its_input() -> None:
    program = trace(lambda x: x.t().clone(memory_format=torch.contiguous_format).view(-1).clone(), torch.ones(2, 3))
    [region] = regions(program)
    [output] = region.outputs
    source, chain = moves(region, output)
    assert source in region.inputs
    assert [call.op.split(".")[1] for call, _ in chain][-1] == "clone"


def test_one_of_several_views_of_a_copy_is_handed_out_as_its_input() -> None:
    program = trace(lambda x: x.clone().unbind(0)[1].clone(), torch.arange(6.0).reshape(2, 3))
    for seed in SEEDS:
        assert meaning(program, compile_program(program, WeakMemory(seed)).run) == meaning(program)


def test_an_index_that_a_later_round_makes_of_what_was_written_does_no_harm() -> None:
    """The kernel writes 0 to x; y - x is 0 before that, and out of bounds after it."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.index_fill_(0, y - x, 0)

    x, y = torch.full((1,), 4), torch.full((1,), 4)
    program = trace(fn, x, y)
    for seed in SEEDS:
        run = compile_program(program, WeakMemory(seed, early=1.0)).run
        assert run([x.clone(), y.clone()]).tolist() == [0]


def test_tags_tell_apart_what_numbers_do_not() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].mul_(1)  # changes no number
        return x + 0

    program = out_of_place(trace(fn, torch.zeros(2, 2)))
    memory, ids = MemorySSA(program), Interner()
    good = partition(program, lambda _: True, memory)
    merged = good._replace(levels=tuple(None if level is None else 0 for level in good.levels))
    wanted = in_program_order(program, ids)
    assert under(good, ids, drawn(0)) == wanted
    assert under(merged, ids, drawn(0)) != wanted


def test_tags_see_bytes_through_other_dtypes() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.view(torch.int32)[0].add_(1)
        return x * 2

    program = out_of_place(trace(fn, torch.zeros(2)))
    outputs, storages = in_program_order(program, Interner())
    other, _ = in_program_order(out_of_place(trace(lambda x: x * 2, torch.zeros(2))), Interner())
    assert len(outputs[0]) == len(other[0]) == 2
    assert len(set(storages[0])) == 8


def test_what_looks_at_the_shape_of_a_sum_does_not_wait_for_it() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        b = torch.ones_like(a.sum()).expand(4) * a * 2
        a.sub_(b)
        return b

    program = trace(fn, torch.arange(2.0, 6.0))
    for seed in SEEDS:
        run = compile_program(program, WeakMemory(seed, early=1.0)).run
        assert meaning(program, run) == meaning(program)
