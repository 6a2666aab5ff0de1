"""The whole pipeline, and each pass alone: on random programs it must mean what it meant before."""

from __future__ import annotations

import statistics
import time

import pytest
import torch

from executor import interpreter
from executor.backends.eager import Eager
from executor.backends.weak_memory import WeakMemory
from executor.cost import CostModel
from executor.pipeline import Aliases, Chooser, compile_program, passes, uncompiled
from executor.program import Call, Program
from executor.regions import Region
from executor.straight import WORTH_IT
from executor.tracing import trace
from tests.alias_programs import meaning, random_program

MODES: tuple[Aliases, ...] = ("barrier", "blend", "auto")


class Picky(WeakMemory):
    """Leaves some operators to eager, so that there are breaks."""

    def supports(self, program: Program, call: Call) -> bool:
        del program
        return call.op not in ("aten.neg.default", "aten.mul.Tensor", "aten.clone.default")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seeds", [range(start, start + 60) for start in range(0, 360, 60)], ids=lambda s: f"{s.start}")
def test_every_pass_keeps_the_meaning(seeds: range, mode: Aliases) -> None:
    for seed in seeds:
        program = random_program(seed, 12)
        wanted = meaning(program)
        for name, run in passes(Chooser(mode, CostModel())):
            program = run(program)
            assert meaning(program) == wanted, f"{name} changes program {seed}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "seeds", [range(start, start + 60) for start in range(1000, 1360, 60)], ids=lambda s: f"{s.start}"
)
def test_compiled_programs_do_what_eager_does(seeds: range, mode: Aliases) -> None:
    for seed in seeds:
        program = random_program(seed, 14)
        wanted = meaning(program)
        backend = (Picky, WeakMemory, WeakMemory)[seed % 3](seed, early=(seed % 4) / 3)
        compiled = compile_program(program, backend, mode)
        assert meaning(program, compiled.run) == wanted, f"program {seed} goes wrong"
        last = compiled.traces[-1]
        assert meaning(program, lambda tensors, p=last: interpreter.run(p, tensors)) == wanted  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(2000, 2040))
def test_warm_calls_do_what_cold_ones_do(seed: int) -> None:
    program = random_program(seed)
    wanted = meaning(program)
    for backend in (WeakMemory(seed), Eager()):
        compiled = compile_program(program, backend)
        assert all(meaning(program, compiled.run) == wanted for _ in range(WORTH_IT + 2))


def test_counts_tell_barriers_from_breaks() -> None:
    def hazard(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return x * 2

    def unsupported(x: torch.Tensor) -> torch.Tensor:
        y = (x + 1).neg()
        return y + 2

    found = compile_program(trace(hazard, torch.ones(3, 3)), WeakMemory(), "barrier")
    assert (found.regions, found.barriers, found.breaks, found.copies) == (2, 1, 0, 1)
    found = compile_program(trace(unsupported, torch.ones(3)), Picky(), "barrier")
    assert (found.regions, found.barriers, found.breaks, found.copies) == (2, 0, 1, 0)


def test_explain_names_both_accesses_and_their_lines() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return x * 2

    text = compile_program(trace(fn, torch.ones(3, 3)), WeakMemory(), "barrier").explain()
    line = fn.__code__.co_firstlineno
    assert "barrier before region 1" in text
    assert f"test_pipeline.py:{line + 1}" in text
    assert f"aten.mul.Tensor ({__file__}:{line + 2}) reads" in text
    assert compile_program(trace(fn, torch.ones(3, 3)), WeakMemory(), "blend").explain() == "no barriers"


def test_traces_come_in_order_and_the_last_shows_regions_and_barriers() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return x * 2

    compiled = compile_program(trace(fn, torch.ones(3, 3)), WeakMemory(), "barrier")
    names = [found.name for found in compiled.traces]
    assert names[0] == "trace"
    assert names[1:3] == ["out of place", "forward"]
    assert names[-1] == "regions"
    text = str(compiled.traces[-1])
    assert "# constructed by regions (took" in text
    assert "# region 0" in text
    assert "update_aliases" in text
    assert text.index("# region 0") < text.index("update_aliases") < text.index("# region 1")


def test_auto_prints_its_estimates() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return x * 2

    compiled = compile_program(trace(fn, torch.ones(3, 3)), WeakMemory(), "auto")
    [estimate] = compiled.estimates
    assert estimate.blends
    assert str(estimate) in str(compiled.traces[-1])


def test_a_huge_frame_gets_a_barrier_and_a_small_one_a_blend() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return x * 2

    program = trace(fn, torch.ones(300, 300))
    fast_launches = CostModel(bytes_per_second=1e9, seconds_per_launch=1e-7)
    assert compile_program(program, WeakMemory(), "auto", fast_launches).barriers == 1
    assert compile_program(program, WeakMemory(), "auto").barriers == 0


def test_what_is_stored_where_nobody_looks_is_not_computed() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        b = a + 10
        c = b.view(torch.uint8) + 10
        c.zero_()
        b.add_(10)
        return c

    compilation = compile_program(trace(fn, torch.ones(2)), Eager())
    assert "aten.add.Tensor" not in {call.op for call in compilation.program.calls}


def test_uncompiled_programs_are_interpreted() -> None:
    program = random_program(3)
    found = uncompiled(program)
    assert meaning(program, found.run) == meaning(program)
    assert (found.regions, found.barriers, found.breaks, found.copies) == (0, 0, 0, 0)
    assert found.explain() == "no barriers"


def test_regions_carry_their_alias_groups() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    base = torch.ones(6)
    compiled = compile_program(trace(fn, base[:3], base[2:5]), WeakMemory())
    [region] = [step for step in compiled.steps if isinstance(step, Region)]
    assert list(region.groups.values()) == [(0, 1)]


def test_a_cold_compile_of_ten_calls_takes_few_milliseconds() -> None:
    programs = [p for p in (random_program(seed, 10) for seed in range(5000, 5400)) if len(p.calls) == 10]
    times = []
    for program in programs:
        start = time.perf_counter()
        compile_program(program, WeakMemory())
        times.append(time.perf_counter() - start)
    # 1.1 ms on a quiet core; the bound leaves room for a loaded one.
    assert statistics.median(times) < 6e-3
