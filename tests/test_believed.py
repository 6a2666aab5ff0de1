"""Memory SSA taken at its word: it changes nothing if the analysis is right, and shows where it is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from executor.geometry import Overlap
from executor.interpreter import run
from executor.memory_ssa import Reach, State
from executor.program import Program
from executor.targets.believed import believed
from executor.tracing import trace
from tests.alias_programs import meaning, random_program


def row_then_whole(x: torch.Tensor) -> torch.Tensor:
    x[0].add_(1)
    return x * 2


def whole_then_row(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.t()[1] * 2


def inner(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0].add_(1)
    return y + 1


def expanded(x: torch.Tensor) -> torch.Tensor:
    wide = x[0].expand(3, 2)
    x.add_(1)
    return wide * 2


@pytest.mark.parametrize("fn", [row_then_whole, whole_then_row, inner, expanded])
def test_a_right_analysis_changes_nothing(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    program = trace(fn, torch.arange(4.0).reshape(2, 2))
    assert meaning(program, partial(believed, program)) == meaning(program)


def test_it_changes_nothing_on_random_programs() -> None:
    for program in (random_program(seed, 8) for seed in range(60)):
        assert meaning(program, partial(believed, program)) == meaning(program)


def missed(_state: State, _value: int) -> list[Reach]:
    return []


def differs(program: Program, monkeypatch: pytest.MonkeyPatch, reaching: Callable[[State, int], list[Reach]]) -> bool:
    monkeypatch.setattr(State, "reaching", reaching)
    return bool(meaning(program, partial(believed, program)) != meaning(program))


@pytest.mark.parametrize("fn", [row_then_whole, whole_then_row, inner])
def test_a_missed_write_shows(fn: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    assert differs(trace(fn, torch.arange(4.0).reshape(2, 2)), monkeypatch, missed)


def test_two_places_taken_for_one_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return x[1] * 2

    def same(state: State, value: int) -> list[Reach]:
        index = state._index.get(state.values[value].storage)
        return [Reach(write, Overlap.MUST_ALIAS) for write in index.meeting(0, 16)] if index is not None else []

    program = trace(fn, torch.arange(4.0).reshape(2, 2))
    assert run(program, [torch.arange(4.0).reshape(2, 2)]).tolist() == [4.0, 6.0]
    monkeypatch.setattr(State, "reaching", same)
    monkeypatch.setattr("executor.targets.believed.index_map", lambda read, write: torch.arange(2).numpy())
    assert believed(program, [torch.arange(4.0).reshape(2, 2)]).tolist() == [2.0, 4.0]
