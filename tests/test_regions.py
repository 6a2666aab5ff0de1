"""Steps: regions take what exists, hand out what is needed, and barriers stand only where a hazard forces them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from executor.backends.weak_memory import WeakMemory
from executor.facts import UPDATE_ALIASES
from executor.geometry import Overlap, overlap
from executor.memory_ssa import footprint
from executor.pipeline import Compilation, compile_program
from executor.program import Call
from executor.regions import Barrier, Region
from executor.tracing import trace
from tests.alias_programs import random_program


def barriers(compiled: Compilation) -> list[Barrier]:
    return [step for step in compiled.steps if isinstance(step, Barrier)]


@pytest.mark.parametrize(
    "seeds", [range(start, start + 100) for start in range(0, 400, 100)], ids=lambda s: f"{s.start}"
)
def test_barriers_name_each_alias_once_and_never_stand_in_a_row(seeds: range) -> None:
    for seed in seeds:
        compiled = compile_program(random_program(seed), WeakMemory(), "barrier")
        calls = [call.op for call in compiled.traces[-1].calls]
        assert all({a, b} != {UPDATE_ALIASES} for a, b in itertools.pairwise(calls))
        assert calls.count(UPDATE_ALIASES) == compiled.barriers
        for barrier in barriers(compiled):
            assert len(set(barrier.aliases)) == len(barrier.aliases)
            assert {h.read for h in barrier.hazards} | {h.written for h in barrier.hazards} == set(barrier.aliases)


@pytest.mark.parametrize(
    "seeds", [range(start, start + 100) for start in range(0, 400, 100)], ids=lambda s: f"{s.start}"
)
def test_each_hazard_is_an_overlap_of_a_write_and_a_later_read(seeds: range) -> None:
    for seed in seeds:
        compiled = compile_program(random_program(seed), WeakMemory(), "barrier")
        values = compiled.program.values
        for hazard in (hazard for barrier in barriers(compiled) for hazard in barrier.hazards):
            assert hazard.writer < hazard.reader
            read, written = footprint(values[hazard.read]), footprint(values[hazard.written])
            assert values[hazard.read].storage == values[hazard.written].storage
            assert overlap(read, written) is not Overlap.NO_ALIAS


@pytest.mark.parametrize(
    "seeds", [range(start, start + 100) for start in range(0, 400, 100)], ids=lambda s: f"{s.start}"
)
def test_steps_use_only_what_exists(seeds: range) -> None:
    for seed in seeds:
        compiled = compile_program(random_program(seed), WeakMemory(seed), "auto")
        made = {*compiled.program.inputs, *compiled.program.constants}
        for step in compiled.steps:
            if isinstance(step, Region):
                assert made.issuperset(step.inputs)
                inside = {*step.inputs, *(r for call in step.calls for r in call.results)}
                assert all(inside.issuperset(call.operands) for call in step.calls)
                made.update(step.outputs)
            elif isinstance(step, Call):
                assert made.issuperset(step.operands)
                made.update(step.results)


def test_no_barrier_between_reads_or_where_data_orders() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        first = x[0] * 2
        second = x[:, 0] * 3
        x.copy_(first + second)
        return first - second

    assert barriers(compile_program(trace(fn, torch.ones(3, 3)), WeakMemory(), "barrier")) == []


def test_a_region_hands_out_bases_and_the_host_makes_the_views() -> None:
    compiled = compile_program(trace(lambda x: (x * 2).t(), torch.ones(2, 3)), WeakMemory())
    region, view = compiled.steps
    assert isinstance(region, Region)
    assert isinstance(view, Call)
    assert view.op == "aten.t.default"
    assert region.outputs == tuple(view.operands)


def test_copies_that_would_show_their_input_are_detached() -> None:
    [region] = [
        step
        for step in compile_program(trace(lambda x: (x.clone(), x * 2), torch.ones(2)), WeakMemory()).steps
        if isinstance(step, Region)
    ]
    copied, doubled = region.outputs
    assert region.aliases == {copied: region.inputs[0]}
    assert region.detached == {copied}
    assert doubled not in region.detached


def test_a_copy_that_outlives_its_input_is_detached() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        x[0].add_(1)
        return x * 2 + y

    compiled = compile_program(trace(fn, torch.ones(3, 3)), WeakMemory(), "barrier")
    first, _ = (step for step in compiled.steps if isinstance(step, Region))
    assert len(first.aliases) == 1
    assert first.detached == first.aliases.keys()


@pytest.mark.parametrize(
    ("move", "may_alias"),
    [(lambda y: y.t(), True), (lambda y: y[1:], True), (lambda y: y.as_strided((2,), (3,)), False)],
    ids=["transposed", "sliced", "restrided"],
)
def test_copies_of_views_may_be_the_input(move: Callable[[torch.Tensor], torch.Tensor], may_alias: bool) -> None:  # noqa: FBT001 - a parameter of the case
    program = trace(lambda x: move(x.clone()).clone(), torch.ones(2, 3))
    [region] = (step for step in compile_program(program, WeakMemory()).steps if isinstance(step, Region))
    assert region.aliases == (dict(zip(region.outputs, region.inputs, strict=True)) if may_alias else {})


def test_what_moves_from_a_value_that_the_kernel_stores_may_be_its_target() -> None:
    """An output that is a part of an early stored value may lie on the stored memory, which is written later."""

    def fn(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        doubled = a * 2
        kept = doubled.clone()
        part = kept[:3].clone()
        kept[1:4].copy_(part)
        return kept, kept[:1] + 1  # so that the clone is needed as it was

    program, expected = trace(fn, torch.arange(4.0)), fn(torch.arange(4.0))
    stored = 0
    for seed in range(40):
        compiled = compile_program(program, WeakMemory(seed, early=1.0))
        for region in (step for step in compiled.steps if isinstance(step, Region) and step.early):
            targets_ = {target for target, _ in region.early}
            stored += any(source in targets_ for source in region.aliases.values())
        assert all(map(torch.equal, compiled.run([torch.arange(4.0)]), expected))
    assert stored > 10
