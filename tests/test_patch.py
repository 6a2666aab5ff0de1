"""Patching: calls that read partly overwritten memory without a barrier."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from executor.backends.nvfuser import rules
from executor.backends.weak_memory import WeakMemory
from executor.cost import SECONDS_PER_LAUNCH, CostModel
from executor.memory_ssa import MemorySSA
from executor.partition import Partition
from executor.passes.forward import forward
from executor.passes.functional import out_of_place
from executor.passes.hoist import Hoist
from executor.passes.patch import Patch, patch
from executor.pipeline import Aliases, Chooser, Compilation, compile_program, passes
from executor.program import Call, Program
from executor.regions import Region
from executor.tracing import trace
from tests.alias_programs import meaning, random_program
from tests.patch_programs import patch_program

MODES: tuple[Aliases, ...] = ("barrier", "blend", "auto")


class OnCpu(WeakMemory):
    """nvFuser's rules and rates, on a memory so slow that small tensors count as large ones."""

    cost = CostModel(bytes_per_second=1e6, seconds_per_blend=math.inf)

    def refusal(self, program: Program, call: Call) -> str | None:
        return rules.refusal(program, call, device="cpu")

    def early_refusal(self, found: Partition, memory: MemorySSA, store: int) -> str | None:
        return rules.early_refusal(found, memory, store)

    def writes_early(self, found: Partition, memory: MemorySSA, store: int) -> bool:
        return self.early_refusal(found, memory, store) is None


class Always(Chooser):
    """Patches and hoists whatever can be."""

    def patches(self, plan: Patch) -> bool:
        del plan
        return True

    def hoists(self, plan: Hoist) -> bool:
        del plan
        return True


def f(a: torch.Tensor) -> torch.Tensor:
    return a.sin_() * a[0, 0].tanh_()


def g(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.sin_() * b.tanh_()


def h(a: torch.Tensor) -> torch.Tensor:
    t = a.sin_()
    a[0, 0].tanh_()
    return t.cos()


def in_place(a: torch.Tensor) -> torch.Tensor:
    a.neg_()
    a[0, 0].mul_(2)
    a.mul_(3)
    return a + 1


def kept(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    b = a.neg()
    b[0, 0].mul_(2)
    return b, b * 3


def square() -> tuple[torch.Tensor]:
    return (torch.arange(64.0).reshape(8, 8),)


def with_corner() -> tuple[torch.Tensor, torch.Tensor]:
    (a,) = square()
    return a, a[0, 0]


def compiled(fn: Callable[..., Any], make: Callable[[], tuple[torch.Tensor, ...]] = square) -> Compilation:
    """The function compiled for nvFuser's rules. It does what eager does, up to rounding."""
    ours, theirs = make(), make()
    found = compile_program(trace(fn, *make()), OnCpu())
    torch.testing.assert_close(found.run(ours), fn(*theirs))
    torch.testing.assert_close(ours, theirs)
    return found


def stores(found: Compilation) -> list[int]:
    """How many elements each store of the host writes."""
    calls = [step for step in found.steps if isinstance(step, Call) and step.op == "aten.copy_.default"]
    return [found.program.values[call.results[0]].numel for call in calls]


@pytest.mark.parametrize(
    ("fn", "make"),
    [(f, square), (g, with_corner), (h, square), (in_place, square), (kept, square)],
    ids=["f", "g", "h", "written twice", "a fresh tensor"],
)
def test_one_region_and_a_store_for_each_element(
    fn: Callable[..., Any], make: Callable[[], tuple[torch.Tensor, ...]]
) -> None:
    """What is stored whole, the kernel stores itself, and it computes nothing else."""
    found = compiled(fn, make)
    assert (found.regions, found.barriers, found.breaks) == (1, 0, 0)
    assert stores(found) == [1, 1]
    [region] = [step for step in found.steps if isinstance(step, Region)]
    assert {found.program.values[v].numel for call in region.calls for v in call.results} == {64}


@pytest.mark.parametrize("mode", ["barrier", "blend"])
def test_other_modes_keep_their_meaning(mode: Aliases) -> None:
    found = compile_program(trace(h, *square()), OnCpu(), mode)
    assert not {"patch", "hoist"} & {one.name for one in found.traces}
    assert found.barriers == (mode == "barrier")


def test_what_costs_more_than_it_saves_is_not_patched() -> None:
    def summed(a: torch.Tensor) -> torch.Tensor:
        a.neg_()
        a[0, 0].mul_(2)
        return (a * 2).sum()

    program = trace(h, *square())
    dear = CostModel(seconds_per_blend=math.inf, seconds_per_call=SECONDS_PER_LAUNCH)
    assert compile_program(program, OnCpu(), "auto", dear).barriers == 1
    assert compile_program(program, OnCpu(), "auto", OnCpu.cost).barriers == 0
    # The product would be written for the sum, which waits for its corner.
    assert compiled(summed).barriers == 1


def test_estimates_tell_what_patching_costs() -> None:
    [estimate] = compiled(h).estimates
    assert estimate.patches
    assert not estimate.blends
    assert str(estimate).startswith("patch: patch 24.00 us, blend inf us, barrier 268.00 us")


def patched(fn: Callable[..., Any], *args: torch.Tensor) -> list[Patch]:
    """What is patched of a function; its meaning stays."""
    plans: list[Patch] = []

    def choose(plan: Patch) -> bool:
        plans.append(plan)
        return True

    program = trace(fn, *args)
    assert meaning(patch(forward(out_of_place(program)), choose)) == meaning(program)
    return plans


def test_parts_of_two_operands_are_patched_in_one_order() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        b.add_(1)
        a[:2].mul_(2)
        b[4].mul_(3)
        a[1:3].mul_(4)
        return torch.addcmul(a, b, c)

    x = torch.arange(6.0)
    [plan] = patched(fn, x, x * 2, torch.ones(1))
    assert [box.starts for box in plan.boxes] == [(0,), (1,), (4,)]
    assert plan.part_bytes == 20


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: (a.add_(1), b.add_(1), a[:2].mul_(2), b[1:3].mul_(2), a + b)[4],
        lambda a, b: (a.add_(1), a.view(2, 3).diagonal().mul_(2), a.view(2, 3) + 1)[2],
        lambda a, b: (a.add_(1), a[:1].mul_(2), a.cumsum(0))[2],
        lambda a, b: (a.add_(1), a[:1].mul_(2), b.view(6, 1) + a)[2],
        lambda a, b: (a[1:4].add_(1), a[2:5].mul_(2), a[1:4] + 1)[2],
        lambda a, b: (a[:1].mul_(2), a + b)[1],
        lambda a, b: (a.add_(1), torch._foreach_add_([a[:1]], 1), a + b)[2],
        lambda a, b: (a.add_(1), a[:1].mul_(2), a.sum())[2],
    ],
    ids=[
        "parts that overlap",
        "no box",
        "not element-wise",
        "broadcast",
        "a part that sticks out",
        "nothing known below",
        "an unknown part",
        "a reduction",
    ],
)
def test_what_cannot_be_patched(fn: Callable[..., Any]) -> None:
    assert patched(fn, torch.arange(6.0), torch.ones(6)) == []


def test_nothing_is_divided_that_eager_does_not_divide() -> None:
    """The zero is overwritten before."""

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.sub_(1)
        a[:1].fill_(1)
        return b // a

    x = torch.arange(1, 7)
    assert patched(fn, x, x) == []


def test_nothing_to_patch_is_the_program_itself() -> None:
    program = forward(out_of_place(trace(lambda a: (a.add_(1), a[0].add_(1), a[1] + 1)[2], *square())))
    assert patch(program, lambda _: True) is program
    program = forward(out_of_place(trace(h, *square())))
    assert patch(program, lambda _: False) is program


def test_stores_of_patched_results_are_patched() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.neg_()
        a[0, 0].mul_(2)
        made = a * 3
        b.t().copy_(made)
        a.copy_(made)
        return made

    x = torch.arange(16.0).reshape(4, 4)
    program = forward(out_of_place(trace(fn, x, x + 16)))
    found = patch(program, lambda _: True)
    memory = MemorySSA(found)
    assert found is not program
    # Of the last call of each kind: below, and the corner, in both inputs and in the result.
    assert [memory.stored(i) is not None for i, what in enumerate(memory.accesses) if what.writes] == [True] * 8
    assert meaning(found) == meaning(program)


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, 200, 50)], ids=lambda s: f"{s.start}")
def test_patching_keeps_the_meaning(seeds: range) -> None:
    """Whatever can be is patched, and hoisted; what then is read in parts still is blended or not."""
    plans = 0
    for seed in seeds:
        program = patch_program(seed)
        wanted = meaning(program)
        choose = Always("auto", CostModel(seconds_per_blend=math.inf if seed % 2 else 0.0))
        for name, run in passes(choose):
            before, program = program, run(program)
            plans += name == "patch" and program is not before
            assert meaning(program) == wanted, f"{name} changes program {seed}"
    assert plans > len(seeds) // 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [patch_program, random_program])
def test_compiled_programs_do_what_eager_does(make: Callable[[int], Program], mode: Aliases) -> None:
    for seed in range(1000, 1060):
        program = make(seed)
        wanted = meaning(program)
        backend = (OnCpu, WeakMemory)[seed % 2](seed, early=(seed % 3) / 2)
        assert meaning(program, compile_program(program, backend, mode).run) == wanted, f"program {seed} goes wrong"
