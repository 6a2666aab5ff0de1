"""A worker draws what its seat's batches hold, each program once, whatever kills it or stands in its way; findings are shared."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis.database import InMemoryExampleDatabase

from corpus.case import Case
from corpus.flags import Flag, Match
from corpus.store import Store
from executor import targets
from executor.program import Program
from fuzz import flight
from fuzz.batch import Batch
from fuzz.check import Verdict, check
from fuzz.cluster import worker as worker_module
from fuzz.cluster.alone import run_batch
from fuzz.cluster.examples import PAUSE, Examples, ExamplesError, connect
from fuzz.cluster.messages import Passed, Place, Setup
from fuzz.cluster.rerun import Address, address
from fuzz.cluster.worker import Worker
from fuzz.flight import Flight
from fuzz.journal import JournalError
from fuzz.keeper import REPEATS
from fuzz.muting import SHRINKS_PER_KIND
from fuzz.options import UsageError
from tests.cluster import Center, Clock, LocalLink, losing, options, setup
from tests.planted import Crashing, Severed


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batch.run, "__defaults__", (60,))


class Killed(BaseException):
    """Ends a worker at once."""


class Judged(list[str]):
    """The digests of what was judged, in order; judging takes no time, all is right, and number `kill` kills the worker."""

    kill = -1

    def check(self, program: Program, **_: Any) -> Verdict:
        if len(self) == self.kill:
            self.kill = -1
            raise Killed
        self.append(program.digest)
        return Verdict("null", program=program)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Judged:
    found = Judged()
    monkeypatch.setattr("fuzz.campaign.check", found.check)
    return found


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers report after every program."""
    monkeypatch.setattr("fuzz.pulse.SECONDS_BETWEEN_PULSES", 0.0)


def campaign(tmp_path: Path, *names: str, **more: Any) -> Center:
    given: Setup = setup(tmp_path, *names, **{"interval": 0.0, **more})
    return Center(given, str(tmp_path / f"state{time.monotonic_ns()}"))


def work(center: Center, number: int = 0, folder: str = "scratch", **more: Any) -> None:
    worker = Worker(
        number, LocalLink(center, more.pop("lost", lambda name, what: False)), Path(center._url, folder), **more
    )
    worker.run()


def undisturbed(judged: Judged, tmp_path: Path, number: int = 0, rounds: int = 2) -> list[str]:
    """What a seat judges if nothing happens."""
    work(campaign(tmp_path, workers=number + 1, rounds=rounds), number)
    found = list(judged)
    judged.clear()
    return found


def counted(center: Center, target: str = "null") -> dict[str, int]:
    return center.coordinator.state.targets[target].tally.outcomes


def test_seats_draw_different_programs_and_each_seat_the_same_again(judged: Judged, tmp_path: Path) -> None:
    first = undisturbed(judged, tmp_path, 0)
    assert len(set(first)) > 90
    assert undisturbed(judged, tmp_path, 0) == first
    other = undisturbed(judged, tmp_path, 1)
    assert len(set(other) & set(first)) < len(first) / 10


@pytest.mark.usefixtures("talkative")
@pytest.mark.parametrize("kill", [0, 5, 60, 90])
def test_a_worker_that_was_killed_goes_on_with_the_program_after_the_last_it_reported(
    judged: Judged, tmp_path: Path, kill: int
) -> None:
    expected = undisturbed(judged, tmp_path)
    center, judged.kill = campaign(tmp_path, rounds=2), kill
    with pytest.raises(Killed):
        work(center)
    assert judged == expected[:kill]
    work(center)
    assert judged == expected
    assert counted(center) == {"ok": len(expected)}
    assert center.coordinator.state.seats[0].holders == 2
    assert center.coordinator.state.targets["null"].tally.batches == 2


def test_what_a_killed_worker_had_not_reported_is_done_again(judged: Judged, tmp_path: Path) -> None:
    expected = undisturbed(judged, tmp_path)
    center, judged.kill = campaign(tmp_path, rounds=2, interval=100.0), 37
    with pytest.raises(Killed):
        work(center)
    work(center)
    assert judged == expected[:37] + expected
    assert counted(center) == {"ok": len(expected)}


@pytest.mark.usefixtures("talkative")
def test_lost_messages_and_a_coordinator_that_dies_cost_nothing(judged: Judged, tmp_path: Path) -> None:
    expected = undisturbed(judged, tmp_path)
    center = campaign(tmp_path, rounds=2)
    dies = itertools.count()

    def lost(name: str, what: str) -> bool:
        if what == "request" and next(dies) in (20, 70):
            center.start()
        return losing_half(name, what)

    losing_half = losing(0.5, seed=3)
    work(center, lost=lost)
    assert judged == expected
    assert counted(center) == {"ok": len(expected)}
    assert center.coordinator.state.seats[0].ended


def leave_in_flight(journal: Path, program: Program, place: Place) -> None:
    """What a worker leaves that is killed while it judges this program, the next one behind a place."""
    with contextlib.suppress(Killed), Flight(journal, "null", 0, {"torch": "2"}) as flying:
        flying.place = place.batch, place.drawn
        flying.begin(program, {"ok": 1}, again=False)
        raise Killed


@pytest.mark.usefixtures("talkative")
def test_a_store_that_is_away_for_a_minute_holds_up_nobody_and_loses_nothing(judged: Judged, tmp_path: Path) -> None:
    expected = undisturbed(judged, tmp_path)
    clock, seconds, notes = Clock(), itertools.count(), set[str]()
    center = Center(setup(tmp_path, rounds=2, interval=0.0), str(tmp_path / "state"), now=clock)

    def lost(name: str, what: str) -> bool:
        if what == "request":
            clock.pass_(1.0)
            second = next(seconds)
            center.disk.broken = OSError("unreachable") if 20 <= second < 80 else None
            notes.add(center.coordinator.progress().store)
            if second == 80:  # and then the coordinator is killed: what it had is on no disk
                assert counted(center)["ok"] > 60
                center.start()
                assert counted(center)["ok"] < 30
        return False

    work(center, lost=lost)
    assert judged == expected
    assert counted(center) == {"ok": len(expected)}
    assert any("unreachable" in note for note in notes)
    assert center.coordinator.progress().store == ""


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """What was judged; all is right."""
    found: list[Program] = []

    def kept(program: Program, **_: Any) -> Verdict:
        found.append(program)
        return Verdict("null", program=program)

    monkeypatch.setattr("fuzz.campaign.check", kept)
    return found


def test_the_program_in_flight_becomes_a_case_and_is_passed_over(tmp_path: Path, programs: list[Program]) -> None:
    center = campaign(tmp_path, workers=1, rounds=1)
    work(center)
    whole, deadly = [program.digest for program in programs], programs[30]
    center = campaign(tmp_path, workers=2, rounds=1)
    scratch = Path(center._url, "scratch")
    scratch.mkdir(parents=True)
    leave_in_flight(scratch / "null-0.jsonl", deadly, Place(0, 30))
    work(center, 1)  # another worker of this node finds what the dead one left
    assert flight.read(scratch / "null-0.jsonl") is None
    programs.clear()
    work(center, 0)
    assert [program.digest for program in programs] == [digest for digest in whole if digest != deadly.digest]
    ((number, found),) = center.coordinator.state.killed
    assert (number, found.case.program) == (0, deadly.without_sources())
    assert found.case.state == "open"


@pytest.mark.usefixtures("talkative")
def test_a_program_in_flight_that_is_far_ahead_of_an_older_state_is_accounted_for_once(
    tmp_path: Path, programs: list[Program]
) -> None:
    center = campaign(tmp_path, workers=1, rounds=1)
    work(center)
    first, place = len(programs), center.coordinator.state.seats[0].place
    assert place == Place(1)
    programs.clear()
    work(campaign(tmp_path, workers=1, rounds=2))
    whole, deadly = [program.digest for program in programs], programs[first + 20]
    programs.clear()
    center = campaign(tmp_path, workers=1, rounds=2)
    scratch = Path(center._url, "scratch")
    scratch.mkdir(parents=True)
    leave_in_flight(scratch / "null-0.jsonl", deadly, Place(1, 20))
    work(center)
    assert [program.digest for program in programs] == [digest for digest in whole if digest != deadly.digest]
    assert counted(center)["ok"] + len(center.coordinator.state.killed) == len(whole)


@pytest.mark.usefixtures("talkative")
def test_a_full_disk_is_reported_and_waited_for(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(judged, tmp_path)
    center, notes = campaign(tmp_path, rounds=2), list[str]()
    full, begin = iter([False] * 50 + [True] * 3 + [False] * 100_000), Flight.begin

    def maybe_full(self: Flight, program: Program, counts: Mapping[str, int], *, again: bool) -> None:
        if next(full):
            raise JournalError("no space left on device")
        begin(self, program, counts, again=again)

    def sleep(seconds: float) -> None:
        notes.append(center.coordinator.state.seats[0].note)

    monkeypatch.setattr(Flight, "begin", maybe_full)
    monkeypatch.setattr(worker_module, "REST", 0.01)
    work(center, sleep=sleep)
    assert judged == expected
    assert counted(center) == {"ok": len(expected)}
    assert any("no space left" in note for note in notes)
    assert center.coordinator.state.seats[0].note == ""


def test_where_a_disk_is_full_workers_wait_and_on_other_nodes_they_go_on(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(judged, tmp_path, 1)
    center, others, write = campaign(tmp_path, rounds=2), list[str](), os.pwrite
    full = Path(center._url, "full")

    def pwrite(file: int, data: bytes, offset: int) -> int:
        here = Path(f"/proc/self/fd/{file}").resolve().parent
        if here == full and not others:
            return 0 if len(data) % 2 else write(file, data[:9], offset)  # some of it fits
        return write(file, data, offset)

    def sleep(seconds: float) -> None:
        if not others:
            assert "No space left" in center.coordinator.state.seats[1].note
            work(center, 0, "free")
            others.extend(judged)
            judged.clear()

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(worker_module, "REST", 0.01)
    work(center, 1, "full", sleep=sleep)
    assert len(others) == center.coordinator.state.targets["null"].tally.outcomes["ok"] - len(expected)
    assert judged == expected
    assert [seat.place for seat in center.coordinator.state.seats] == [Place(2), Place(2)]


def test_a_printed_command_runs_a_batch_again_alone(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = (("null", "floats"),)
    work(campaign(tmp_path, rounds=2, arms=arms, workers=2), 1)
    whole = list(judged)
    judged.clear()
    chosen = options(tmp_path)
    lines, code = run_batch(chosen, address("1/1/floats"))
    assert judged
    assert list(judged) == whole[-len(judged) :]
    assert code == 0
    assert any("--seed 0x7 --batch 1/1/floats" in line for line in lines)
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("text", ["3/17/odd", "3", "a/b", "3/-1", ""])
def test_the_address_of_a_batch_is_checked(text: str) -> None:
    with pytest.raises(UsageError, match="WORKER/BATCH"):
        address(text)


def test_addresses_are_read_as_they_are_written() -> None:
    for one in (Address(3, 17), Address(0, 0, "floats")):
        assert address(str(one)) == one


@pytest.fixture
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**targets._BUILT_IN, **{t.name: f"tests.planted:{t.__name__}" for t in (Severed, Crashing)}}
    monkeypatch.setattr(targets, "_BUILT_IN", known)
    monkeypatch.setattr("fuzz.muting.HEAD_START", {})


@pytest.mark.usefixtures("_planted")
def test_findings_are_shared_and_a_frequent_bug_costs_time_only_once(tmp_path: Path) -> None:
    center = campaign(tmp_path, "crashing", workers=2, rounds=2)
    for number in (0, 1):
        work(center, number)
    state = center.coordinator.state
    assert state.findings
    for finding in state.findings.values():
        case = finding.found.case
        assert not check(case.program, target=Crashing(), calls=case.calls).ok
        assert len(case.program.calls) <= 2
        assert "aliasfuzz run --target crashing --seed 0x7 --batch" in finding.found.rerun
    assert all(state.shrunk.count(kind) <= SHRINKS_PER_KIND for kind in state.shrunk)
    assert counted(center, "crashing")["failed"] >= sum(state.targets["crashing"].tally.failures.counts.values()) > 0
    assert state.leases == {}


class Watching:
    """Judges, and notes what was judged and whether it was right; number `kill` kills the worker."""

    def __init__(self, kill: int = -1) -> None:
        self.seen, self.kill = list[tuple[str, bool]](), kill

    def check(self, program: Program, **how: Any) -> Verdict:
        if len(self.seen) == self.kill:
            raise Killed
        verdict = check(program, **how)
        self.seen.append((program.digest, verdict.ok))
        return verdict


@pytest.mark.usefixtures("_planted", "talkative")
def test_a_worker_that_is_killed_while_it_shrinks_counts_nothing_twice_and_loses_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(watching: Watching) -> Center:
        monkeypatch.setattr("fuzz.campaign.check", watching.check)
        return campaign(tmp_path, "crashing", workers=1, rounds=1)

    work(begin(first := Watching()))
    failed = [ok for _, ok in first.seen].index(False)
    center = begin(Watching(kill=failed + 4))
    with pytest.raises(Killed):
        work(center)
    state = center.coordinator.state
    assert state.seats[0].place == Place(0, failed)
    assert sum(counted(center, "crashing").values()) == failed
    monkeypatch.setattr("fuzz.campaign.check", (again := Watching()).check)
    work(center)
    assert again.seen[0] == first.seen[failed]
    assert sum(counted(center, "crashing").values()) == failed + len(again.seen) - REPEATS
    assert state.findings


@pytest.mark.usefixtures("_planted")
def test_what_kills_a_worker_that_shrinks_is_passed_over_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.campaign.check", (first := Watching()).check)
    work(campaign(tmp_path, "crashing", workers=1, rounds=1))
    failed = [ok for _, ok in first.seen].index(False)
    passed = (Passed(0, 0, first.seen[failed + 1][0]), Passed(1, 0, first.seen[failed + 2][0]), Passed(1, 1))
    monkeypatch.setattr("fuzz.campaign.check", (again := Watching()).check)
    center = campaign(tmp_path, "crashing", workers=1, rounds=1)
    center.coordinator.state.seats[0].passed = [*passed]
    work(center)
    assert again.seen[: failed + 1] == first.seen[: failed + 1]
    assert passed[0].digest not in {digest for digest, _ in again.seen}
    assert passed[1].digest in {digest for digest, _ in again.seen}


@pytest.mark.usefixtures("_planted")
def test_a_flag_that_is_set_in_the_midst_of_a_campaign_is_used_at_once(tmp_path: Path) -> None:
    center = campaign(tmp_path, "crashing", workers=1, rounds=3)
    flag = Flag(name="t", target="crashing", note="n", case="none", match=Match(symptom="exception"))

    def lost(name: str, what: str) -> bool:
        if what == "request" and center.coordinator.state.seats[0].place.batch >= 1:
            center.coordinator.use((flag,))
        return False

    work(center, lost=lost)
    counts = counted(center, "crashing")
    assert counts["failed"] > 0
    assert counts["known"] > 0


@pytest.mark.usefixtures("_planted")
def test_campaigns_share_interesting_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = InMemoryExampleDatabase()

    def examples(url: str) -> Examples:
        return Examples(database)

    center = campaign(tmp_path, "crashing", workers=1, rounds=2, seed=1)
    work(center, examples=examples)
    shared = {finding.found.case.digest for finding in center.coordinator.state.findings.values()}
    assert shared
    assert {case.digest for case in Examples(database).new("crashing")} == shared
    halves = [{case.digest for case in Examples(database).new("crashing", (k, 2))} for k in range(2)]
    assert halves[0] | halves[1] == shared
    assert not halves[0] & halves[1]
    other = campaign(tmp_path, "crashing", workers=1, rounds=1, seed=2)
    monkeypatch.setattr(
        "fuzz.campaign.programs", lambda limits, **_: pytest.fail("it draws before it has looked at them")
    )
    with pytest.raises(pytest.fail.Exception):
        work(other, examples=examples)
    assert {finding.found.signature for finding in other.coordinator.state.findings.values()} <= {
        finding.found.signature for finding in center.coordinator.state.findings.values()
    }
    assert Examples(database).new("null") == []


class Away(InMemoryExampleDatabase):
    """A database that counts how often it is asked, and does not answer while it is away."""

    asked, away = 0, True

    def _answer(self, do: Callable[..., Any], *args: bytes) -> Any:
        self.asked += 1
        if self.away:
            raise ConnectionError("unreachable")
        return do(*args)

    def fetch(self, key: bytes) -> Any:
        return self._answer(super().fetch, key)

    def save(self, key: bytes, value: bytes) -> None:
        self._answer(super().save, key, value)


def test_a_database_that_is_away_for_a_minute_is_left_alone_and_used_again(tmp_path: Path) -> None:
    clock, database = Clock(0.0), Away()
    shared = Examples(database, clock)
    case = next(case for _, case in Store().cases() if isinstance(case, Case))
    shared.add(case)
    assert shared.new("null") == []
    assert database.asked == 1, "not asked again at once"
    clock.pass_(PAUSE + 1)
    database.away = False
    shared.add(case)
    assert [one.digest for one in Examples(database).new(case.target)] == [case.digest]
    database.save(b"example:null", b"damaged")
    assert Examples(database).new("null") == []


def test_a_server_of_redis_holds_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    redis, fakeredis = pytest.importorskip("redis"), pytest.importorskip("fakeredis")
    server = fakeredis.FakeServer()
    monkeypatch.setattr(redis.Redis, "from_url", lambda url, **_: fakeredis.FakeRedis(server=server))
    case = next(case for _, case in Store().cases() if isinstance(case, Case))
    one, other = connect("redis://host"), connect("redis://host")
    assert one is not None
    assert other is not None
    one.add(case)
    assert [shared.digest for shared in other.new(case.target)] == [case.digest]
    assert other.new(case.target) == []
    server.connected = False
    assert other.new("null") == []
    assert connect("") is None


def test_an_address_of_redis_is_checked() -> None:
    pytest.importorskip("redis")
    with pytest.raises(ExamplesError, match="no address of a Redis server"):
        connect("host:6379")


def test_places_are_those_of_the_last_report(judged: Judged, tmp_path: Path) -> None:
    expected = undisturbed(judged, tmp_path)
    center = campaign(tmp_path, rounds=2)
    work(center)
    assert center.coordinator.state.seats[0].place == Place(2)
    assert counted(center) == {"ok": len(expected)}
