"""Large programs run fused or call by call, whichever takes less time when nothing disturbs it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from executor.backends.eager import Eager
from executor.backends.nvfuser import settling
from executor.pipeline import Compilation, compile_program
from executor.tracing import trace


def settled(monkeypatch: pytest.MonkeyPatch, fused: Sequence[float], plain: Sequence[float]) -> str:
    """Which of the two is kept, if they take so many milliseconds, turn by turn."""
    monkeypatch.setattr(settling, "LARGE", 1)
    program = trace(lambda x: x.add_(1) * 2, torch.ones(4))
    compilation = compile_program(program, Eager())
    left = {True: list(fused), False: list(plain)}

    def milliseconds(one: Compilation, inputs: Sequence[torch.Tensor]) -> float:
        one.run(inputs)
        return left[one is compilation].pop(0)

    monkeypatch.setattr(settling, "_milliseconds", milliseconds)
    chosen = settling.settled(compilation, program)
    assert chosen.note.startswith("measured: ")
    return "fused" if chosen is compilation else "call by call"


def test_the_faster_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settled(monkeypatch, [2, 2, 2, 2], [3, 3, 3, 3]) == "fused"
    assert settled(monkeypatch, [3, 3, 3, 3], [2, 2, 2, 2]) == "call by call"


def test_a_turn_that_warms_up_or_is_disturbed_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settled(monkeypatch, [9, 2, 9, 9], [1, 3, 3, 3]) == "fused"


def test_small_programs_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_milliseconds", None)
    program = trace(lambda x: x + 1, torch.ones(4))
    compilation = compile_program(program, Eager())
    assert settling.settled(compilation, program) is compilation
