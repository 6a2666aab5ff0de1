"""What only rewritings show: found by campaigns, shrunk, saved, and run again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import msgspec
import pytest
import torch

from corpus.case import Case
from corpus.store import Store
from executor import targets
from executor.program import Program
from executor.tracing import trace
from fuzz.blame import stage
from fuzz.campaign import Plan, Totals, run_shard
from fuzz.check import Verdict, check
from fuzz.isolation import Isolated, worker
from fuzz.isolation.messages import Judged, Task
from fuzz.isolation.sandbox import Sandbox
from fuzz.journal import Journal
from fuzz.options import options
from fuzz.related import related
from fuzz.relations import Choice, chosen
from fuzz.replay import replay
from tests.planted import OpenSlices, Wobbling


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**targets._BUILT_IN, **{t.name: f"tests.planted:{t.__name__}" for t in (OpenSlices, Wobbling)}}
    monkeypatch.setattr(targets, "_BUILT_IN", known)


def campaign(target: str, folder: Path, relations: Choice, *, exact: bool = True) -> Totals:
    plan = Plan(target, 0, 5, time.monotonic() + 120, 4.0, 1, exact=exact, relations=relations)
    return run_shard(plan, Store(folder / "corpus"), frozenset(), Journal(folder / "run" / "0.jsonl"))


def test_without_rewritings_the_fault_does_not_show(tmp_path: Path) -> None:
    totals = campaign("open-slices", tmp_path, Choice())
    assert totals.programs > 150
    assert totals.failures == 0


def test_a_fault_that_only_a_rewriting_shows_is_found_and_shrunk(tmp_path: Path) -> None:
    totals = campaign("open-slices", tmp_path, chosen("noop-view"))
    assert totals.findings
    smallest = min((finding.case for finding in totals.findings), key=lambda case: len(case.program.calls))
    assert len(smallest.program.calls) <= 3
    assert "[:]" in str(smallest.program)
    assert smallest.relation == ""
    assert not check(smallest.program, target=OpenSlices()).ok


def wobbled(folder: Path) -> Case:
    totals = campaign("wobbling", folder, chosen("copied-write"), exact=False)
    (case,) = {finding.case.digest: finding.case for finding in totals.findings}.values()
    return case


def test_what_only_the_two_together_show_is_found_shrunk_saved_and_replayed(tmp_path: Path) -> None:
    case = wobbled(tmp_path)
    assert case.signature is not None
    assert (case.signature.symptom, case.signature.detail) == ("relation", "copied-write")
    assert (case.relation, case.state, case.exact) == ("copied-write", "open", False)
    assert len(case.program.calls) <= 4
    assert check(case.program, target=Wobbling(), exact=False).ok
    assert Case.from_json(case.to_json()) == case
    assert replay(case).state == "open"
    assert "wobbling differs from itself under copied-write:" in replay(case).text
    assert replay(case, "null").state == "fixed"


def doubled(a: torch.Tensor) -> torch.Tensor:
    b = a * 2
    b.add_(1)
    return b


def program() -> Program:
    return trace(doubled, torch.arange(3.0))


def test_where_equality_is_asked_for_there_is_nothing_to_compare() -> None:
    verdict = related(program(), Wobbling(), "copied-write", exact=True)
    assert verdict.symptoms == ("value",)
    assert related(program(), "null", "copied-write").ok


def test_a_relation_that_does_not_apply_adds_nothing() -> None:
    assert related(program(), Wobbling(), "permuted-parameters", exact=False).ok
    assert related(program(), Wobbling(), "padded-base", exact=False).ok
    assert not related(program(), Wobbling(), "copied-write", exact=False).ok


class Here:
    """A sandbox that is this process: its messages cross, as bytes."""

    late: tuple[Verdict, ...] = ()

    def judge(self, task: Task) -> Verdict:
        arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(task), type=Task)
        judged = msgspec.msgpack.encode(worker.judge(arrived))
        return msgspec.msgpack.decode(judged, type=Judged).verdict(task)

    def refresh(self) -> None: ...

    def tally(self) -> dict[str, int]:
        return {}


def test_a_worker_compares_too() -> None:
    judged = worker.judge(Task("wobbling", program(), exact=False, relation="copied-write"))
    assert [mismatch.symptom for mismatch in judged.mismatches] == ["relation"]
    verdict = related(program(), Isolated(Wobbling(), cast("Sandbox", Here())), "copied-write", exact=False)
    assert (verdict.symptom, verdict.relation) == ("relation", "copied-write")


@pytest.mark.parametrize(("profile", "given", "relations"), [
    ("pr", None, "none"), ("dev", None, "none"), ("nightly", None, "all/8"), ("nightly", "none", "none"),
    ("dev", "padded-base", "padded-base"),
])  # fmt: skip
def test_profiles_choose_relations(tmp_path: Path, profile: str, given: str | None, relations: str) -> None:
    made = options(names=["null"], budget=None, profile=profile, seed=None, only=None, workers=1, batches=0, run=None,
                   corpus="", root=tmp_path, relations=given)  # fmt: skip
    assert made.relations == relations


def test_the_stage_whose_results_differ_first_is_blamed() -> None:
    whole = Wobbling()
    whole.stages = {"traced": targets.get("null"), "rounded": Wobbling(), "whole": whole}
    verdict = related(program(), whole, "copied-write", exact=False)
    assert stage(verdict, whole) == "rounded"
