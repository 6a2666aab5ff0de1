"""Failures between workers: who shrinks which, what waits to be shrunk, and what is kept."""

from __future__ import annotations

from collections import Counter

import msgspec

from fuzz.cluster.messages import Failure, Found
from fuzz.cluster.state import MOST_FINDINGS, MOST_WAITING, Finding, Lease, Seat, State
from fuzz.findings import Kind
from fuzz.muting import SHRINKS_PER_KIND

LEASE = 120.0  # seconds after which one that is not renewed by a report is over
MOST_TRIES = 3  # workers that are to shrink one failure, before it is kept as it is


class Failures:
    """The failures of a campaign, which are in its state. Times are seconds since the epoch."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._shrunk = Counter(state.shrunk)

    def lease(self, worker: int, kind: Kind, now: float) -> bool:
        """Whether a worker may shrink a failure of this kind: one does at a time, and some times in all."""
        if self._shrunk[kind] >= SHRINKS_PER_KIND:
            return False
        held = self._state.leases.get(kind)
        if held is not None and held.worker != worker and held.until > now:
            return False
        self._state.leases[kind] = Lease(worker, now + LEASE)
        return True

    def find(self, found: Found, now: float) -> bool:
        """Keeps a finding, or counts it; whether nobody has seen its like before."""
        if (before := self._state.findings.get(found.signature)) is not None:
            before.times += 1
            return False
        if len(self._state.findings) >= MOST_FINDINGS:
            self._state.lost += 1
            return False
        known = found.signature in self._state.setup.known
        self._state.findings[found.signature] = Finding(found, now, known)
        return not known

    def settle(self, kind: Kind, seat: Seat) -> None:
        """A kind was shrunk; often enough, and it is muted everywhere."""
        if self._shrunk[kind] < SHRINKS_PER_KIND:
            self._shrunk[kind] += 1
            self._state.shrunk.append(kind)
        if self._shrunk[kind] >= SHRINKS_PER_KIND:
            self._state.waiting = [failure for failure in self._state.waiting if failure.kind != kind]
        if seat.job is not None and seat.job.kind == kind:
            seat.job = None
        self._state.leases.pop(kind, None)

    def meet(self, failure: Failure) -> None:
        """A failure waits to be shrunk, unless its like was, or waits, too: of two the shorter one stays."""
        if self._shrunk[failure.kind] >= SHRINKS_PER_KIND:
            return
        waiting = self._state.waiting
        like = next((k for k, other in enumerate(waiting) if other.kind == failure.kind), None)
        if like is not None:
            if len(failure.found.case.program.calls) < len(waiting[like].found.case.program.calls):
                waiting[like] = failure
        elif len(waiting) < MOST_WAITING:
            waiting.append(failure)
        else:
            self._state.lost += 1

    def hold(self, worker: int, kinds: list[Kind], now: float) -> None:
        """A worker's leases are these, and no others; what is over is taken away from others, too."""
        leases = self._state.leases
        for kind, lease in list(leases.items()):
            if lease.worker == worker and kind not in kinds:
                del leases[kind]
            elif lease.until <= now:
                del leases[kind]
                seat = self._state.seats[lease.worker]
                if seat.job is not None and seat.job.kind == kind:
                    self.take_back(seat, now)
        for kind in kinds:
            if kind not in leases or leases[kind].worker == worker:
                leases[kind] = Lease(worker, now + LEASE)

    def take_back(self, seat: Seat, now: float) -> None:
        """A worker that was to shrink a failure has not; another one is to, or it is kept as it is."""
        if (job := seat.job) is not None:
            seat.job = None
            if job.tries < MOST_TRIES:
                self._state.waiting.append(job)
            else:
                self.find(job.found, now)
                self.settle(job.kind, seat)

    def give(self, worker: int, now: float) -> None:
        """Gives a worker between two batches a failure to shrink, if one waits that nobody shrinks; its lease is renewed."""
        seat = self._state.seats[worker]
        if seat.job is None:
            free = (k for k, failure in enumerate(self._state.waiting) if failure.kind not in self._state.leases)
            if (chosen := next(free, None)) is not None:
                job = self._state.waiting.pop(chosen)
                seat.job = msgspec.structs.replace(job, tries=job.tries + 1)
        if seat.job is not None:
            self._state.leases[seat.job.kind] = Lease(worker, now + LEASE)

    def keep_rest(self, now: float) -> None:
        """Keeps what was not shrunk as it is, unless its like was."""
        for failure in [*self._state.waiting, *(seat.job for seat in self._state.seats if seat.job is not None)]:
            if not self._shrunk[failure.kind]:
                self.find(failure.found, now)
        self._state.waiting = []
