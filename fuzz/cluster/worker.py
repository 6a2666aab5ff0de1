"""A worker: runs batches of its seat until the campaign is over, and reports now and then. It may be killed at any moment.

Batch number k of seat w draws its programs from the seed that (campaign, target, w, k) give, so whoever has the seat draws the
same: one that begins anew goes on behind the last program that the coordinator knows to be done, and whatever was not reported
is done again. The program in flight is on the node's own disk, as in any campaign; after a kill it becomes a case, and is
passed over.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from corpus.case import CorpusError
from executor import printing, targets
from executor.errors import TargetError
from executor.targets import Target
from fuzz.campaign import CALLED_AGAIN, Shard, batch_seed, set_aside
from fuzz.check import Verdict
from fuzz.cluster.bench import Bench, Cases, NoRoom
from fuzz.cluster.examples import Examples
from fuzz.cluster.killed import done, forget, killed, told
from fuzz.cluster.link import Link
from fuzz.cluster.messages import Failure, Found, Hello, Place, Reply, Welcome, packed, unpacked
from fuzz.cluster.outbox import Outbox
from fuzz.cluster.rerun import rerun
from fuzz.cluster.sharing import Sharing
from fuzz.coverage import Coverage
from fuzz.isolation import IsolationError
from fuzz.journal import Journal, JournalError
from fuzz.keeper import Keeper, case_of

FLUSH = 30.0  # seconds for the last report to reach the coordinator, and its disk
REST = 5.0  # seconds after which a worker that could not work tries again; twice as long each time
_LONGEST_REST = 60.0
_LOOK = 0.2  # seconds between two looks for an answer, where there is nothing else to do
# What is wrong with a node, not with the campaign: another time, or on another node, it may not be there.
_OF_THE_NODE = (CorpusError, IsolationError, JournalError, NoRoom, OSError, TargetError)


class Worker:
    """The holder of a seat. `scratch` is a folder on the node's own disk that the node's workers share.

    `examples` opens the shared examples at an address. What keeps it from working, such as a full disk, is reported, and waited for
    to pass; what is wrong with the harness itself is raised.
    """

    def __init__(
        self,
        number: int,
        link: Link,
        scratch: Path,
        node: str = "",
        *,
        examples: Callable[[str], Examples | None] = lambda url: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._number, self._link, self._scratch = number, link, scratch
        self._examples_at, self._sleep = examples, sleep
        self._node = node
        welcome = self._hello()
        self._setup, self._flags, self._passed = welcome.setup, welcome.flags, welcome.passed
        self._place, self._arm, self._wanted = welcome.place, welcome.arm, welcome.arm
        self._deadline = time.monotonic() + welcome.left
        self._outbox = Outbox(number, welcome)
        self._sharing = Sharing(self._outbox, link, self._as_found, lambda: self._arm)
        self._cases = Cases()
        self._bench = Bench(welcome.setup, number, scratch, self._event, self._keeper, self._where)
        self._examples = examples(welcome.setup.redis)
        self._shard: Shard | None = None
        self._job: Failure | None = None
        self._running = self._out = self._anew = self._renew = False
        self._note, self._rest, self._next_report = "", REST, 0.0
        self._phase, self._since = "", time.monotonic()
        self._counts, self._counted = Counter[str](), welcome.place  # what was reported of the shard, up to which place
        self._told: set[str] = set()  # targets of which the coordinator knows limits and versions

    def _hello(self) -> Welcome:
        left = killed(self._scratch)
        hello = Hello(self._number, self._node, tuple(told(dead, self._scratch.name) for dead in left.values()))
        welcome = unpacked(self._link.hello(packed(hello)), Welcome)
        forget(left)
        return welcome

    def run(self) -> bool:
        """Works until the campaign is over, or somebody else has the seat. Whether a new worker has to take the seat."""
        with set_aside():
            try:
                self._work_on()
            finally:
                self._leave()
                self._bench.close()
        self._end()
        return self._anew

    def _work_on(self) -> None:
        while time.monotonic() < self._deadline and not self._out:
            try:
                self._work()
                self._note, self._rest = "", REST
            except _OF_THE_NODE as error:
                self._pause(error)

    @property
    def _target(self) -> str:
        return self._setup.arms[self._arm][0]

    def _work(self) -> None:
        """One batch, or one failure that another worker met; then a report, if it is time to, or something to tell."""
        if self._job is not None:
            self._shrink(self._job)
        else:
            self._batch()
        self._look()
        if not self._link.busy and (self._outbox.urgent or time.monotonic() >= self._next_report):
            self._send(free=True)

    def _batch(self) -> None:
        shard, place = self._at(self._wanted), self._place
        seed = batch_seed(self._setup.options.seed, self._target, self._number, place.batch)
        try:
            self._running, self._counted = True, place
            shard.batch(seed, done(place, self._passed))
        except BaseException:
            if shard.whole:
                self._count(shard)
            self._counts, self._place = Counter(shard.counts), self._counted  # what comes after that is judged again
            raise
        finally:
            self._running = False
            self._sharing.drop()
        if time.monotonic() >= self._deadline and not shard.shrinks:  # perhaps it was not over
            self._place = Place(place.batch, max(shard.drawn, place.drawn))
            return
        self._place = Place(place.batch + 1)
        self._outbox.end_batch()
        if 0 < self._setup.rounds <= self._place.batch:
            self._deadline = 0.0

    def _here(self) -> Place:
        """How far the worker is."""
        if self._running and self._shard is not None:
            return Place(self._place.batch, max(self._shard.drawn, self._place.drawn))
        return self._place

    def _where(self) -> tuple[Place, bool]:
        """How far it is, and whether it draws there."""
        return self._here(), self._running and self._shard is not None and not self._shard.shrinks

    @property
    def _whole(self) -> bool:
        """Whether all that was counted is done with; what is not would be judged again if the worker were killed now."""
        return not self._running or self._shard is None or self._shard.whole

    def _count(self, shard: Shard) -> None:
        """Has what the shard has counted by now reported; the place goes with it."""
        counts = Counter(shard.counts)
        self._outbox.count(counts - self._counts)
        self._counts, self._counted = counts, self._here()

    def _shrink(self, job: Failure) -> None:
        """Shrinks what another worker met, or keeps it as flaky if it does not fail here."""
        shard = self._at(job.arm)
        self._sharing.holding = {job.kind}
        case = job.found.case
        if not shard.shrink(case.program, job.seed, case.relation):
            note = "It failed when one worker met it, and not when another was to shrink it."
            flaky = msgspec.structs.replace(case, state="flaky", note=note)
            self._outbox.find(msgspec.structs.replace(job.found, case=flaky))
        self._sharing.add({job.kind})
        self._job = None

    def _at(self, arm: int) -> Shard:
        """The shard of an arm."""
        if self._shard is None or self._renew or arm != self._arm:
            self._leave()
            self._arm, self._renew = arm, False
            self._shard = self._bench.shard(arm, self._flags, self._sharing, self._deadline)
            self._replay(self._shard)
        self._shard.until(self._deadline)
        return self._shard

    def _replay(self, shard: Shard) -> None:
        """Runs this worker's part of the shared examples, as far as they are new."""
        share = self._number, self._setup.workers
        for case in self._examples.new(self._target, share) if self._examples is not None else ():
            if time.monotonic() < self._deadline:
                self._sharing.drop()
                shard.shrink(case.program, 0 if case.calls else CALLED_AGAIN - 1, case.relation)

    def _leave(self) -> None:
        """Ends the shard, if there is one, and what it did is of its arm."""
        if self._shard is not None:
            self._shard.end()
            self._count(self._shard)
            self._shard = None
            self._turn("")
            self._outbox.close(self._arm, self._place)
            self._counts.clear()
        self._bench.leave()

    def _event(self, event: str, **fields: Any) -> None:
        """Takes in what the shard says of itself, and looks whether it is time to report."""
        if event == "coverage":
            self._outbox.cover(msgspec.convert(fields["counts"], Coverage))
        elif event == "phase":
            self._turn(fields["phase"])
        elif event == "finding":
            self._find(fields)
        elif event == "stale":
            self._outbox.stale(fields["flag"], fields["why"])
        elif event == "begin" and fields["target"] not in self._told:
            self._told.add(fields["target"])
            self._outbox.begin(fields["limits"], fields["versions"])
        self._tick()

    def _turn(self, phase: str) -> None:
        """Counts the time of the phase that ends."""
        now = time.monotonic()
        if self._phase:
            self._outbox.spend(self._phase, now - self._since)
        self._phase, self._since = phase, now

    def _keeper(self, compiler: Target, journal: Journal) -> Keeper:
        return Keeper(compiler, self._cases, frozenset(), journal)

    def _find(self, event: dict[str, Any]) -> None:
        case = self._cases.last
        assert case is not None, "a case is saved before it is told of"
        self._outbox.find(Found(case, event["text"], event["program"], self._rerun()))
        if self._examples is not None:
            self._examples.add(case)

    def _as_found(self, verdict: Verdict) -> Found:
        case = case_of(verdict, targets.versions(targets.get(self._target)))
        return Found(case, str(verdict), printing.listing(case.program), self._rerun())

    def _rerun(self) -> str:
        return rerun(self._setup, self._arm, self._number, self._place.batch)

    def _tick(self) -> None:
        """In the midst of work: takes an answer that is there, or reports if it is time to, at least that it is alive."""
        self._look()
        if not self._link.busy and time.monotonic() >= self._next_report:
            self._send(free=False)
        if self._shard is not None and time.monotonic() >= self._deadline:
            self._shard.until(self._deadline)

    def _send(self, *, free: bool, ended: bool = False) -> None:
        if self._whole:
            if self._shard is not None:
                self._count(self._shard)
            self._outbox.close(self._arm, self._here())
        report = self._outbox.report(
            free=free, holding=self._sharing.holding, note=self._note, ended=ended, node=self._node
        )
        self._next_report = time.monotonic() + self._setup.interval
        self._link.post(packed(report))

    def _look(self, wait: float = 0.0) -> None:
        data = self._link.answer(wait)
        if data is not None:
            self._take(unpacked(data, Reply))

    def _take(self, reply: Reply) -> None:
        if reply.out or reply.anew:
            self._out, self._anew, self._deadline = True, reply.anew, 0.0
            return
        self._outbox.take(reply)
        rounds = self._setup.rounds
        self._deadline = 0.0 if 0 < rounds <= self._place.batch else time.monotonic() + reply.left
        if reply.flags is not None and reply.flags != self._flags:
            self._flags, self._renew = reply.flags, True
        self._wanted, self._job = reply.arm, reply.job or self._job
        if reply.waiting:
            self._next_report = min(self._next_report, time.monotonic() + 1.0)

    def _pause(self, error: BaseException) -> None:
        """Reports what is in the way, and waits."""
        self._note = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        self._sharing.drop()
        self._leave()
        until, self._rest = time.monotonic() + self._rest, min(2 * self._rest, _LONGEST_REST)
        self._next_report = 0.0
        while time.monotonic() < min(until, self._deadline) and not self._out:
            self._tick()
            self._sleep(_LOOK)

    def _end(self) -> None:
        """The last report, until it is on the coordinator's disk or there is no hope that it will be."""
        self._sharing.drop()
        until, told = time.monotonic() + FLUSH, False
        while time.monotonic() < until and not self._out and not (told and self._outbox.safe):
            if not self._link.busy:
                self._send(free=False, ended=True)
                told = True
            self._look(1.0)
            self._sleep(0.0 if self._outbox.safe else _LOOK)
