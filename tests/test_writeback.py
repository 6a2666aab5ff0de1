"""What is left of a store after others, against sets of bytes."""

from __future__ import annotations

import random

import pytest

from executor.geometry import Footprint, Offsets
from executor.passes.writeback import Remainder

DTYPES = {"uint8": 1, "float16": 2, "float32": 4, "float64": 8}


def drawn(rng: random.Random) -> Footprint:
    """Up to 6 x 3 elements in the first 80 bytes, apart from each other."""
    dtype = rng.choice(list(DTYPES))
    size, inner = rng.randint(1, 6 if dtype != "float64" else 3), rng.randint(1, 3)
    gap = rng.randint(0, 1)
    room = 80 // DTYPES[dtype] - size * (inner + gap)
    return Footprint(DTYPES[dtype], (size, inner), (inner + gap, 1), rng.randint(0, max(room, 0)), dtype)


def test_the_remainder_of_a_store_is_the_bytes_that_no_other_covers() -> None:
    rng = random.Random(0)
    emptied = 0
    for _ in range(300):
        whole = drawn(rng)
        remainder, left = Remainder(whole), set(whole.byte_set().tolist())
        for _ in range(12):
            other = drawn(rng)
            touched = set(other.byte_set().tolist())
            if rng.random() < 0.5:
                remainder.subtract(other)
                left -= touched
            else:
                assert remainder.meets(other) == bool(left & touched)
            assert remainder.empty == (not left)
        emptied += not left
    assert 30 < emptied < 270


def test_each_of_many_stores_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Footprint] = []
    units = Footprint.units

    def counted(footprint: Footprint, size: int) -> Offsets:
        listed.append(footprint)
        return units(footprint, size)

    monkeypatch.setattr(Footprint, "units", counted)
    remainder = Remainder(Footprint(4, (50,), (1,), 0, "float32"))
    for i in range(1, 40):
        remainder.subtract(Footprint(4, (50,), (1,), i, "float32"))
        assert not remainder.empty
    assert len(listed) == len(set(listed)) == 40
