"""Programs in flight, journals and accounts: nothing is lost when a shard is killed, and nothing corrupt is left."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import torch

from corpus.case import Case
from corpus.store import Store, read
from executor import targets
from executor.program import Program
from executor.tracing import trace
from fuzz import flight, journal
from fuzz.accounts import Account, accounts, outcome
from fuzz.campaign import Plan, run_shard
from fuzz.check import Verdict
from fuzz.flight import Flight
from fuzz.journal import Journal, JournalError
from fuzz.options import Options
from fuzz.oracle import Mismatch
from fuzz.recovery import recover
from fuzz.summary import closing_lines, summarize
from fuzz.variants import calls
from tests.test_main_job import environment, pytest_fuzz

ROOT = Path(__file__).parents[1]
VERSIONS = {"torch": "2.13.0"}


def program(number: float = 1) -> Program:
    return trace(lambda x: x.mul_(number), torch.ones(3))


def fly(path: Path, *programs: Program, end: type[BaseException] | None = None) -> None:
    """A shard that judges programs, with one ok more before each, and then ends so."""
    with Flight(path, "null", 0, VERSIONS) as flying:
        for number, judged in enumerate(programs):
            flying.begin(judged, {"ok": number}, again=number > 0)
        if end is not None:
            raise end


def left(folder: Path) -> Path:
    """A run of a shard that died over the second of two programs; its journal."""
    path = folder / "null-0.jsonl"
    Journal(path).write("batch", target="null", shard=0, counts={}, batches=0, seconds=0.1)
    with pytest.raises(ZeroDivisionError):
        fly(path, program(1), program(2), end=ZeroDivisionError)
    return path


def test_the_program_in_flight_can_be_read_while_it_runs_and_is_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "null-0.jsonl"
    with Flight(path, "null", 3, VERSIONS) as flying:
        assert flight.read(path) is None
        for number in range(5):
            flying.begin(program(number), Counter(ok=number), again=number % 2 == 0)
            seen = flight.read(path)
            assert seen is not None
            assert (seen.target, seen.shard, seen.counts, seen.again) == ("null", 3, {"ok": number}, number % 2 == 0)
            assert seen.program.digest == program(number).digest
    assert flight.read(path) is None
    assert list(tmp_path.iterdir()) == [path]


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "null-0.jsonl"
    with pytest.raises(KeyboardInterrupt):
        fly(path, program(), end=KeyboardInterrupt)
    assert flight.read(path) is None


def test_a_journal_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "null-0.jsonl"
    with (
        Flight(path, "null", 0, VERSIONS),
        pytest.raises(JournalError, match=r"null-0\.jsonl: another run writes there; choose .* --fuzz-run"),
        Flight(path, "null", 0, VERSIONS),
    ):
        raise AssertionError


def test_a_record_cut_or_changed_anywhere_gives_way_to_the_one_before(tmp_path: Path) -> None:
    path = left(tmp_path)
    older, newer = flight.slots(path)[1], flight.slots(path)[0]
    whole, first = newer.read_bytes(), program(1).digest
    for k in range(len(whole)):
        for damaged in (whole[:k], whole[:k] + bytes([whole[k] ^ 0xFF]) + whole[k + 1 :]):
            newer.write_bytes(damaged)
            seen = flight.read(path)
            assert seen is not None
            assert seen.program.digest == first
    older.write_bytes(b"")
    assert flight.read(path) is None
    assert list(recover(tmp_path, Store(tmp_path / "corpus"))) == []


def test_what_a_dead_shard_left_becomes_a_case_once(tmp_path: Path) -> None:
    path, store = left(tmp_path), Store(tmp_path / "corpus")
    assert accounts(tmp_path) == {("null", 0): Account(Counter(ok=1), (program(2).digest,))}
    (found,) = recover(tmp_path, store)
    case = read(found.case)
    assert case.program == program(2).without_sources()
    assert (case.target, case.state, case.versions) == ("null", "open", VERSIONS)
    assert case.calls == calls(program(2), targets.get("null"))
    assert "killed" in case.note
    assert str(found).endswith(f"  aliasfuzz replay {found.case.name}")
    assert list(recover(tmp_path, store)) == []
    assert accounts(tmp_path) == {("null", 0): Account(Counter(ok=1), (program(2).digest,))}
    assert accounts(tmp_path)["null", 0].started == 2
    assert not any(slot.exists() for slot in flight.slots(path))


def test_a_shard_that_is_begun_again_saves_what_was_in_flight_and_accounts_for_both(tmp_path: Path) -> None:
    path, store = left(tmp_path), Store(tmp_path / "corpus")
    totals = run_shard(Plan("null", 0, 1, time.monotonic() + 60, batches=1), store, frozenset(), Journal(path))
    assert [case.program for _, case in store.cases() if isinstance(case, Case)] == [program(2).without_sources()]
    account = accounts(tmp_path)["null", 0]
    assert account.in_flight == (program(2).digest,)
    assert account.counts["ok"] == totals.programs + 1
    options = Options(("null",), 1, (0,), 1, 60.0, 1, str(tmp_path), "", "dev")
    lines = list(closing_lines(options, summarize(options)))
    assert any(line.startswith("null: shard 0 was killed while it judged a program, saved as ") for line in lines)


def test_what_a_live_shard_does_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "null-0.jsonl"
    with Flight(path, "null", 0, VERSIONS) as flying:
        flying.begin(program(), {}, again=False)
        assert list(recover(tmp_path, Store(tmp_path / "corpus"))) == []
        assert flight.read(path) is not None


def test_outcomes_of_verdicts() -> None:
    def failed(symptom: str) -> Verdict:
        return Verdict("t", (Mismatch(symptom, "the run", "a", "b"),))

    found = [Verdict("t"), Verdict("t", refused="no"), Verdict("t", unstable="eager differs"), failed("value"),
             failed("crash"), failed("memory-limit"), failed("timeout")]  # fmt: skip
    assert [outcome(verdict) for verdict in found] == [
        "ok", "refused", "unstable", "failed", "crashed", "crashed", "timed out"]  # fmt: skip


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As on a full disk: writes past this size fail, some after they have written a part."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_named_and_leaves_the_journal_whole(tmp_path: Path) -> None:
    written = Journal(tmp_path / "null-0.jsonl")
    written.write("batch", number=1)
    size = written.path.stat().st_size
    for room in (0, 1, 20):
        with no_file_longer_than(size + room), pytest.raises(JournalError, match=r"cannot be written: .*Make room"):
            written.write("batch", number=2)
        assert written.path.stat().st_size == size
    written.write("batch", number=3)
    assert [event["number"] for event in journal.read(tmp_path)] == [1, 3]


def test_a_full_disk_is_named_and_the_program_before_is_still_known(tmp_path: Path) -> None:
    path = tmp_path / "null-0.jsonl"
    small = len(msgspec.msgpack.encode(program(1)))
    with no_file_longer_than(4 * small), pytest.raises(JournalError, match="flight0: cannot be written"):
        fly(path, program(1), trace(lambda x: [x + k for k in range(20)], torch.ones(3)))
    seen = flight.read(path)
    assert seen is not None
    assert seen.program.digest == program(1).digest


def test_a_folder_that_vanished_is_named(tmp_path: Path) -> None:
    written = Journal(tmp_path / "gone" / "null-0.jsonl")
    (tmp_path / "gone").rmdir()
    with pytest.raises(JournalError, match=os.strerror(errno.ENOENT)):
        written.write("batch")


def test_a_damaged_journal_gives_the_events_that_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "null-0.jsonl"
    Journal(path).write("batch", number=1)
    Journal(path).write("done", number=2)
    whole = path.read_bytes()
    for k in range(len(whole)):
        for damaged in (whole[:k], whole[:k] + bytes([whole[k] ^ 0xFF]) + whole[k + 1 :]):
            path.write_bytes(damaged)
            assert all(isinstance(event["event"], str) for event in journal.read(tmp_path))


@pytest.mark.slow
def test_the_next_run_reports_what_a_killed_one_was_judging(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", str(ROOT / "fuzz"), "-q", "-p", "no:cacheprovider", "--fuzz-run",
         str(runs / "killed"), "--fuzz-target", "null", "--fuzz-budget", "120s"],
        cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.DEVNULL)  # fmt: skip
    path = runs / "killed" / "null-0.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not path.exists() or flight.read(path) is None):
        time.sleep(0.05)
    alive = pytest_fuzz(tmp_path, "--fuzz-run", str(runs / "beside"), "--fuzz-target", "null", "--fuzz-batches", "1")
    assert "was killed while it judged a program" not in alive.stdout
    process.send_signal(signal.SIGKILL)
    process.wait()
    account = accounts(runs / "killed")["null", 0]
    (digest,) = account.in_flight
    after = pytest_fuzz(tmp_path, "--fuzz-run", str(runs / "after"), "--fuzz-target", "null", "--fuzz-batches", "1")
    assert "null: shard 0 of killed was killed while it judged a program, saved as " in after.stdout
    (case,) = [case for _, case in Store(tmp_path / "corpus").cases()]
    assert not isinstance(case, Exception)
    assert case.program.digest == digest
    assert accounts(runs / "killed")["null", 0] == account
