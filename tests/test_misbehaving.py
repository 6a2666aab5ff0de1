"""Campaigns against compilers that misbehave: each is found, shrunk to a line or two, saved, and the campaign goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus.store import Store
from fuzz import journal
from fuzz.accounts import accounts
from fuzz.campaign import Plan, Totals, run_shard
from fuzz.journal import Journal
from tests import misbehaving

BATCHES = 2


@pytest.fixture(scope="module", autouse=True)
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with misbehaving.known(tmp_path_factory.mktemp("known")):
        yield


def campaign(name: str, folder: Path) -> Totals:
    plan = Plan(name, 0, 5, time.monotonic() + 60, shrink_seconds=6.0, batches=BATCHES, time_limit=1.0,
                memory_limit=256 << 20)  # fmt: skip
    return run_shard(plan, Store(folder / "corpus"), frozenset(), Journal(folder / "run" / "0.jsonl"))


def check_account(totals: Totals, folder: Path) -> None:
    (account,) = accounts(folder / "run").values()
    assert account.in_flight == ()
    assert account.started == totals.programs == totals.counts.total()
    assert sum(account.counts[outcome] for outcome in ("failed", "crashed", "timed out")) == totals.failures
    assert [event["event"] for event in journal.read(folder / "run")][-1] == "done"


def test_crashes_are_found_and_shrunk_and_the_campaign_goes_on(tmp_path: Path) -> None:
    totals = campaign("segfault", tmp_path)
    assert totals.batches == BATCHES
    assert totals.counts["crashed"] > 1
    assert totals.counts["ok"] > 10
    case = totals.findings[0].case
    assert case.signature is not None
    assert (case.signature.symptom, case.signature.detail, case.state) == ("crash", "SIGSEGV", "open")
    assert [call.op.split(".")[1] for call in case.program.calls] == ["mul_"]
    check_account(totals, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", misbehaving.WRONG, ids=lambda target: target.name)
def test_each_misbehaviour_is_found(
    target: type[misbehaving.Misbehaving], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.muting.HEAD_START", {})  # two batches are too few to pass over anything
    begun = time.monotonic()
    totals = campaign(target.name, tmp_path)
    assert totals.batches == BATCHES
    assert totals.findings
    if target is not misbehaving.LateCrash:  # it may come when other programs have run
        assert all(misbehaving.holds(found.case.program, "mul_") for found in totals.findings)
    check_account(totals, tmp_path)
    assert time.monotonic() - begun < 90


@pytest.mark.slow
def test_a_talkative_target_is_none_that_fails(tmp_path: Path) -> None:
    totals = campaign("chatter", tmp_path)
    assert totals.batches == BATCHES
    check_account(totals, tmp_path)
