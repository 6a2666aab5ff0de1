"""Which failures are shrunk, and which only counted: else the commonest would take all the time, and hide the rarer ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable

from fuzz.check import Verdict
from fuzz.findings import Kind

# Wrong numbers first: symptoms that users notice, or hardly mind, count as shrunk so many times more once one was.
HEAD_START = {"exception": 1, "timeout": 1, "memory-limit": 1, "state": 1, "strides": 1, "identity": 2}
SHRINKS_PER_KIND = 2  # how often failures that look alike are shrunk before they are only counted


class Muting:
    """What a shard knows of the failures that were shrunk, and decides by it. One that shares a campaign asks others, too."""

    def __init__(self) -> None:
        self.shrunk = Counter[Kind]()

    def muted(self, seed: int) -> Callable[[Kind], bool]:
        """Which failures the batch with this seed passes over."""
        return muted(self.shrunk, seed)

    def often(self, kind: Kind) -> bool:
        """Whether failures that look so were shrunk often enough."""
        return self.shrunk[kind] >= SHRINKS_PER_KIND

    def add(self, kinds: Iterable[Kind]) -> None:
        """Notes that a failure was shrunk: how it looks now, and how it looked before."""
        self.shrunk.update(kinds)

    def hand_over(self, verdict: Verdict, kind: Kind, seed: int) -> bool:  # noqa: ARG002 - a default for all
        """Whether somebody else shrinks this failure, which the batch with this seed met."""
        return False


def muted(shrunk: Counter[Kind], seed: int) -> Callable[[Kind], bool]:
    """Which failures the batch with this seed passes over, given how often each kind was shrunk before.

    A kind that was shrunk often enough, always. Otherwise a symptom that was shrunk n times, in n of n + 1 batches: else
    the commonest symptom would take all the time, and hide the rarer ones. Never one that was not shrunk yet.
    """
    often: Counter[tuple[str, str]] = Counter()
    for kind, count in shrunk.items():
        often[kind.symptom, kind.detail] += count

    def passed(kind: Kind) -> bool:
        count = often[kind.symptom, kind.detail]
        if count:
            count += HEAD_START.get(kind.symptom, 0)
        chance = random.Random(f"{seed}/{kind.symptom}/{kind.detail}").random()
        return shrunk[kind] >= SHRINKS_PER_KIND or chance < count / (count + 1)

    return passed
