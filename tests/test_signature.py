"""Signatures: what they say, when two may be of one bug, and a digest that stays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from benchmarks.signatures import lines, same, share, shared
from corpus.signature import Signature

FULL = Signature("thunder", "value", "", "alias updates", ("in-place", "pointwise"), "overlapping")


def test_the_digest_depends_on_the_fields_alone() -> None:
    assert FULL.digest == "1814dced4973"
    assert msgspec.json.decode(msgspec.json.encode(FULL), type=Signature).digest == FULL.digest
    assert len({FULL.digest, *(msgspec.structs.replace(FULL, **change).digest for change in CHANGES)}) == 7


CHANGES: list[dict[str, Any]] = [
    {"target": "inductor"}, {"symptom": "memory"}, {"detail": "KeyError"}, {"stage": "executors"},
    {"accesses": ("in-place", "reduction")}, {"relation": "identical"},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_differs_is_another_bug(change: dict[str, Any]) -> None:
    assert not FULL.fits(msgspec.structs.replace(FULL, **change))


@pytest.mark.parametrize("change", [{}, {"stage": ""}, {"accesses": ()}])
def test_what_is_not_known_does_not_differ(change: dict[str, Any]) -> None:
    other = msgspec.structs.replace(FULL, **change)
    assert FULL.fits(other)
    assert other.fits(FULL)


def test_it_reads_as_a_sentence() -> None:
    text = str(FULL).partition(" ")[2]
    assert text == "thunder: value in alias updates, in-place then pointwise over overlapping"
    assert str(Signature("thunder", "exception", "KeyError")).endswith(" thunder: exception (KeyError)")


def test_the_shares_that_are_measured_of_planted_faults() -> None:
    one, other = Signature("pipeline", "wrong", "", "forward"), Signature("pipeline", "wrong", "", "regions")
    mixed, plain = Counter({one: 3, other: 1}), Counter({one: 2})
    assert (same(mixed), same(plain)) == ((3, 6), (1, 1))
    assert shared(mixed, plain) == (6, 8)
    assert share([same(mixed), same(plain)]) == 4 / 7
    assert share([]) == 0
    text = list(lines([(other, "def program(a):\n    return a"), (one, "first"), (one, "second")]))
    assert [line.split() for line in text] == [
        ["2", *str(one).split()], ["first"], ["1", *str(other).split()], ["def", "program(a):"], ["return", "a"],
    ]  # fmt: skip
