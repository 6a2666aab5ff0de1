"""What a worker shrinks, and what others do: it asks for a lease on a kind of failure, and hands over what it has no time for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from fuzz.check import Verdict
from fuzz.cluster.link import Link
from fuzz.cluster.messages import Ask, Failure, Found, packed
from fuzz.cluster.outbox import Outbox
from fuzz.findings import Kind
from fuzz.muting import SHRINKS_PER_KIND, Muting, muted

_ASKED_AGAIN = 30.0  # seconds after which a lease that was refused is asked for again


class Sharing(Muting):
    """One worker's part in it. `found` makes of a failed verdict what is kept, and `arm` says on which arm the worker is."""

    def __init__(
        self,
        outbox: Outbox,
        link: Link,
        found: Callable[[Verdict], Found],
        arm: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.holding: set[Kind] = set()
        self._outbox, self._link, self._found, self._arm, self._clock = outbox, link, found, arm, clock
        self._refused: dict[Kind, float] = {}

    def muted(self, seed: int) -> Callable[[Kind], bool]:
        """See `Muting`. The first failure that is not muted is one whose lease this worker has; more of them need none."""
        shrunk = muted(Counter(self._outbox.shrunk), seed)
        self.holding.clear()

        def passed(kind: Kind) -> bool:
            self._outbox.fail(kind)
            return kind not in self.holding and (shrunk(kind) or not (self.holding or self.take(kind)))

        return passed

    def take(self, kind: Kind) -> bool:
        """Whether this worker may shrink a failure of this kind; yes if nobody answers, for it would be lost else."""
        if self._clock() < self._refused.get(kind, 0.0):
            return False
        given = self._link.ask(packed(Ask(self._outbox.worker, self._outbox.incarnation, kind)))
        if given is False:
            self._refused[kind] = self._clock() + _ASKED_AGAIN
            return False
        self.holding.add(kind)
        return True

    def drop(self) -> None:
        """Nothing is shrunk at the moment."""
        self.holding.clear()

    def often(self, kind: Kind) -> bool:
        """See `Muting`: often enough anywhere."""
        return self._outbox.shrunk[kind] >= SHRINKS_PER_KIND

    def add(self, kinds: Iterable[Kind]) -> None:
        """See `Muting`."""
        kinds = set(kinds)
        self._outbox.settle(kinds)
        self.holding -= kinds

    def hand_over(self, verdict: Verdict, kind: Kind, seed: int) -> bool:
        """See `Muting`: always."""
        self._outbox.meet(Failure(kind, self._found(verdict), self._arm(), seed))
        return True
