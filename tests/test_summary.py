"""The summary of a run, from its journals alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from executor.limits import Limits
from fuzz.journal import Journal
from fuzz.options import Options
from fuzz.summary import closing_lines, progress, summarize


def made(folder: Path) -> Options:
    return Options(("null", "thunder"), 0xAB, (0, 1), 2, 60.0, 0, str(folder), "", "dev")


def finding(signature: str, *, known: bool) -> dict[str, Any]:
    return {"target": "thunder", "path": f"/x/{signature}.json", "signature": signature, "known": known,
            "text": "thunder differs from eager:\n  value: output", "program": "def program(a):\n    return a"}  # fmt: skip


def run(folder: Path) -> Options:
    chosen = made(folder)
    first, second = Journal(folder / "a.jsonl"), Journal(folder / "b.jsonl")
    first.write("batch", target="null", shard=0, counts={"ok": 100, "failed": 0}, batches=1, seconds=1.0)
    first.write("batch", target="null", shard=0, counts={"ok": 300, "failed": 0}, batches=2, seconds=2.0)
    first.write("done", target="null", shard=0)
    second.write("batch", target="null", shard=1, counts={"ok": 100, "failed": 0}, batches=1, seconds=1.0)
    second.write("done", target="null", shard=1)
    second.write("batch", target="thunder", shard=1, counts={"ok": 46, "failed": 4}, batches=1, seconds=5.0)
    second.write("finding", **finding("s1", known=False))
    first.write("finding", **finding("s1", known=False))
    first.write("finding", **finding("s2", known=True))
    second.write("done", target="thunder", shard=1)
    return chosen


def test_totals_take_each_shards_last_word_and_each_signature_once(tmp_path: Path) -> None:
    summary = summarize(run(tmp_path))
    assert (summary.targets["null"].programs, summary.targets["null"].seconds) == (400, 2.0)
    assert list(summary.targets["thunder"].findings) == ["s1", "s2"]
    assert [event["signature"] for event in summary.targets["thunder"].fresh] == ["s1"]
    assert summary.missing == [("thunder", 0)]
    assert summary.exit_code == 1


def test_exit_codes(tmp_path: Path) -> None:
    chosen = made(tmp_path)
    assert summarize(chosen).exit_code == 3
    journal = Journal(tmp_path / "x.jsonl")
    for target in chosen.targets:
        for shard in chosen.shards:
            journal.write("done", target=target, shard=shard)
    assert summarize(chosen).exit_code == 0
    journal.write("finding", **finding("s2", known=True))
    assert summarize(chosen).exit_code == 0
    journal.write("finding", **finding("s3", known=False))
    assert summarize(chosen).exit_code == 1


def test_closing_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[1]
    monkeypatch.chdir(root)
    chosen = run(tmp_path)
    lines = list(closing_lines(chosen, summarize(chosen)))
    assert "null: 400 programs, 200 programs/s, 0 failures (0 distinct)" in lines
    assert "thunder: 50 programs, 10 programs/s, 4 failures (2 distinct, 1 new, 1 known)" in lines
    assert ("thunder: shard 0 did not end; run it again with: python -m pytest fuzz/ --fuzz-target thunder --fuzz-seed 0xab "
            "--fuzz-shard 0/2 --fuzz-budget 60s") in lines  # fmt: skip
    assert sum(line.startswith("NEW: ") for line in lines) == 1
    monkeypatch.chdir(tmp_path)
    assert f"run it again with: python -m pytest {root}/fuzz/ --fuzz-target" in "\n".join(
        closing_lines(chosen, summarize(chosen))
    )
    assert "  aliasfuzz script s1.json" in lines


def test_progress_says_how_far_it_is(tmp_path: Path) -> None:
    chosen = run(tmp_path)
    now = chosen.begin() + 10
    assert progress(chosen, summarize(chosen), now) == (
        "aliasfuzz: 10 of 60 s, 450 programs, 45/s, 2 distinct failures"
    )


def test_a_line_cut_short_is_passed_over(tmp_path: Path) -> None:
    chosen = run(tmp_path)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"event": "batch", "targ')
    assert summarize(chosen).targets["null"].programs == 400


def test_phases_and_intervals_are_those_of_each_shard(tmp_path: Path) -> None:
    chosen = made(tmp_path)
    lines = [
        {"event": "begin", "time": 10, "limits": {}, "versions": {"torch": "1"}},
        {"event": "phase", "time": 10, "phase": "generate"},
        {"event": "batch", "time": 14, "counts": {"ok": 40}, "seconds": 4, "batches": 1},
        {"event": "phase", "time": 15, "phase": "shrink"},
        {"event": "batch", "time": 18, "counts": {"ok": 60}, "seconds": 8, "batches": 1},
        {"event": "killed", "time": 30, "counts": {"ok": 60}, "digest": "ab", "path": "x.json"},
        {"event": "begin", "time": 40, "limits": {}, "versions": {"torch": "1"}},
        {"event": "phase", "time": 40, "phase": "generate"},
        {"event": "batch", "time": 42, "counts": {"ok": 20}, "seconds": 2, "batches": 1},
        {"event": "done", "time": 43},
    ]
    for shard in (0, 1):
        text = "".join(json.dumps({**line, "target": "null", "shard": shard}) + "\n" for line in lines)
        (tmp_path / f"null-{shard}.jsonl").write_text(text)
    found = summarize(chosen)
    null = found.targets["null"]
    assert null.phases == {"generate": 2 * (5 + 3), "shrink": 2 * 15}
    assert sorted(null.intervals) == [(10, 14, 40)] * 2 + [(14, 18, 20)] * 2 + [(40, 42, 20)] * 2
    assert null.limits == Limits()
    assert null.versions == {"torch": "1"}
    assert found.last == 43
