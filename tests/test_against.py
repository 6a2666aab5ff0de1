"""`--against`: failures that another compiler, or the same one elsewhere, shares are passed over."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from corpus.store import Store
from executor import targets
from executor.errors import TargetError
from executor.limits import Limits
from fuzz.against import parse
from fuzz.campaign import Plan, Totals, run_shard
from fuzz.journal import Journal
from tests.planted import Crashing, Severed


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**targets._BUILT_IN, **{t.name: f"tests.planted:{t.__name__}" for t in (Severed, Crashing)}}
    monkeypatch.setattr(targets, "_BUILT_IN", known)


def shard(tmp_path: Path, target: str, against: str) -> Totals:
    plan = Plan(target, 0, 5, time.monotonic() + 120, 10.0, 2, against=against)
    return run_shard(plan, Store(tmp_path / "corpus"), frozenset(), Journal(tmp_path / "0.jsonl"))


def test_what_both_get_wrong_alike_is_passed_over(tmp_path: Path) -> None:
    totals = shard(tmp_path, "severed", "severed")
    assert not totals.findings
    assert not totals.failures
    assert totals.counts["refused"] > 10


@pytest.mark.parametrize("other", ["null", "crashing"])
def test_what_only_the_first_gets_wrong_is_found(tmp_path: Path, other: str) -> None:
    totals = shard(tmp_path, "severed", other)
    assert totals.findings
    assert {finding.case.target for finding in totals.findings} == {"severed"}


def test_another_interpreter_judges_in_its_own_process(tmp_path: Path) -> None:
    totals = shard(tmp_path, "severed", f"null@{sys.executable}")
    assert totals.findings


def test_what_is_no_target_or_no_interpreter_is_named() -> None:
    assert parse("null@python3") == ("null", "python3")
    with pytest.raises(TargetError, match="there is no target 'nul'"):
        parse("nul@python3")
    with pytest.raises(TargetError, match="'/no/such/python' is no program; after the @ stands the Python of an"):
        parse("null@/no/such/python")


def test_programs_are_drawn_within_what_both_take() -> None:
    first = Limits(
        aliased_inputs=False, dtypes=frozenset({"float32", "int64"}), banned_ops=frozenset({"aten.t.default"})
    )
    second = Limits(numbers=False, dtypes=frozenset({"int64", "bool"}), banned_dtypes=frozenset({"bool"}))
    both = first.meet(second)
    assert both == second.meet(first)
    assert (both.aliased_inputs, both.numbers, both.overlapping_inputs) == (False, False, True)
    assert both.dtypes == frozenset({"int64"})
    assert (both.banned_dtypes, both.banned_ops) == (frozenset({"bool"}), frozenset({"aten.t.default"}))
    assert Limits().meet(Limits()) == Limits()
