"""Tallies add up to the same in any order; samples are exact below their bound; a bandit goes where something new is."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fuzz.cluster import tally
from fuzz.cluster.bandit import Arm, choose, take
from fuzz.cluster.messages import packed, unpacked
from fuzz.cluster.tally import Sample, Tally, reaches_more
from fuzz.coverage import Coverage

counts = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 1000))
coverages = st.builds(
    Coverage, programs=st.integers(0, 9), looked_at=st.integers(0, 9), operators=counts, dtypes=counts, features=counts
)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Samples as they come about: made of counts, and added up."""
    return sum((Sample.of(one) for one in draw(st.lists(counts, max_size=3))), Sample())


tallies = st.builds(
    Tally, outcomes=counts, coverage=coverages, failures=samples(), phases=counts, batches=st.integers(0, 9)
)


@given(tallies, tallies, tallies)
def test_tallies_are_a_commutative_monoid(a: Tally, b: Tally, c: Tally) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Tally() == a


@given(st.lists(counts, max_size=6), st.randoms(), st.integers(1, 8))
def test_a_sample_is_of_bounded_size_and_does_not_depend_on_how_it_was_added_up(
    parts: list[dict[str, int]], chance: random.Random, most: int
) -> None:
    before, tally.MOST = tally.MOST, most
    try:
        at_once = Sample.of(dict(sum(map(Counter, parts), Counter[str]())))
        pile = [Sample.of(part) for part in parts] or [Sample()]
        while len(pile) > 1:
            one, other = (pile.pop(chance.randrange(len(pile))) for _ in range(2))
            pile.append(one + other)
        assert pile[0] == at_once
        assert len(at_once.counts) <= most
        assert sum(at_once.counts.values()) + at_once.others == sum(sum(part.values()) for part in parts)
        exact = sum(map(Counter, parts), Counter[str]())
        assert all(exact[name] == count for name, count in at_once.counts.items())
    finally:
        tally.MOST = before


@given(tallies)
def test_a_tally_crosses_as_it_is(one: Tally) -> None:
    assert unpacked(packed(one), Tally) == one


def test_a_coverage_that_names_something_else_reaches_more() -> None:
    whole = Coverage(operators={"a": 3}, dependences={"x": 1})
    assert not reaches_more(Coverage(operators={"a": 9}), whole)
    assert reaches_more(Coverage(operators={"b": 1}), whole)
    assert reaches_more(Coverage(dependences={"y": 1}), whole)


def played(yields: list[float], turns: int, seed: int = 1) -> list[Arm]:
    chance, arms = random.Random(seed), [Arm() for _ in yields]
    for _ in range(turns):
        arm = choose(arms, chance)
        take(arms[arm], won=chance.random() < yields[arm])
    return arms


def test_an_arm_that_yields_gets_most_turns_and_none_is_given_up() -> None:
    arms = played([0.5, 0.02, 0.02, 0.02], 1000)
    assert arms[0].turns > 600
    assert min(arm.turns for arm in arms) > 10


def test_an_arm_that_yields_no_more_loses_its_turns() -> None:
    chance, arms = random.Random(2), [Arm(), Arm()]
    for _ in range(300):
        take(arms[0], won=True)
    for _ in range(1000):
        arm = choose(arms, chance)
        take(arms[arm], won=arm == 1 and chance.random() < 0.3)
    assert arms[1].turns > 700
    assert arms[1].yields > 0.2 * arms[1].turns
