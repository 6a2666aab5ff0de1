"""What may be computed once, and what looks as if it might."""

from __future__ import annotations

import torch

from executor.passes.cleanup import common_subexpressions
from executor.tracing import trace


def test_equal_writes_are_all_made() -> None:
    def fn(x: torch.Tensor) -> None:
        row = x[0]
        row.zero_()
        x.add_(1)
        row.zero_()

    program = trace(fn, torch.ones(2, 2))
    assert common_subexpressions(program) == program
