"""The coordinator: merges what workers report, says what each does next, and can be killed at any moment.

It is called with one message at a time, and waits for nothing but the snapshot that holds a worker's last report: others are
written in the background. Its state is bounded, and its work grows with the number of messages, not of programs.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from corpus.flags import Flag
from fuzz.accounts import FAILURES
from fuzz.cluster.bandit import choose, take
from fuzz.cluster.failures import Failures
from fuzz.cluster.messages import Ask, Delta, Hello, Left, Reply, Report, Setup, Welcome
from fuzz.cluster.snapshots import Snapshots
from fuzz.cluster.state import MOST_FINDINGS, MOST_PASSED, Seat, State
from fuzz.cluster.tally import reaches_more

BETWEEN_SNAPSHOTS = 5.0  # seconds
_MOST_KINDS = 256  # of those that were shrunk, in one reply
_decode = msgspec.msgpack.Decoder(State).decode


class Progress(msgspec.Struct, array_like=True):
    """How a campaign goes: in numbers, what keeps workers from working, and what is wrong with the store of the state."""

    programs: int
    failures: int
    findings: int
    killed: int
    used: float
    left: float
    begun: float
    ended: int
    restarts: int
    silent: dict[int, float]
    notes: dict[int, str]
    store: str = ""


class Coordinator:
    """Serves a campaign whose state is, and will be, in `snapshots`. `now` are seconds since the epoch."""

    def __init__(
        self,
        state: State,
        snapshots: Snapshots,
        now: Callable[[], float] = time.time,
        chance: random.Random | None = None,
    ) -> None:
        self.state = state
        self._snapshots, self._now = snapshots, now
        self._chance = chance or random.Random()
        self._epoch = secrets.randbits(31)
        self._last = self._snapped = now()
        self._number, self._changed = snapshots.saved, True
        # Each seat's incarnation and last delta in the snapshot that is written, and in the one that is on disk.
        self._offered: list[tuple[int, int]] = []
        self._durable: list[tuple[int, int]] = []
        self._failures = Failures(state)

    @classmethod
    def begin(
        cls, setup: Setup, flags: tuple[Flag, ...], snapshots: Snapshots, now: Callable[[], float] = time.time
    ) -> Coordinator:
        """A coordinator that goes on where the last one was, if there is a snapshot, or else from the beginning."""
        saved = snapshots.load()
        state = _decode(saved[1]) if saved is not None else State.of(setup, flags)
        state.restarts += saved is not None
        made = cls(state, snapshots, now)
        made._snapped = 0.0  # the next one has to know of this one at once
        made._save()
        return made

    def hello(self, hello: Hello) -> Welcome:
        """A worker takes its seat; whoever had it before is out."""
        now, seat = self._turn(), self.state.seats[hello.worker]
        self.state.begun = self.state.begun or now
        # By the clock: a coordinator that began from an older state must give no number twice.
        seat.incarnation, seat.seq, seat.ended = max(seat.incarnation + 1, int(now * 1e6)), 0, False
        seat.holders += 1
        seat.node, seat.note, seat.heard, seat.since = hello.node, "", now, now
        self._failures.hold(hello.worker, [], now)
        self._failures.take_back(seat, now)
        for left in hello.killed:
            self._leave(left)
        self._pass_over(hello.worker)
        self._changed = True
        self._save(wait=5.0 if hello.killed else 0.0)  # the worker forgets them then
        return Welcome(
            self.state.setup, seat.incarnation, seat.place, seat.arm, self._left(seat), tuple(seat.passed),
            self._epoch, self.state.version, self.state.flags,
        )  # fmt: skip

    def report(self, report: Report) -> Reply:
        """Takes in what a worker did, each delta once, and says what it does next."""
        now, seat = self._turn(), self.state.seats[report.worker]
        if report.incarnation < seat.incarnation:
            return Reply(self._epoch, 0, 0, 0.0, out=True)
        if report.incarnation > seat.incarnation:  # this coordinator began from before that one's hello
            if (report.start, report.passed) != (seat.place, len(seat.passed)):
                return Reply(self._epoch, 0, 0, 0.0, anew=True)
            seat.incarnation, seat.seq = report.incarnation, 0
            seat.holders += 1
            self.state.begun = self.state.begun or now
        for delta in report.deltas:
            if delta.seq == seat.seq + 1:
                self._merge(seat, delta, now)
        seat.heard, seat.note, seat.ended = now, report.note, report.ended
        seat.node = report.node or seat.node
        self._failures.hold(report.worker, report.holding, now)
        if report.free and not report.ended:
            self._next(seat, now)
            if not report.holding:
                self._failures.give(report.worker, now)
        self._save(wait=1.0 if report.ended else 0.0)
        reply = Reply(self._epoch, seat.seq, self._durable_of(report.worker), self._left(seat), seat.arm)
        reply.job = seat.job if report.free and seat.job is not None and seat.job.kind not in report.holding else None
        self._broadcast(report, reply)
        return reply

    def lease(self, ask: Ask) -> bool:
        """Whether a worker may shrink a failure of this kind; see `Failures.lease`."""
        now = self._turn()
        current = ask.incarnation == self.state.seats[ask.worker].incarnation
        self._changed = True
        return current and self._failures.lease(ask.worker, ask.kind, now)

    def use(self, flags: tuple[Flag, ...]) -> None:
        """From now on these flags are on, everywhere."""
        if flags != self.state.flags:
            self.state.flags, self.state.version = flags, self.state.version + 1
            self._changed = True

    def stop(self) -> None:
        """Ends the campaign early: each worker learns of it with its next reply."""
        self.state.stopped = self._changed = True

    def progress(self) -> Progress:
        """How it goes."""
        now = self._turn()
        self._save()
        state = self.state
        outcomes = Counter[str]()
        for merged in state.targets.values():
            outcomes.update(merged.tally.outcomes)
        return Progress(
            outcomes.total() + len(state.killed),
            sum(outcomes[name] for name in FAILURES),
            len(state.findings),
            len(state.killed),
            state.used,
            self._budget_left(),
            state.begun,
            sum(seat.ended for seat in state.seats),
            state.restarts,
            {k: round(now - seat.heard, 1) for k, seat in enumerate(state.seats) if not seat.ended and seat.heard},
            {k: seat.note for k, seat in enumerate(state.seats) if seat.note},
            self._snapshots.error,
        )

    def close(self, seconds: float = 30.0) -> str:
        """Keeps what was not shrunk as it is, unless its like was shrunk, and saves the state; why that failed, or nothing."""
        self._failures.keep_rest(self._now())
        for number in range(len(self.state.seats)):
            self._pass_over(number)
        self._changed, self._snapped = True, 0.0
        self._save(wait=seconds)
        self._save(wait=seconds)  # the first may have found one being written
        return self._snapshots.error

    def _turn(self) -> float:
        """Counts the time since the last call, and says what time it is."""
        now = self._now()
        if self.state.begun and not self._all_ended():
            self.state.used += max(now - self._last, 0.0)
            self._changed = True
        self._last = now
        return now

    def _all_ended(self) -> bool:
        return all(seat.ended for seat in self.state.seats)

    def _budget_left(self) -> float:
        return 0.0 if self.state.stopped else max(self.state.setup.options.budget - self.state.used, 0.0)

    def _left(self, seat: Seat) -> float:
        done = 0 < self.state.setup.rounds <= seat.place.batch
        return 0.0 if done else self._budget_left()

    def _merge(self, seat: Seat, delta: Delta, now: float) -> None:
        merged = self.state.targets[self.state.setup.arms[delta.arm][0]]
        new = reaches_more(delta.tally.coverage, merged.tally.coverage)
        merged.tally += delta.tally
        merged.stale.update(delta.stale)
        merged.begin = delta.begin or merged.begin
        part = int((now - self.state.begun) / self.state.width)
        merged.throughput[part] = merged.throughput.get(part, 0) + delta.tally.programs
        for found in delta.found:
            new |= self._failures.find(found, now)
        for kind in delta.shrunk:
            self._failures.settle(kind, seat)
        for failure in delta.met:
            self._failures.meet(failure)
        seat.won |= new and delta.arm == seat.arm
        seat.seq, seat.place = delta.seq, delta.place
        seat.passed = [one for one in seat.passed if one.batch >= seat.place.batch]
        seat.left = [left for left in seat.left if _ahead(left, seat)]
        self._changed = True

    def _leave(self, left: Left) -> None:
        """Notes a program that was in flight, unless it was reported as done with, or is passed over by now.

        Its seat may have another holder, who judges it; so only the next holder, if it was not done with, will pass over it.
        """
        seat = self.state.seats[left.worker]
        known = left.passed in seat.passed or any(left.passed == other.passed for other in seat.left)
        if _ahead(left, seat) and not known and len(seat.passed) + len(seat.left) < MOST_PASSED:
            seat.left.append(left)

    def _pass_over(self, worker: int) -> None:
        """Keeps what was in flight on a seat that has no holder, or a new one: from now on it is passed over."""
        seat, killed = self.state.seats[worker], self.state.killed
        for left in seat.left:
            seat.passed.append(left.passed)
            if len(killed) < MOST_FINDINGS:
                killed.append((worker, left.found))
            else:
                self.state.lost += 1
        seat.left = []

    def _next(self, seat: Seat, now: float) -> None:
        """Another arm for a worker between two batches, if its turn on this one is over."""
        if now - seat.since >= self.state.setup.turn:
            take(self.state.arms[seat.arm], won=seat.won)
            seat.arm, seat.since, seat.won = choose(self.state.arms, self._chance), now, False

    def _broadcast(self, report: Report, reply: Reply) -> None:
        """Adds to a reply what all have to know and this worker does not."""
        fresh = report.epoch == self._epoch
        reply.since = min(report.shrunk, len(self.state.shrunk)) if fresh else 0
        reply.shrunk = self.state.shrunk[reply.since : reply.since + _MOST_KINDS]
        reply.version = self.state.version
        reply.waiting = bool(self.state.waiting)
        if not fresh or report.flags != self.state.version:
            reply.flags = self.state.flags

    def _save(self, wait: float = 0.0) -> None:
        """Writes a snapshot if it is time to; `wait` for so many seconds if it must be on disk now."""
        self._note_saved(self._snapshots.poll())
        now = self._now()
        if self._changed and (wait or now - self._snapped >= BETWEEN_SNAPSHOTS):
            offered = [(seat.incarnation, seat.seq) for seat in self.state.seats]
            if self._snapshots.offer(self._number + 1, lambda: msgspec.msgpack.encode(self.state)):
                self._number, self._offered, self._snapped, self._changed = self._number + 1, offered, now, False
        self._note_saved(self._snapshots.poll(wait))

    def _durable_of(self, worker: int) -> int:
        """The last delta of a worker that is on disk."""
        if worker >= len(self._durable):
            return 0
        incarnation, seq = self._durable[worker]
        return seq if incarnation == self.state.seats[worker].incarnation else 0

    def _note_saved(self, number: int) -> None:
        if number == self._number:
            self._durable = self._offered
        elif self._snapshots.error:
            self._changed = True


def _ahead(left: Left, seat: Seat) -> bool:
    """Whether a program that was in flight is not reported as done with."""
    return (left.place.batch, left.place.drawn) >= (seat.place.batch, seat.place.drawn)
