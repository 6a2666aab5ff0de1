"""Batches and shards: failures are found, shrunk, told apart, saved at once, and repeat from a seed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import strategies as st

from corpus.case import Case
from corpus.flags import Ban, Flag, Match
from corpus.store import Store
from executor import targets
from executor.program import Program
from executor.targets.base import Target
from fuzz import journal
from fuzz.batch import Batch
from fuzz.campaign import Plan, Totals, batch_seed, called_again, judge, run_shard
from fuzz.check import check
from fuzz.findings import Kind
from fuzz.journal import Journal
from fuzz.known import Known
from fuzz.muting import SHRINKS_PER_KIND, muted
from strategies.programs import programs
from tests.planted import Crashing, Severed


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**targets._BUILT_IN, **{t.name: f"tests.planted:{t.__name__}" for t in (Severed, Crashing)}}
    monkeypatch.setattr(targets, "_BUILT_IN", known)


def later(seconds: float) -> float:
    return time.monotonic() + seconds


def batch(target: Target, seed: int = 1) -> Batch:
    made = Batch(judge(target, 1), later(60), 30)
    made.run(programs(target.limits), seed)
    return made


def test_a_failure_is_found_and_shrunk() -> None:
    found = batch(Severed())
    assert found.kind is not None
    assert found.smallest is not None
    assert found.verdict is not None
    assert not found.verdict.ok
    assert found.verdict.program == found.smallest
    assert len(found.smallest.calls) <= 2
    assert len(found.smallest.inputs) <= 2
    assert not check(found.smallest, target=Severed()).ok


def test_a_batch_without_failures_judges_each_program_once() -> None:
    target = targets.get("null")
    seen: list[str] = []

    def verdict(program):  # type: ignore[no-untyped-def]
        seen.append(program.digest)
        return check(program, target=target)

    made = Batch(verdict, later(60), 30)
    made.run(programs(), 1)
    assert made.kind is None
    assert made.failures == 0
    assert made.programs == len(seen) == len(set(seen)) > 100


def test_a_muted_kind_is_counted_and_passed_over() -> None:
    kind = batch(Crashing()).kind
    assert kind is not None
    muted = Batch(judge(Crashing(), 1), later(60), 30, lambda other: other == kind)
    muted.run(programs(), 1)
    assert muted.failures > 0
    assert muted.kind != kind


def test_symptoms_that_were_shrunk_often_make_room_for_others() -> None:
    value, lost = Kind("t", "value", "", "none", "none"), Kind("t", "alias", "", "none", "none")
    other = Kind("t", "value", "", "read-after-write", "partial")
    shrunk = Counter({value: SHRINKS_PER_KIND})
    passed = [muted(shrunk, seed) for seed in range(300)]
    assert all(passes(value) for passes in passed)
    assert not any(passes(lost) for passes in passed)
    assert 150 < sum(passes(other) for passes in passed) < 250
    assert not any(muted(Counter(), seed)(value) for seed in range(20))
    # Nothing is only counted before its like was shrunk once.
    exception = value._replace(symptom="exception", detail="RuntimeError")
    assert not any(muted(Counter({value: 2}), seed)(exception) for seed in range(20))
    assert any(muted(Counter({exception: 1}), seed)(exception._replace(relation="none")) for seed in range(20))


def test_a_batch_ends_when_the_time_is_up() -> None:
    begun = time.monotonic()
    made = Batch(judge(targets.get("null"), 1), later(0.3), 30)
    made.run(programs(), 1, examples=100_000)
    assert 0.2 < time.monotonic() - begun < 5
    assert made.programs > 0


def test_shrinking_ends_when_its_time_is_up() -> None:
    begun = time.monotonic()
    made = Batch(judge(Severed(), 1), later(60), 0.0)
    made.run(programs(), 1)
    assert made.smallest is not None
    assert time.monotonic() - begun < 20


def test_an_error_of_the_harness_is_raised() -> None:
    def broken(_program):  # type: ignore[no-untyped-def]
        raise ZeroDivisionError("in the harness")

    with pytest.raises(ZeroDivisionError):
        Batch(broken, later(60), 30).run(programs(), 1)


def test_seeds_of_batches_are_derived_and_all_different() -> None:
    seeds = {batch_seed(seed, target, shard, k) for seed in (0, 1) for target in ("a", "b") for shard in (0, 1)
             for k in range(50)}  # fmt: skip
    assert len(seeds) == 400
    assert batch_seed(7, "null", 0, 3) == batch_seed(7, "null", 0, 3)


@pytest.mark.parametrize("shard", range(3))
def test_one_batch_in_eight_calls_functions_again(shard: int) -> None:
    again = [k for k in range(24) if called_again(batch_seed(5, "null", shard, k))]
    assert len(again) == 3
    assert again[0] < 8


def shard(target: str, folder: Path, *, batches: int, seed: int = 5) -> list[Case]:
    plan = Plan(target, 0, seed, later(120), 20.0, batches)
    totals = run_shard(plan, Store(folder / "corpus"), frozenset(), Journal(folder / "run" / "0.jsonl"))
    assert totals.batches == batches
    return [finding.case for finding in totals.findings]


def test_a_shard_saves_what_it_finds_and_writes_its_journal(tmp_path: Path) -> None:
    cases = shard("crashing", tmp_path, batches=2)
    assert cases
    files = [case for _, case in Store(tmp_path / "corpus").cases()]
    assert {case.signature for case in cases} == {case.signature for case in files if isinstance(case, Case)}
    for case in cases:
        assert case.state == "open"
        assert case.target == "crashing"
        assert not check(case.program, target=Crashing(), calls=case.calls).ok
    events = list(journal.read(tmp_path / "run"))
    assert [event["event"] for event in events][-1] == "done"
    assert [event["batches"] for event in events if event["event"] == "batch"][-1] == 2
    assert {event["signature"] for event in events if event["event"] == "finding"} == {
        case.signature.digest for case in cases if case.signature
    }


def test_a_shard_repeats_from_its_seed(tmp_path: Path) -> None:
    first = shard("severed", tmp_path / "a", batches=2)
    second = shard("severed", tmp_path / "b", batches=2)
    assert first[0].digest == second[0].digest  # what is met on the way is shrunk for some time only


def test_a_finding_whose_signature_is_in_the_corpus_is_known(tmp_path: Path) -> None:
    known = frozenset(case.signature for case in shard("severed", tmp_path, batches=1) if case.signature)
    plan = Plan("severed", 0, 5, later(60), 20.0, 1)
    totals = run_shard(plan, Store(tmp_path / "corpus"), known, Journal(tmp_path / "again.jsonl"))
    assert [finding.known for finding in totals.findings] == [True]


def flagged(tmp_path: Path, **fields: object) -> tuple[Totals, Path]:
    """A shard on the target that crashes for transposes, with one flag; the folder of its journal."""
    flag = Flag(name="transposes", target="crashing", note="KeyError", case="no-such-case", **fields)  # type: ignore[arg-type]
    plan = Plan("crashing", 0, 5, later(120), 20.0, 2, flags=Known((flag,)))
    totals = run_shard(plan, Store(tmp_path / "corpus"), frozenset(), Journal(tmp_path / "run" / "0.jsonl"))
    return totals, tmp_path / "run"


def test_failures_that_a_flag_describes_are_counted_and_passed_over(tmp_path: Path) -> None:
    totals, folder = flagged(tmp_path, match=Match(symptom="exception", text="KeyError"))
    assert not totals.findings
    assert not totals.failures
    assert totals.counts["known"] > 10
    stale = [event for event in journal.read(folder) if event["event"] == "stale"]
    assert [(event["flag"], event["target"]) for event in stale] == [("transposes", "crashing")]


def test_what_a_flag_bans_is_not_drawn(tmp_path: Path) -> None:
    totals, _ = flagged(tmp_path, ban=Ban(ops=("aten.t.default", "aten.transpose.int")))
    assert not totals.findings
    assert not totals.counts["known"]
    assert totals.counts["ok"] == totals.programs > 200


def test_what_a_flag_does_not_describe_is_found_as_before(tmp_path: Path) -> None:
    totals, _ = flagged(tmp_path, match=Match(symptom="value"))
    assert totals.findings


def test_an_interrupt_keeps_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = 0

    def interrupted(compiler: Target, seed: int, *, exact: bool):  # type: ignore[no-untyped-def]
        assert exact

        def verdict(program):  # type: ignore[no-untyped-def]
            nonlocal failed
            result = check(program, target=compiler)
            failed += not result.ok
            if failed > 1:
                signal.raise_signal(signal.SIGINT)
            return result

        return verdict

    monkeypatch.setattr("fuzz.muting.HEAD_START", {})  # exceptions are not passed over
    monkeypatch.setattr("fuzz.campaign.judge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shard("crashing", tmp_path, batches=1)
    assert len(Store(tmp_path / "corpus").files()) == 1


def test_ctrl_c_while_a_program_is_drawn_is_no_flaky_strategy() -> None:
    drawn = 0

    @st.composite
    def interrupted(draw: st.DrawFn) -> Program:
        nonlocal drawn
        drawn += 1
        draw(st.booleans())
        if drawn == 20:
            signal.raise_signal(signal.SIGINT)
        draw(st.integers())
        return Program((), (), (), (), None)

    with pytest.raises(KeyboardInterrupt):
        Batch(judge(targets.get("null"), 1), later(60), 30).run(interrupted(), 1)
    assert drawn == 20


def test_progress_shows_within_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.pulse.SECONDS_BETWEEN_PULSES", 0.0)
    shard("null", tmp_path, batches=1)
    counts = [event["programs"] for event in journal.read(tmp_path / "run") if event["event"] == "batch"]
    assert counts[0] == 1
    assert counts == sorted(counts)
    assert counts[-2] == counts[-1] > 50
