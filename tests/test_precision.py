"""The measurement of the verifier's precision: what it counts, on programs where one can tell by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks.precision import Subject, Tally, judge_early, judge_partition, measure
from executor.tracing import trace


def subject(fn: Callable[..., Any], *args: torch.Tensor) -> Subject:
    """The function, compiled without blends."""
    return Subject(trace(fn, *args), "barrier", 0)


def test_random_programs_have_no_wrong_acceptance() -> None:
    partitions, early = measure(40, 7)
    assert partitions.accepted > 20
    assert early.accepted > 3
    assert partitions.accepted_wrong == early.accepted_wrong == 0


def test_a_read_without_its_barrier_is_rejected_and_wrong() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return x * 2

    mine, tally = subject(fn, torch.ones(2, 2)), Tally()
    found = [judge_partition(mine, part, mine.wanted(), tally) for part in mine.partitions()]
    assert set(found) == {None}
    assert tally.rejected == tally.wrong > 0
    assert tally.precision == 1


def test_elements_that_nobody_sees_do_not_count() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return torch.as_strided_scatter(x, y, (4,), (1,), 0) * 2

    mine, tally = subject(fn, torch.ones(4), torch.ones(4)), Tally()
    for part in mine.partitions():
        judge_partition(mine, part, mine.wanted(), tally)
    assert tally.rejected == tally.dead > 0


def test_equal_values_stored_twice_are_rejected_though_harmless() -> None:
    def fn(x: torch.Tensor) -> None:
        x.fill_(1)
        x[0].fill_(1)

    mine, tally = subject(fn, torch.ones(3)), Tally()
    first, second = (i for i in range(len(mine.program.calls)) if mine.memory.accesses[i].writes)
    levels = tuple(1 if i == first else level for i, level in enumerate(mine.best.levels))
    assert second > first
    kind = judge_partition(mine, mine.best._replace(levels=levels), mine.wanted(), tally)
    assert kind == "is written twice, in the wrong order"
    assert tally.harmless == {kind: 1}
    assert tally.precision == 0


@pytest.mark.parametrize(
    ("fn", "wrong"),
    [(lambda x: (x.sum() + 1, x.add_(1))[0], 1), (lambda x: (x * 2 + 1, x.add_(1))[0], 0)],
    ids=["refused", "accepted"],
)
def test_early_write_backs_are_judged(fn: Callable[..., Any], wrong: int) -> None:
    mine, tally = subject(fn, torch.ones(3)), Tally()
    [found] = mine.early()
    assert judge_early(mine, found, mine.wanted(), tally) is None
    assert (tally.rejected, tally.wrong, tally.accepted) == (wrong, wrong, 1 - wrong)
    assert tally.accepted_wrong == 0
