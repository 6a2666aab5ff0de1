"""Coverage: what is counted of a program, what could be drawn, and that a shard's journal holds the counts."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

from corpus.store import Store
from executor import targets
from executor.limits import EVERYTHING, Limits
from executor.program import Program
from executor.tracing import trace
from fuzz import journal
from fuzz.campaign import Plan, run_shard
from fuzz.check import check
from fuzz.coverage import (
    APART,
    BARRIER,
    BLEND,
    FUSION,
    OF_COMPILATION,
    OF_MEMORY,
    OVERLAP,
    PARTIAL,
    SHARED,
    THROUGH_VIEW,
    Counts,
    Coverage,
    Watched,
)  # fmt: skip
from fuzz.journal import Journal
from fuzz.reach import families, never, reachable
from strategies.programs import programs

ALL = settings(
    max_examples=400, deadline=None, database=None, phases=(Phase.generate,), suppress_health_check=[HealthCheck.too_slow]
)  # fmt: skip


def partly_overwritten(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a[1:].add_(1)
    return b * 2 + a.sum()


def made() -> Program:
    x = torch.arange(6.0)
    return trace(partly_overwritten, x, x[:4])


def test_a_program_is_counted_by_all_that_it_has() -> None:
    counts = Counts(every=1)
    counts.see(made())
    found = counts.take()
    assert found.programs == found.looked_at == 1
    assert found.operators == {call.op: 1 for call in made().calls}
    assert found.dtypes == {"float32": 1}
    assert found.inputs == {"contained": 1}
    assert found.dependences["read-after-write, partial"] >= 1
    assert found.features == dict.fromkeys((OVERLAP, PARTIAL, SHARED, THROUGH_VIEW), 1)
    assert counts.take() == Coverage()


def test_a_program_that_has_nothing() -> None:
    counts = Counts(every=1)
    counts.see(trace(lambda a, b: a + b, torch.ones(2), torch.ones(2)))
    found = counts.take()
    assert found.inputs == {APART: 1}
    assert not found.features
    assert not found.dependences


def test_memory_is_looked_at_in_a_share_of_programs_always_the_same() -> None:
    first, second = Counts(every=4), Counts(every=4)
    drawn: list[Program] = []

    @ALL
    @given(programs())
    def draw(program: Program) -> None:
        drawn.append(program)

    draw()
    for program in drawn:
        first.see(program)
        second.see(program)
    found = first.take()
    assert found == second.take()
    assert found.programs == len(drawn)
    assert 0.15 < found.looked_at / found.programs < 0.35


@pytest.mark.parametrize(("aliases", "feature"), [("barrier", BARRIER), ("blend", BLEND)])
def test_what_our_compiler_did_is_counted(aliases: str, feature: str) -> None:
    from executor.targets.pipeline import Pipeline

    target, counts = Watched(Pipeline("ours", "weak_memory", aliases)), Counts()  # type: ignore[arg-type]
    program = trace(lambda a: (a[1:].add_(1), a * 2)[1], torch.arange(4.0))
    assert check(program, target=target).ok
    counts.see(program, target.take())
    assert target.take() is None
    found = counts.take()
    assert found.compiled == 1
    assert found.share(feature) == 1.0
    assert found.share(FUSION) == (1.0 if aliases == "blend" else 0.0)


def test_of_another_compiler_nothing_is_known() -> None:
    target = Watched(targets.get("null"))
    assert check(made(), target=target).ok
    assert target.take() is None
    assert Coverage(programs=1, looked_at=1).share(BARRIER) is None


def test_counts_add_up() -> None:
    counts = Counts(every=1)
    parts = []
    for _ in range(3):
        counts.see(made())
        parts.append(counts.take())
    for _ in range(3):
        counts.see(made())
    assert sum(parts, Coverage()) == counts.take()


@pytest.mark.parametrize("exact", [True, False])
def test_all_that_is_drawn_is_in_the_tables(exact: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    counts = Counts(every=1)

    @ALL
    @given(programs(exact=exact))
    def draw(program: Program) -> None:
        counts.see(program)

    draw()
    found, known = counts.take(), reachable(EVERYTHING, exact=exact)
    assert found.operators.keys() <= set(known["operators"])
    assert found.inputs.keys() <= set(known["inputs"])
    assert found.dependences.keys() <= set(known["dependences"])
    assert found.features.keys() <= set(known["features"])
    if exact:
        assert found.dtypes.keys() <= set(known["dtypes"])


def test_what_was_never_reached() -> None:
    counts = Counts(every=1)
    counts.see(made())
    lacking = never(EVERYTHING, counts.take(), exact=True)
    assert "aten.mul.Tensor" not in lacking["operators"]
    assert "aten.view_as_real.default" in lacking["operators"]
    assert "float32" not in lacking["dtypes"]
    assert "bool" in lacking["dtypes"]
    assert set(lacking["inputs"]) == {APART, "disjoint", "must", "partial"}
    assert "features" not in lacking, "of compilations nothing is known, and memory has it all"
    counts_of_all = {field: dict.fromkeys(names, 1) for field, names in reachable(EVERYTHING, exact=True).items()}
    everything = msgspec.convert({"compiled": 1, **counts_of_all}, Coverage)
    assert never(EVERYTHING, everything, exact=True) == {}


def test_limits_narrow_what_could_be_reached() -> None:
    narrow = Limits(
        dtypes=frozenset({"float32"}), aliased_inputs=False, banned_ops=frozenset({"aten.slice.Tensor", "aten.add_.Tensor"})
    )  # fmt: skip
    known = reachable(narrow, exact=True)
    assert known["dtypes"] == ("float32",)
    assert known["inputs"] == (APART,)
    assert SHARED not in known["features"]
    ops = known["operators"]
    for op in ("aten.slice.Tensor", "aten.add_.Tensor", "aten._conj.default", "aten.bitwise_and.Tensor", "aten.where.self",
               "aten.index_put_.default"):  # fmt: skip
        assert op not in ops
        assert op in reachable(EVERYTHING, exact=True)["operators"]
    assert reachable(Limits(overlapping_inputs=False), exact=True)["inputs"] == (APART, "disjoint")
    assert reachable(Limits(displaced_inputs=False), exact=True)["inputs"] == (APART, "must")
    assert families(Limits(metadata_mutation=False), exact=True)["metadata"] == ()
    assert "aten.exp.default" in families(EVERYTHING, exact=False)["out of place"]
    assert "aten.exp.default" not in families(EVERYTHING, exact=True)["out of place"]


def test_a_shard_writes_what_its_programs_were_like(tmp_path: Path) -> None:
    written = Journal(tmp_path / "run" / "pipeline-0.jsonl")
    totals = run_shard(Plan("pipeline", 0, 1, time.monotonic() + 60, batches=1), Store(tmp_path), frozenset(), written)
    events = list(journal.read(tmp_path / "run"))
    assert [event["event"] for event in events[:2]] == ["begin", "phase"]
    assert msgspec.convert(events[0]["limits"], Limits) == targets.get("pipeline").limits
    assert events[0]["versions"]["torch"] == torch.__version__
    counted = [msgspec.convert(event["counts"], Coverage) for event in events if event["event"] == "coverage"]
    found = sum(counted, Coverage())
    assert found.programs == totals.programs
    assert 0 < found.compiled <= found.programs
    for feature in (*OF_MEMORY, *OF_COMPILATION):
        assert found.share(feature), f"a batch of 200 programs has no {feature}"


def test_programs_of_shrinking_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(targets._BUILT_IN, "severed", "tests.planted:Severed")
    written = Journal(tmp_path / "run" / "severed-0.jsonl")
    totals = run_shard(Plan("severed", 0, 1, time.monotonic() + 60, batches=1), Store(tmp_path), frozenset(), written)
    events = list(journal.read(tmp_path / "run"))
    assert totals.findings
    phases = [event["phase"] for event in events if event["event"] == "phase"]
    assert phases[:3] == ["generate", "shrink", "replay"]
    counted = [msgspec.convert(event["counts"], Coverage) for event in events if event["event"] == "coverage"]
    assert 0 < sum(counted, Coverage()).programs < totals.programs
