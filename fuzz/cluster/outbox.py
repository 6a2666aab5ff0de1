"""A worker's side of the protocol: what it has to say, numbered, and kept until the coordinator has it on disk."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from executor.limits import Limits
from fuzz.cluster.messages import Begin, Delta, Failure, Found, Place, Reply, Report, Welcome
from fuzz.cluster.tally import Sample, Tally
from fuzz.coverage import Coverage
from fuzz.findings import Kind

_DETAIL = 80  # characters of a failure's detail that are counted apart


class Outbox:
    """What the worker with this seat has done since it was welcomed. `shrunk` counts what was shrunk anywhere, as far as it knows."""

    def __init__(self, worker: int, welcome: Welcome) -> None:
        self.worker, self.incarnation = worker, welcome.incarnation
        self.shrunk = Counter[Kind]()
        self._log: list[Kind] = []  # the coordinator's list of them
        self._kept: deque[Delta] = deque()
        self._start_place = self._place = welcome.place
        self._passed = len(welcome.passed)
        self._seq = self._have = 0
        self._epoch, self._version = welcome.epoch, welcome.version
        self._start()

    def _start(self) -> None:
        self._tally, self._failures = Tally(), Counter[str]()
        self._found: list[Found] = []
        self._met: list[Failure] = []
        self._settled: list[Kind] = []
        self._stale: dict[str, str] = {}
        self._begin: Begin | None = None

    @property
    def urgent(self) -> bool:
        """Whether there is something that others wait for, or should know of at once."""
        return bool(self._found or self._met or self._settled or any(self._unknown()))

    @property
    def safe(self) -> bool:
        """Whether all that was closed is on the coordinator's disk."""
        return not self._kept

    def count(self, outcomes: Mapping[str, int]) -> None:
        """Programs were judged."""
        self._tally.outcomes = dict(Counter(self._tally.outcomes) + Counter(outcomes))

    def cover(self, coverage: Coverage) -> None:
        """What the programs were like."""
        self._tally.coverage += coverage

    def spend(self, phase: str, seconds: float) -> None:
        """Time went by in a phase."""
        self._tally.phases[phase] = self._tally.phases.get(phase, 0) + round(seconds * 1000)

    def fail(self, kind: Kind) -> None:
        """A program failed so."""
        self._failures[" / ".join((kind.symptom, kind.detail[:_DETAIL], kind.dependence, kind.relation))] += 1

    def end_batch(self) -> None:
        """A batch is over."""
        self._tally.batches += 1

    def find(self, found: Found) -> None:
        """A failure was shrunk and is kept."""
        self._found.append(found)

    def meet(self, failure: Failure) -> None:
        """A failure is there for others to shrink."""
        self._met.append(failure)

    def settle(self, kinds: Iterable[Kind]) -> None:
        """Failures of these kinds were shrunk."""
        kinds = list(kinds)
        self._settled += kinds
        self.shrunk.update(kinds)

    def stale(self, flag: str, why: str) -> None:
        """A flag does not hold."""
        self._stale[flag] = why

    def begin(self, limits: Any, versions: dict[str, str]) -> None:
        """A target is there, within these limits (as built-in types)."""
        self._begin = Begin(msgspec.convert(limits, Limits), versions)

    def close(self, arm: int, place: Place) -> None:
        """All so far was done on this arm, and the worker is at this place now. Nothing is closed if that says nothing."""
        self._tally.failures = Sample.of(dict(self._failures))
        delta = Delta(
            self._seq + 1, arm, place, self._tally, self._found, self._met, self._settled, self._stale, self._begin
        )
        if delta != Delta(self._seq + 1, arm, self._place, Tally()):
            self._seq, self._place = self._seq + 1, place
            self._kept.append(delta)
            self._start()

    def report(
        self, *, free: bool, holding: Iterable[Kind] = (), note: str = "", ended: bool = False, node: str = ""
    ) -> Report:
        """All that the coordinator does not have."""
        return Report(self.worker, self.incarnation, list(self._unknown()), self._start_place, free, ended, list(holding),
                      self._epoch, len(self._log), self._version, note, self._passed, node)  # fmt: skip

    def _unknown(self) -> Iterable[Delta]:
        return (delta for delta in self._kept if delta.seq > self._have)

    def take(self, reply: Reply) -> None:
        """Takes in what the coordinator answered to a report."""
        self._have, self._epoch, self._version = reply.have, reply.epoch, reply.version
        while self._kept and self._kept[0].seq <= reply.durable:
            self._kept.popleft()
        self._log[reply.since :] = reply.shrunk
        self.shrunk = Counter(self._log)
        for delta in self._unknown():
            self.shrunk.update(delta.shrunk)
        self.shrunk.update(self._settled)
