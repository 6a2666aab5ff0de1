"""Straight-line code and single calls do what the interpreter does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from executor.args import Dict, Ref
from executor.calls import Calls, prepare
from executor.program import Program
from executor.straight import WORTH_IT, Straight, straight
from executor.tracing import trace

X = torch.arange(6.0).reshape(2, 3)
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "one operand and constants": lambda x: x.sum([0], keepdim=True),
    "two operands": lambda x: x + x.t().reshape(2, 3),
    "keywords": lambda x: x.add(x, alpha=2).to(torch.float64),
    "lists of tensors": lambda x: torch.cat([x, x, x], 1),
    "several results": lambda x: torch.var_mean(x, 0),
    "a list of results": lambda x: x.split(1, 0),
    "a list of one": lambda x: x.split(6, 0)[0] + 1,
    "tensors after constants": lambda x: torch.where(x > 2, x, -x),
    "no operands": lambda x: torch.ones(2, 3) + x,
    "infinite constants": lambda x: x.clamp(float("-inf"), 3.0),
}


def last_values(program: Program) -> list[int]:
    return list(program.calls[-1].results)


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_compute_what_eager_does_first_and_later(name: str) -> None:
    program = trace(PROGRAMS[name], X)
    calls = Calls(program.calls, program.inputs, last_values(program))
    wanted: list[torch.Tensor] = []
    env = [X, *[None] * (len(program.values) - 1)]
    for call in program.calls:
        prepare(call)(env)
    wanted = [env[v] for v in last_values(program)]  # type: ignore[misc]
    eager = PROGRAMS[name](X)
    assert torch.equal(wanted[-1], eager if isinstance(eager, torch.Tensor) else eager[-1])
    for _ in range(WORTH_IT + 2):
        assert all(torch.equal(a, b) for a, b in zip(calls([X]), wanted, strict=True))


def test_a_function_of_calls_takes_inputs_and_gives_outputs() -> None:
    program = trace(lambda x, y: (x + y) * 2, X, X)
    run = straight(program.calls, program.inputs, [*last_values(program), 0])
    product, same = run([X, X])
    assert torch.equal(product, X * 4)
    assert same is X


def test_outputs_can_be_any_tree() -> None:
    text = Straight([0, 1])
    text.free([1])
    assert text.finish(Dict((("a", Ref(0)), ("b", None), ("c", "text"))))([X, X]) == {"a": X, "b": None, "c": "text"}
