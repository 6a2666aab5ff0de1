"""The stages of compilers as targets: right where the compiler is, and the first that is wrong where a fault is planted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.planted_faults import Faulty
from executor import targets
from executor.errors import TargetError
from executor.program import Program
from executor.targets.thunder import Thunder
from executor.tracing import trace
from fuzz.blame import stage
from fuzz.check import check
from tests.alias_programs import random_program


def two_rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return b + 1


def rows() -> Program:
    x = torch.arange(4.0) * 3
    return trace(two_rows, x[0], x[1])


def row_of() -> Program:
    x = torch.arange(4.0).reshape(2, 2)
    return trace(two_rows, x[0], x)


def layers() -> Program:
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        b.add_(1)
        return c + 1

    x = torch.arange(2.0)
    return trace(fn, x[0], x[1], x)


def cast() -> Program:
    return trace(lambda a: (a.gt_(0), a + 1)[1], torch.arange(2.0))


def twice() -> Program:
    return trace(lambda a: a.add_(1).add_(1), torch.ones(2))


def second_row() -> Program:
    return trace(lambda a: a.add_(1), torch.arange(2.0)[1])


BLAMED = [
    ("storage offset ignored", rows, "memory SSA"),
    ("partial overlap taken for none", row_of, "memory SSA"),
    ("disjoint taken for identical", rows, "memory SSA"),
    ("a reaching write missed", layers, "memory SSA"),
    ("forwarding without the cast", cast, "forward"),
    ("barrier dropped", row_of, "regions"),
    ("write-back forgotten", second_row, "dead stores"),
    ("write-back of a stale value", twice, "out of place"),
]


@pytest.mark.parametrize(("fault", "program", "where"), BLAMED)
def test_a_planted_fault_is_blamed_on_its_stage(fault: str, program: Any, where: str) -> None:
    target = Faulty(fault)
    verdict = check(program(), target=target)
    assert not verdict.ok
    assert stage(verdict, target) == where
    assert stage(verdict, target, guess=where) == where
    assert stage(verdict, target, guess="coalesce") == where


@pytest.mark.parametrize("name", targets.get("pipeline").stages)
def test_each_stage_of_the_pipeline_is_right(name: str) -> None:
    part = targets.get("pipeline").stages[name]
    for seed in range(25):
        assert str(check(random_program(seed, 8), target=part)).startswith(part.name + ": ok")


def test_stages_have_names_under_which_they_are_found() -> None:
    for name in ("pipeline", "aot_eager", "inductor"):
        for stage_name, part in targets.get(name).stages.items():
            whole = part is targets.get(name)
            assert part.name == (name if whole else f"{name}/{stage_name}")
            assert targets.get(f"{name}/{stage_name}") is part
    assert list(targets.get("inductor").stages) == ["dynamo", "functionalization", "aot", "inductor"]
    assert list(targets.get("aot_eager").stages) == ["dynamo", "functionalization", "aot"]


def test_an_unknown_stage_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TargetError, match=r"target 'aot_eager' has no stage 'no'; its stages are dynamo, func"):
        targets.get("aot_eager/no")
    with pytest.raises(TargetError, match="its stages are none"):
        targets.get("null/no")


def test_a_third_partys_stages_are_used() -> None:
    class Staged:
        name = "staged"
        stages = {"front": targets.get("null")}  # noqa: RUF012

        def compile(self, fn: Any, example_args: Any) -> Any:
            raise NotImplementedError

    assert targets.adapt(Staged()).stages == Staged.stages


@pytest.mark.thunder
def test_thunder_is_tried_without_alias_updates_first() -> None:
    thunder = targets.get("thunder")
    x = torch.arange(4.0) * 3
    verdict = check(trace(two_rows, x[:2], x[2:]), target=thunder)
    assert verdict.symptoms[0] == "value"
    assert stage(verdict, thunder) == "alias updates"


@pytest.mark.thunder
def test_fuel_limits_what_thunder_fuses_in_one_function_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Executor:
        def set_fuel(self, value: Any) -> None:
            seen.append(value)

    target = Thunder("thunder/fusion 2", fuel=2)
    monkeypatch.setattr(target._thunder, "get_executor", lambda name: Executor() if name == "nvfuser" else None)
    compiled = target.compile(lambda a: a + 1, ())
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert seen[0] == 2
    assert seen[1].name == "UNLIMITED"
