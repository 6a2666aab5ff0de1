"""What some programs came to, as plain data of bounded size that adds up, in any order and from any number of machines."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

import msgspec

from fuzz.coverage import Coverage

MOST = 512  # failures that are counted by how they look


class Sample(msgspec.Struct, array_like=True):
    """Exact counts by name, of the `MOST` names with the smallest hashes; `others` counts all the rest together.

    While there are no more names than that, they are all there. A name that is dropped from a part would be dropped from
    the whole, since the smaller hashes are there, too: so parts add up to the same in any order.
    """

    counts: dict[str, int] = {}
    others: int = 0

    @classmethod
    def of(cls, counts: dict[str, int]) -> Sample:
        """The sample of these counts, each at least 1."""
        if len(counts) <= MOST:
            return cls(counts)
        kept = {name: counts[name] for name in sorted(counts, key=_hash)[:MOST]}
        return cls(kept, sum(counts.values()) - sum(kept.values()))

    def __add__(self, other: Sample) -> Sample:
        whole = Sample.of(added(self.counts, other.counts))
        return Sample(whole.counts, whole.others + self.others + other.others)


class Tally(msgspec.Struct, array_like=True):
    """Programs and what became of them: a commutative monoid under `+`, with `Tally()` as its zero.

    `outcomes` counts programs as `fuzz.accounts` does, `coverage` those that were drawn, `failures` how failures look.
    `phases` are milliseconds by what was done: whole numbers, so that sums do not depend on their order. `batches` are
    those that ended.
    """

    outcomes: dict[str, int] = {}
    coverage: Coverage = msgspec.field(default_factory=Coverage)
    failures: Sample = msgspec.field(default_factory=Sample)
    phases: dict[str, int] = {}
    batches: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            added(self.outcomes, other.outcomes),
            self.coverage + other.coverage,
            self.failures + other.failures,
            added(self.phases, other.phases),
            self.batches + other.batches,
        )

    @property
    def programs(self) -> int:
        """How many programs were judged."""
        return sum(self.outcomes.values())


def added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The sums of counts by name."""
    return dict(Counter(one) + Counter(other))


def reaches_more(part: Coverage, whole: Coverage) -> bool:
    """Whether a part names something that the whole does not: an operator, a dtype, a way to lie, a feature."""
    return any(getattr(part, field).keys() - getattr(whole, field).keys() for field in _NAMED)


_NAMED = ("operators", "dtypes", "inputs", "dependences", "features")


def _hash(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()
