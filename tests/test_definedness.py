"""Programs whose writes depend on the order of elements have no right outcome, and are never what a failure shrinks to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings

from executor.program import Program
from executor.tracing import trace
from fuzz.definedness import is_defined
from fuzz.reducer import reduce
from strategies.programs import programs

X = torch.arange(24.0)


@pytest.mark.parametrize(
    ("fn", "args", "defined"),
    [
        (lambda b, c: b.add_(c), (X.as_strided((4, 2), (6, 1), 2), X.as_strided((4, 2), (6, 1), 0)), True),
        (lambda b, c: b.add_(c), (X.as_strided((4, 2), (6, 1), 1), X.as_strided((4, 2), (6, 1), 0)), False),
        (lambda b: b.add_(b), (X,), True),
        (lambda b: b.zero_(), (X[:1].expand(3),), True),
        (lambda b, c: torch._foreach_add_([b, c], 1), (X[:5], X[5:]), True),
    ],
)
def test_definedness(fn: Callable[..., Any], args: tuple[torch.Tensor, ...], defined: bool) -> None:  # noqa: FBT001
    assert is_defined(trace(fn, *args)) is defined


@settings(max_examples=300, deadline=None, database=None, phases=(Phase.generate,))
@given(programs())
def test_all_programs_that_are_drawn_are_defined(program: Program) -> None:
    assert is_defined(program)


def test_a_failure_shrinks_to_a_defined_program() -> None:
    seen: list[Program] = []

    def fails(program: Program) -> bool:
        seen.append(program)
        return any(call.op == "aten.add_.Tensor" for call in program.calls)

    start = trace(lambda b, c: b.add_(c), X.as_strided((4, 2), (6, 1), 2), X.as_strided((4, 2), (6, 1), 0))
    small = reduce(start, fails)
    assert is_defined(small)
    assert all(map(is_defined, seen))
    assert len(seen) > 5
