"""The backend that campaigns draw with: uniform, repeatable, and as good as Hypothesis's own in all else."""

from __future__ import annotations

from collections import Counter
from math import inf

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from executor.program import Program
from fuzz.uniform import BACKEND
from strategies.programs import programs


def drawn(strategy: st.SearchStrategy[object], seed: int, count: int) -> list[object]:
    """What the backend draws from a strategy, in order."""
    found: list[object] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count, database=None, deadline=None, backend=BACKEND, phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    @hypothesis.given(strategy)
    def collect(value: object) -> None:
        found.append(value)

    collect()
    return found


def test_bounded_integers_are_uniform() -> None:
    counts = Counter(drawn(st.integers(0, 4), seed=1, count=5000))
    assert set(counts) == set(range(5))
    assert all(abs(count - 1000) < 6 * (1000 * 0.8) ** 0.5 for count in counts.values())  # six standard deviations


def test_one_seed_draws_one_sequence() -> None:
    assert drawn(programs(), 7, 30) == drawn(programs(), 7, 30)
    assert drawn(programs(), 7, 30) != drawn(programs(), 8, 30)


def test_nearly_every_program_is_a_new_one() -> None:
    found = drawn(programs(), 3, 400)
    assert len(found) == 400
    assert len({program.digest for program in found if isinstance(program, Program)}) > 390


def test_other_kinds_of_choices_are_left_to_hypothesis() -> None:
    found = drawn(st.tuples(st.integers(), st.floats(), st.text(), st.booleans(), st.binary()), 5, 300)
    assert len(set(map(repr, found))) > 250
    assert any(isinstance(value, tuple) and value[1] in (inf, -inf) for value in found)


def test_a_failure_shrinks_as_ever() -> None:
    @hypothesis.seed(0)
    @hypothesis.settings(max_examples=500, database=None, deadline=None, backend=BACKEND)
    @hypothesis.given(st.lists(st.integers(0, 200), min_size=1))
    def small(values: list[int]) -> None:
        seen.append(values)
        assert sum(values) < 150

    seen: list[list[int]] = []
    with pytest.raises(AssertionError):
        small()
    assert seen[-1] == [150]
