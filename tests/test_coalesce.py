"""A store into fresh memory is the allocation, unless somebody still needs the stored value as it was."""

from __future__ import annotations

import torch

from executor.passes.coalesce import coalesce
from executor.passes.forward import forward
from executor.passes.functional import out_of_place
from executor.passes.writeback import dead_stores
from executor.tracing import trace
from tests.alias_programs import meaning


def test_a_value_that_nobody_else_needs_becomes_memory_that_changes() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[0].zero_()
        return y

    program = out_of_place(trace(fn, torch.ones(2, 3)))
    merged = coalesce(program)
    assert [sum(call.op == "aten.copy_.default" for call in one.calls) for one in (program, merged)] == [2, 1]
    assert meaning(merged) == meaning(program)


def test_a_value_that_others_need_too_becomes_memory_that_stays() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        y.add_(1)
        return y, y * 3

    program = dead_stores(forward(out_of_place(trace(fn, torch.ones(3)))))
    merged = coalesce(program)
    assert [sum(call.op == "aten.copy_.default" for call in one.calls) for one in (program, merged)] == [1, 0]
    assert meaning(merged) == meaning(program)
