"""Hoisting: small parts of what element-wise calls compute, computed from their operands' parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from executor.backends.weak_memory import WeakMemory
from executor.cost import CostModel
from executor.memory_ssa import MemorySSA
from executor.passes.forward import forward
from executor.passes.functional import out_of_place
from executor.passes.hoist import Hoist, hoist
from executor.pipeline import Chooser
from executor.program import Program
from executor.tracing import trace
from tests.alias_programs import meaning


def hoisted(fn: Callable[..., Any], *args: torch.Tensor) -> tuple[Program, list[Hoist]]:
    """The program with whatever can be hoisted, and what was; its meaning stays."""
    plans: list[Hoist] = []

    def choose(plan: Hoist) -> bool:
        plans.append(plan)
        return True

    program = forward(out_of_place(trace(fn, *args)))
    found = hoist(program, choose)
    assert meaning(found) == meaning(program)
    return found, plans


def small(program: Program, most: int) -> list[str]:
    """The calls that compute so few elements."""
    memory = MemorySSA(program)
    return [
        call.op.split(".")[1]
        for call, what in zip(program.calls, memory.accesses, strict=True)
        if not (what.address or what.writes) and program.values[call.results[0]].numel <= most
    ]


def square() -> torch.Tensor:
    return torch.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    ("fn", "calls"),
    [
        (lambda x, y: (x + 1)[0, 0] * 2, ["add", "mul"]),
        (lambda x, y: (x + y)[1] * 2, ["add", "mul"]),
        (lambda x, y: (x + 1).neg().t()[2:3, 1:3] * 2, ["add", "neg", "mul"]),
        (lambda x, y: ((x.t() + 1).t() * y)[:1, ::2] * 2, ["add", "mul", "mul"]),
        (lambda x, y: (x + 1)[:1].expand(2, 6)[:, 3] * 2, ["add", "mul"]),
        (lambda x, y: (x + y[:1].neg())[0, 0] * 2, ["neg", "add", "mul"]),
    ],
    ids=["element", "row", "of the transpose", "two", "expanded", "beside an element"],
)
def test_a_small_part_is_computed_of_small_parts(fn: Callable[..., Any], calls: list[str]) -> None:
    found, plans = hoisted(fn, square(), torch.ones(6))
    assert small(found, 6) == calls
    assert len(plans) == 1


def test_it_reads_memory_as_the_whole_does() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        x.mul_(3)
        return y[0, 0] * 2

    found, _ = hoisted(fn, square())
    assert small(found, 1) == ["add", "mul"]


def test_parts_are_computed_once() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        z = y * 2
        return y[0, 0] - z[0, 0] - z.t()[0, 0]

    found, plans = hoisted(fn, square())
    assert small(found, 1) == ["add", "mul", "sub", "sub"]
    assert [len(plan.needed) for plan in plans] == [1, 2, 2]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x + 1).t() * 2,
        lambda x: x[0] * 2,
        lambda x: x.cumsum(0)[0] * 2,
        lambda x: (x + x.sum(1, keepdim=True))[0] * 2,
        lambda x: (x + 1).diagonal() * 2,
        lambda x: x[0].copy_((x[1:] + 1)[0]),
    ],
    ids=["as large", "of memory", "not element-wise", "of a sum", "no box", "a store"],
)
def test_what_stays(fn: Callable[..., Any]) -> None:
    program = forward(out_of_place(trace(fn, square())))
    assert hoist(program, lambda _: True) is program


def test_long_chains_stay() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        for _ in range(17):
            x = x.neg()
        return x[0, 0] + 1

    assert hoisted(fn, square())[1] == []


def test_parts_are_hoisted_where_that_costs_less() -> None:
    [row] = hoisted(lambda x: (x + 1)[0] * 2, square())[1]
    [element] = hoisted(lambda x: (x + 1)[0, 0] * 2, square())[1]
    for cost, expected in ((WeakMemory.cost, True), (CostModel(), True), (CostModel(seconds_per_call=1.0), False)):
        assert Chooser("auto", cost).hoists(element) is expected
    assert Chooser("auto", WeakMemory.cost).hoists(row)
    [half] = hoisted(lambda x: (x + 1)[:2] * 2, square())[1]
    assert not Chooser("auto", WeakMemory.cost).hoists(half)
