"""What `target()` is compared with: each way draws programs, and ends with one that fails."""

from __future__ import annotations

import pytest
import torch

from benchmarks.targeted import WAYS, Drawn, batch
from executor import targets
from executor.program import Program
from executor.tracing import trace


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_ends_with_a_program_that_fails(way: str) -> None:
    seen: list[Program] = []

    def judged(program: Program) -> bool:
        seen.append(program)
        return len(seen) < 20

    batch(way, targets.get("null"), 0, judged)
    assert 20 <= len(seen) <= 22  # Hypothesis runs what fails again
    assert len({program.digest for program in seen}) > 10


def test_a_row() -> None:
    def apart(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return x[1] * 2

    def in_part(x: torch.Tensor) -> torch.Tensor:
        x[:2].add_(1)
        return x[1:] * 2

    found = [trace(fn, torch.ones(3)) for fn in (apart, in_part, in_part, in_part)]
    assert Drawn(found, 2.0).row("uniform").split() == ["uniform", "4", "50.0", "75.0", "75.0", "4", "1.0", "500.00"]
