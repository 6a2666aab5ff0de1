"""The coordinator counts everything once, whatever is lost, repeated or killed; it leases, hands over, spreads and shares."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from corpus.case import Case
from corpus.flags import Flag, Match
from corpus.signature import Signature
from executor.tracing import trace
from fuzz.cluster.failures import LEASE, MOST_TRIES
from fuzz.cluster.messages import Ask, Failure, Found, Hello, Left, Passed, Place, Reply, Report, Welcome
from fuzz.cluster.outbox import Outbox
from fuzz.cluster.state import continued
from fuzz.coverage import Coverage
from fuzz.findings import Kind
from fuzz.muting import SHRINKS_PER_KIND
from tests.cluster import Center, Clock, options, setup

PROGRAM = trace(lambda x: x.mul_(2), torch.ones(3))


def found(name: str, number: float = 2) -> Found:
    program = PROGRAM if number == 2 else trace(lambda x: x.mul_(number), torch.ones(3))
    case = Case(target="null", state="open", signature=Signature("null", "value", name), program=program)
    return Found(case, f"null differs: {name}", "def program(x): ...", "aliasfuzz run --batch 0/0")


def kind(name: str = "value") -> Kind:
    return Kind("null", name, "", "none", "none")


def failure(name: str, number: float = 2) -> Failure:
    return Failure(kind(name), found(name, number), 0, 1)


BATCH = 10  # programs


def at(number: int) -> Place:
    """The place of a seat that has done with so many programs."""
    return Place(*divmod(number, BATCH))


class Hand:
    """A worker whose work is done by hand."""

    def __init__(self, center: Center, number: int = 0, killed: Sequence[Left] = ()) -> None:
        self.center, self.number = center, number
        self.welcome: Welcome = center.coordinator.hello(Hello(number, "node", tuple(killed)))
        self.outbox = Outbox(number, self.welcome)
        self.place = self.welcome.place

    @property
    def done(self) -> int:
        """How many programs of the seat are done with."""
        return self.place.batch * BATCH + self.place.drawn

    def work(self, programs: int) -> None:
        """Judges programs, but for those to pass over, and finds something in every seventh."""
        for _ in range(programs):
            passed = Passed(self.place.batch, self.place.drawn + 1) in self.welcome.passed
            self.place = at(self.done + 1)
            if not passed:
                self.outbox.count({f"ok {self.number}": 1})
            if self.done % 7 == 0 and not passed:
                self.outbox.find(found(f"{self.number}-{self.done}"))
        self.outbox.close(0, self.place)

    def die(self) -> Left:
        """What it leaves if it is killed while it judges the next program."""
        return Left(self.number, self.place, msgspec.structs.replace(found("in flight"), text=f"{self.done + 1}"))

    def send(self, *, take: bool = True, ended: bool = False) -> Reply:
        report = self.outbox.report(free=True, ended=ended, node="node")
        reply = self.center.coordinator.report(report)
        if take and not reply.out and not reply.anew:
            self.outbox.take(reply)
        return reply


class Faults(RuleBasedStateMachine):
    """Three workers, a network that loses and repeats, a disk that fails, and kills of everything."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        path = Path(self.folder.name)
        self.center = Center(setup(path, workers=3, budget=1e9), str(path / "state"), now=self.clock)
        self.workers = [Hand(self.center, k) for k in range(3)]
        self.stale: list[Report] = []
        self.evidence: list[Left] = []  # of programs in flight, on nodes

    @rule(k=st.integers(0, 2), programs=st.integers(1, 20))
    def work(self, k: int, programs: int) -> None:
        self.workers[k].work(programs)

    @rule(k=st.integers(0, 2), what=st.sampled_from(["arrives", "request lost", "reply lost", "arrives twice"]))
    def report(self, k: int, what: str) -> None:
        hand = self.workers[k]
        self.stale.append(hand.outbox.report(free=False))
        if what == "request lost":
            return
        reply = hand.send(take=what != "reply lost")
        if what == "arrives twice":
            reply = hand.send()
        if reply.anew or reply.out:
            self.workers[k] = Hand(self.center, k)

    @rule(which=st.integers(0, 1000))
    def an_old_report_arrives(self, which: int) -> None:
        if self.stale:
            self.center.coordinator.report(self.stale[which % len(self.stale)])

    @rule(k=st.integers(0, 2), here=st.booleans())
    def kill_a_worker(self, k: int, here: bool) -> None:  # noqa: FBT001 - a rule
        """The next one is on the same node, or finds nothing of it."""
        left = self.workers[k].die()
        if not here:
            self.evidence.append(left)
        self.workers[k] = Hand(self.center, k, [left] if here else [])

    @rule(k=st.integers(0, 2))
    def a_worker_finds_what_others_left(self, k: int) -> None:
        self.workers[k] = Hand(self.center, k, self.evidence)
        if self.center.disk.broken is None:
            self.evidence = []

    @rule()
    def kill_the_coordinator(self) -> None:
        self.clock.pass_(0.01)
        self.center.start()

    @rule(broken=st.booleans())
    def the_store(self, broken: bool) -> None:  # noqa: FBT001 - a rule
        self.center.disk.broken = OSError("unreachable") if broken else None

    @rule(seconds=st.sampled_from([1.0, 6.0, 60.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.clock.pass_(seconds)
        self.center.coordinator.progress()

    @invariant()
    def what_is_counted_is_what_places_say(self) -> None:
        if not hasattr(self, "center"):
            return
        state = self.center.coordinator.state
        counted = state.targets["null"].tally.outcomes
        signatures = {finding.found.case.signature.detail for finding in state.findings.values()}  # type: ignore[union-attr]
        for k, seat in enumerate(state.seats):
            done = seat.place.batch * BATCH + seat.place.drawn
            killed = [int(left.text) for worker, left in state.killed if worker == k]
            assert len(killed) == len(set(killed)), "each is kept once"
            assert counted.get(f"ok {k}", 0) + sum(number <= done for number in killed) == done
            assert {name for name in signatures if name.startswith(f"{k}-")} == {
                f"{k}-{n}" for n in range(7, done + 1, 7) if n not in killed
            }
        assert all(finding.times == 1 for finding in state.findings.values())

    def teardown(self) -> None:
        """Whatever went wrong, once it is over all live workers' work arrives."""
        if not hasattr(self, "center"):
            return
        with self.folder:
            self.all_arrives()

    def all_arrives(self) -> None:
        """What live workers have done is counted in the end."""
        self.center.disk.broken = None
        for k, hand in enumerate(self.workers):
            done = hand.place
            for _ in range(3):
                reply = hand.send()
                if reply.out or reply.anew:
                    break
            else:
                assert self.center.coordinator.state.seats[k].place == done
        self.what_is_counted_is_what_places_say()


TestFaults = Faults.TestCase
TestFaults.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def center(tmp_path: Path, clock: Clock) -> Center:
    return Center(setup(tmp_path, workers=4, turn=10.0), str(tmp_path / "state"), now=clock)


def test_a_delta_is_durable_once_a_snapshot_holds_it(center: Center, clock: Clock) -> None:
    hand = Hand(center)
    clock.pass_(6)
    hand.work(3)
    assert hand.send().durable == 1
    center.disk.broken = OSError("away")
    hand.work(3)
    clock.pass_(6)
    assert hand.send().durable == 1
    assert not hand.outbox.safe
    assert "away" in center.coordinator.progress().store
    center.start()  # the second delta is lost to the coordinator, and sent again
    center.disk.broken = None
    clock.pass_(6)
    assert hand.send().have == 1
    assert hand.send().have == 2
    clock.pass_(6)
    assert hand.send().durable == 2
    assert center.coordinator.state.seats[0].place == Place(0, 6)


def test_what_of_another_worker_is_durable_says_nothing(center: Center, clock: Clock) -> None:
    hand = Hand(center)
    for _ in range(5):
        hand.work(3)
        clock.pass_(6)
        assert hand.send().have > 0
    new = Hand(center)
    new.work(3)
    assert new.send().durable == 0
    center.start()
    center.coordinator.state.seats[0].node = "another"
    assert new.send().have == 0
    seat = center.coordinator.state.seats[0]
    assert (seat.node, seat.holders) == ("node", 2), "as its report says: its hello is forgotten"
    assert new.send().have == 1
    assert center.coordinator.state.seats[0].place == at(18)


def test_a_worker_before_whom_something_was_lost_begins_anew(center: Center) -> None:
    Hand(center).work(3)
    first = Hand(center)
    first.work(3)
    first.send()
    new = Hand(center)
    new.work(3)
    center.start()  # nothing was saved
    assert new.send().anew
    assert center.coordinator.state.seats[0].place == Place()
    assert Hand(center).welcome.place == Place()


def test_who_had_the_seat_before_is_out(center: Center) -> None:
    old, new = Hand(center), Hand(center)
    old.work(5)
    assert old.send().out
    assert center.coordinator.state.seats[0].place == Place()
    assert not new.send().out


def test_one_worker_at_a_time_shrinks_a_kind(center: Center, clock: Clock) -> None:
    one, other = Hand(center, 0), Hand(center, 1)
    lease = center.coordinator.lease
    held = [one.welcome.incarnation, other.welcome.incarnation]
    assert lease(Ask(0, held[0], kind()))
    assert lease(Ask(0, held[0], kind()))
    assert not lease(Ask(1, held[1], kind()))
    assert lease(Ask(1, held[1], kind("memory")))
    assert not center.coordinator.lease(Ask(0, 0, kind("alias"))), "of an incarnation that is out"
    for _ in range(4):  # it is renewed by each report
        clock.pass_(LEASE / 2)
        center.coordinator.report(one.outbox.report(free=False, holding=[kind()]))
        assert not lease(Ask(1, held[1], kind()))
    clock.pass_(LEASE + 1)  # and ends if there is none
    assert lease(Ask(1, held[1], kind()))
    other.outbox.settle([kind()])
    other.outbox.close(0, other.place)
    other.send()
    assert lease(Ask(0, held[0], kind())), "it may be shrunk a second time"
    one.outbox.settle([kind()])
    one.outbox.close(0, one.place)
    one.send()
    assert not lease(Ask(1, held[1], kind())), "and no more, anywhere"
    assert other.send().shrunk == [kind()]
    assert other.outbox.shrunk[kind()] == SHRINKS_PER_KIND


def test_what_one_worker_meets_another_one_shrinks_once(center: Center) -> None:
    one, other, third = (Hand(center, k) for k in range(3))
    one.outbox.meet(failure("value"))
    one.outbox.close(0, one.place)
    assert center.coordinator.report(one.outbox.report(free=False)).waiting
    given = other.send().job
    assert given is not None
    assert given.found == failure("value").found
    assert third.send().job is None
    assert other.send().job == given, "as long as it does not say that it has it"
    assert center.coordinator.report(other.outbox.report(free=True, holding=[kind()])).job is None
    other.outbox.find(found("shrunk"))
    other.outbox.settle([kind()])
    other.outbox.close(0, other.place)
    assert other.send().job is None
    assert center.coordinator.state.waiting == []


def test_of_failures_alike_the_shorter_one_waits(center: Center) -> None:
    one = Hand(center)
    longer = trace(lambda x: x.mul_(2).add_(1), torch.ones(3))
    case = Case(target="null", state="open", signature=Signature("null", "value"), program=longer)
    for met in (Failure(kind(), Found(case, "", "", ""), 0, 1), failure("value")):
        one.outbox.meet(met)
    one.outbox.close(0, one.place)
    center.coordinator.report(one.outbox.report(free=False))
    assert [waiting.found.case.program for waiting in center.coordinator.state.waiting] == [PROGRAM]


def test_a_failure_that_workers_die_of_is_kept_as_it_is(center: Center) -> None:
    one = Hand(center)
    one.outbox.meet(failure("deadly"))
    one.outbox.close(0, one.place)
    center.coordinator.report(one.outbox.report(free=False))
    for _ in range(MOST_TRIES):
        assert Hand(center, 1).send().job is not None
        assert center.coordinator.state.findings == {}
    assert Hand(center, 1).send().job is None
    assert [finding.found for finding in center.coordinator.state.findings.values()] == [found("deadly")]


def test_a_failure_that_nobody_had_the_time_to_shrink_is_kept_at_the_end(center: Center) -> None:
    one = Hand(center)
    for name in ("value", "memory"):
        one.outbox.meet(failure(name))
    one.outbox.settle([kind("memory")])
    one.outbox.close(0, one.place)
    center.coordinator.report(one.outbox.report(free=False))
    center.coordinator.close()
    assert [finding.found for finding in center.coordinator.state.findings.values()] == [found("value")]


def test_a_program_in_flight_is_kept_once_and_passed_over(center: Center) -> None:
    Hand(center, 1)
    left = Left(1, Place(), found("in flight"))
    for _ in range(2):  # the first welcome was lost
        again = Hand(center, 1, [left])
    state = center.coordinator.state
    assert [(worker, one.case.program) for worker, one in state.killed] == [(1, PROGRAM)]
    assert again.welcome.passed == (Passed(0, 1),)
    again.outbox.close(0, Place(1))
    again.send()
    assert Hand(center, 1, [Left(1, Place(0, 9), found("late", 3))]).welcome.passed == (), "done with"
    assert len(state.killed) == 1, "its verdict was reported"


def test_what_was_in_flight_in_a_later_batch_is_passed_over_there(center: Center) -> None:
    """The coordinator began from an older state, so that batches between are done again."""
    hand = Hand(center, 0, [Left(0, Place(2, 4), found("in flight"))])
    assert hand.welcome.place == Place()
    for batch in (1, 2):
        hand.outbox.close(0, Place(batch))
        hand.send()
        assert hand.welcome.passed == Hand(center).welcome.passed == (Passed(2, 5),)
        hand = Hand(center)
    hand.outbox.close(0, Place(3))
    hand.send()
    assert center.coordinator.state.seats[0].passed == []


def test_what_was_in_flight_elsewhere_is_judged_by_who_has_the_seat_by_now(center: Center) -> None:
    hand = Hand(center, 1)
    Hand(center, 0, [Left(1, Place(0, 4), found("in flight"))])  # a node came back, its workers are elsewhere
    assert center.coordinator.state.killed == []
    hand.work(6)
    hand.send()
    assert Hand(center, 1).welcome.passed == ()
    center.coordinator.close()
    assert center.coordinator.state.killed == []
    assert center.coordinator.state.targets["null"].tally.outcomes == {"ok 1": 6}


def test_what_was_in_flight_on_a_seat_that_nobody_takes_again_is_kept(center: Center) -> None:
    Hand(center, 1)
    Hand(center, 0, [Left(1, Place(0, 4), found("in flight"))])
    center.coordinator.close()
    assert [worker for worker, _ in center.coordinator.state.killed] == [1]
    assert center.coordinator.state.seats[1].passed == [Passed(0, 5)], "if the campaign goes on"


def test_what_is_in_flight_while_something_is_shrunk_hides_no_program(center: Center) -> None:
    hand = Hand(center, 0, [Left(0, Place(0, 4), found("in flight"), drawn=False)])
    assert hand.welcome.passed == (Passed(0, 0, PROGRAM.digest),)


def test_flags_reach_every_worker_once(center: Center) -> None:
    flag = Flag(name="f", target="null", note="n", case="c", match=Match(symptom="value"))
    one, other = Hand(center, 0), Hand(center, 1)
    assert one.send().flags is None
    center.coordinator.use((flag,))
    for hand in (one, other):
        assert hand.send().flags == (flag,)
        assert hand.send().flags is None
    assert Hand(center, 2).welcome.flags == (flag,)
    center.start()
    assert one.send().flags is not None, "a coordinator that began anew may not know them"


def test_the_time_goes_on_only_while_there_is_a_coordinator(center: Center, clock: Clock) -> None:
    clock.pass_(100)
    hand = Hand(center)
    assert hand.welcome.left == 600
    clock.pass_(100)
    assert hand.send().left == 500
    clock.pass_(1000)
    center.start()
    assert hand.send().left == pytest.approx(500)
    center.coordinator.stop()
    assert hand.send().left == 0


def test_turns_go_to_arms_that_yield(tmp_path: Path, clock: Clock) -> None:
    arms = (("null", "whole"), ("null", "floats"))
    center = Center(setup(tmp_path, workers=1, turn=10.0, arms=arms, budget=1e9), str(tmp_path / "state"), now=clock)
    center.coordinator._chance = random.Random(1)
    hand, arm = Hand(center), 0
    for number in range(400):
        if arm == 1:
            hand.outbox.cover(Coverage(programs=1, operators={f"aten.new{number}": 1}))
        hand.outbox.close(arm, Place(number + 1))
        clock.pass_(11)
        arm = hand.send().arm
    whole, floats = center.coordinator.state.arms
    assert floats.turns > 300
    assert floats.yields == floats.turns
    assert whole.turns > 0
    assert whole.yields == 0


def test_workers_begin_on_all_targets(tmp_path: Path) -> None:
    arms = tuple((target, profile) for target in ("null", "pipeline") for profile in ("whole", "floats"))
    center = Center(setup(tmp_path, "null", "pipeline", workers=4, arms=arms), str(tmp_path / "state"))
    assert [seat.arm for seat in center.coordinator.state.seats] == [0, 2, 0, 2]


def test_a_coordinator_that_knows_of_no_hello_counts_the_time_from_the_first_report(
    center: Center, clock: Clock
) -> None:
    hand = Hand(center)
    center.start()
    clock.pass_(6)
    hand.work(3)
    hand.send()
    assert center.coordinator.state.begun == clock.now
    assert center.coordinator.state.targets["null"].throughput == {0: 3}
    clock.pass_(10)
    assert hand.send().left == 590


def test_a_campaign_that_was_stopped_goes_on(center: Center, tmp_path: Path) -> None:
    hand = Hand(center)
    hand.work(9)
    hand.send(ended=True)
    center.coordinator.stop()
    state = continued(center.coordinator.state, options(tmp_path, budget=700.0), 6)
    assert not state.stopped
    assert [seat.ended for seat in state.seats] == [False] * 6
    assert state.seats[0].place == Place(0, 9)
    assert [seat.ended for seat in continued(state, options(tmp_path), 2).seats] == [False, False, *[True] * 4]
