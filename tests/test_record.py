"""A run's record: what is written at its begin and end, and what is read of runs that were cut short or damaged."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from fuzz import record
from fuzz.coverage import APART, Coverage
from fuzz.ending import keep
from fuzz.github import annotate, markdown
from fuzz.journal import Journal, JournalError, write_whole
from fuzz.junit import junit
from fuzz.options import Options
from fuzz.record import Record, RunError
from fuzz.summary import closing_lines, summarize
from fuzz.throughput import PARTS, intervals, spread


def finding(signature: str, *, known: bool, **more: str) -> dict[str, Any]:
    return {"target": "thunder", "path": f"/x/{signature}.json", "signature": signature, "known": known, "state": "open",
            "text": "thunder differs from eager:\n  value: output", "program": "def program(a):\n    return a", **more}  # fmt: skip


def run(folder: Path, *findings: dict[str, Any]) -> Options:
    """A run's journals: two targets with two shards each, one of which did not end."""
    chosen = Options(("null", "thunder"), 0xAB, (0, 1), 2, 60.0, 0, str(folder), "", "dev")
    record.begin(chosen)
    chosen.begin()
    for shard in (0, 1):
        for name in chosen.targets:
            journal = Journal(folder / f"{name}-{shard}.jsonl")
            journal.write(
                "begin", target=name, shard=shard, limits={"banned_dtypes": ["bool"]}, versions={"torch": "2"}
            )
            journal.write("phase", target=name, shard=shard, phase="generate")
            counts = Coverage(
                programs=9, looked_at=3, operators={"aten.add.Tensor": 4}, tally={"kernels": 8, "kernels kept": 3}
            )
            counted = msgspec.to_builtins(counts)
            journal.write("coverage", target=name, shard=shard, counts=counted)
            journal.write("batch", target=name, shard=shard, counts={"ok": 40, "failed": 2}, batches=1, seconds=2.0)
            if (name, shard) != ("thunder", 1):
                journal.write("done", target=name, shard=shard)
    for event in findings:
        Journal(folder / "thunder-1.jsonl").write("finding", **event)
    return chosen


def made(folder: Path, *findings: dict[str, Any]) -> Record:
    chosen = run(folder, *findings)
    return record.record(chosen, summarize(chosen), 1, "finished")


def test_what_a_target_counted_is_printed_with_shares(tmp_path: Path) -> None:
    chosen = run(tmp_path)
    assert "null: 16 kernels, 6 kernels kept (38%)" in list(closing_lines(chosen, summarize(chosen)))


def test_a_record_holds_all_of_the_run_and_comes_back(tmp_path: Path) -> None:
    found = made(tmp_path, finding("s1", known=True), finding("s2", known=False))
    null, thunder = found.targets["null"], found.targets["thunder"]
    assert (null.programs, null.failures, null.outcomes) == (84, 4, {"ok": 80, "failed": 4})
    assert null.coverage == Coverage(
        programs=18, looked_at=6, operators={"aten.add.Tensor": 8}, tally={"kernels": 16, "kernels kept": 6}
    )
    assert "aten.add.Tensor" not in null.never_reached["operators"]
    assert "bool" not in null.never_reached["dtypes"], "the target does not take it"
    assert null.never_reached["inputs"][0] == APART
    assert null.versions == {"torch": "2"}
    assert found.missing == [("thunder", 1)]
    assert [one.signature for _, one in found.findings] == ["s2", "s1"], "new ones first"
    assert "--fuzz-target thunder --fuzz-seed 0xab --fuzz-shard 1/2" in found.rerun[3]
    assert len(thunder.throughput) == PARTS
    record.save(found, tmp_path / "summary.json")
    assert record.load(tmp_path) == found
    data = json.loads((tmp_path / "summary.json").read_text())
    assert (data["format"], data["version"], data["exit_code"]) == ("aliasfuzz.summary", 1, 1)
    assert list(tmp_path.glob("*.part*")) == []


def test_a_run_that_was_killed_is_read_from_its_journals(tmp_path: Path) -> None:
    run(tmp_path, finding("s1", known=False))
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    found = record.load(moved)
    assert found.state == "unfinished"
    assert found.exit_code == 1
    assert found.targets["thunder"].programs == 84
    assert found.machine == record.machine()
    assert found.ended >= found.begun > 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "aliasfuzz.summary", "version": 2}', "\xff"])
def test_a_damaged_summary_is_made_anew(tmp_path: Path, text: str) -> None:
    chosen = run(tmp_path)
    (tmp_path / "summary.json").write_bytes(text.encode("latin-1"))
    assert record.load(tmp_path).seed == chosen.seed
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunError, match=r"its summary.json is damaged, .* and its run.json and journals cannot be read"):
        record.load(tmp_path)


def test_journals_of_another_version_are_refused_in_words(tmp_path: Path) -> None:
    run(tmp_path)
    Journal(tmp_path / "null-0.jsonl").write("batch", target="null", shard=0)
    with pytest.raises(
        RunError, match=r"it has no summary\.json, and its run\.json and journals cannot be read either"
    ):
        record.load(tmp_path)


def test_what_holds_no_run_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nowhere is no folder; a run leaves one in \.aliasfuzz/runs"):
        record.load(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"holds no run: it has no summary\.json, and no run\.json"):
        record.load(tmp_path)


def test_a_run_that_had_no_time_for_a_program(tmp_path: Path) -> None:
    chosen = Options(("null",), 1, (0,), 1, 60.0, 0, str(tmp_path), "", "dev")
    record.begin(chosen)
    found = record.load(tmp_path)
    assert found.targets["null"].programs == 0
    assert found.targets["null"].throughput == []
    assert found.missing == [("null", 0)]
    assert found.exit_code == 3


def test_throughput_is_spread_over_the_time_of_the_run() -> None:
    events = [
        {"event": "begin", "time": 100.0},
        {"event": "batch", "time": 130.0, "counts": {"ok": 300}, "seconds": 30},
        {"event": "batch", "time": 160.0, "counts": {"ok": 900}, "seconds": 60},
    ]
    found = spread(intervals(events), 100, 160)
    assert [second for second, _ in found] == [float(k) for k in range(1, PARTS + 1)]
    assert [rate for _, rate in found] == [10.0] * 30 + [20.0] * 30
    assert spread([], 5, 5) == []


def test_junit_has_a_case_for_each_shard_and_finding(tmp_path: Path) -> None:
    odd = finding("s3", known=False, text="a <b> & \x00\x1b \ud800", program="]]>")
    root = ET.fromstring(junit(made(tmp_path, finding("s1", known=True), odd)).encode(errors="strict"))  # noqa: S314 - ours
    suites = {suite.get("name"): suite for suite in root}
    thunder = suites["aliasfuzz.thunder"]
    assert {name: thunder.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4", "failures": "1", "errors": "1", "skipped": "1"}  # fmt: skip
    kinds = {case.get("name"): [child.tag for child in case] for case in thunder}
    assert kinds == {
        "shard 0": [],
        "shard 1": ["error"],
        "finding s1": ["skipped", "system-out"],
        "finding s3": ["failure"],
    }
    failure = thunder.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "a <b> & ?? ?"
    assert "]]>" in (failure.text or "")


def test_annotations_are_for_github_only(tmp_path: Path) -> None:
    found = made(tmp_path, finding("s1", known=True), finding("s2", known=False, text="100% wrong\nhere"))
    assert list(annotate(found, {})) == []
    lines = list(annotate(found, {"GITHUB_ACTIONS": "true"}))
    assert lines[0].startswith(
        "::error title=aliasfuzz%3A new finding on thunder::100%25 wrong%0Ahere%0A%0Adef program"
    )
    assert lines[1] == "::warning title=aliasfuzz%3A a shard did not end::thunder: shard 1"
    assert all("\n" not in line for line in lines)


def test_many_findings_make_ten_annotations_and_a_summary_that_is_not_too_long(tmp_path: Path) -> None:
    found = made(tmp_path, *(finding(f"s{k}", known=False) for k in range(300)))
    errors = [line for line in annotate(found, {"GITHUB_ACTIONS": "true"}) if line.startswith("::error")]
    assert len(errors) == 10
    assert errors[-1].endswith("::291 more new findings; see the job's summary")
    text = markdown(found)
    assert text.count("<details>") == 50
    assert "... and 250 more, in the run's `summary.json`." in text


def test_the_summary_of_a_job(tmp_path: Path) -> None:
    text = markdown(made(tmp_path, finding("s2", known=False, program="```python\n```")))
    assert "| `thunder` | 84 | 42 | 4 | 1 | 1 |" in text
    assert re.search(r"^````$(.|\n)*^```python$(.|\n)*^````$", text, re.MULTILINE), "the fence holds what is in it"
    assert "- `thunder`: shard 1 did not end" in text


def test_a_run_leaves_all_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "job.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    found = made(tmp_path / "run")
    lines, kept = keep(found, tmp_path / "run", str(tmp_path / "copy.json"))
    assert kept
    assert lines == [f"a page about this run: aliasfuzz report {tmp_path / 'run'}"]
    assert {"run.json", "summary.json", "junit.xml"} <= {path.name for path in (tmp_path / "run").iterdir()}
    assert (tmp_path / "copy.json").read_text() == (tmp_path / "run" / "summary.json").read_text()
    assert summary.read_text().startswith("before\n## aliasfuzz")


def test_what_cannot_be_written_keeps_nothing_else_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "nowhere" / "job.md"))
    found = made(tmp_path)
    (tmp_path / "summary.json").mkdir()
    lines, kept = keep(found, tmp_path)
    assert not kept
    assert (tmp_path / "junit.xml").exists()
    assert any(line.startswith(f"ERROR: {tmp_path / 'summary.json'}: cannot be written: ") for line in lines)
    assert any("set $GITHUB_STEP_SUMMARY to a file that can be written" in line for line in lines)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    write_whole(file, "old")
    (tmp_path / f"summary.json.part{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(
        JournalError, match=r"summary.json: cannot be written: No space left on device; .*Make room, or "
    ):
        write_whole(file, "new")
    assert file.read_text() == "old"
