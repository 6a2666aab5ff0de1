"""The nightly job: what a night says of findings and cases, and its commands run as the workflow runs them."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from corpus.case import Case
from corpus.store import Store
from executor import targets
from executor.tracing import trace
from fuzz import nightly
from fuzz.check import check
from fuzz.nightly import Entry, Night, NightlyError, compare, page, read, replays
from fuzz.replay import Replay
from tests.planted import Severed

ROOT = Path(__file__).parents[1]
WORKFLOW = (ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8")
SCRIPT = ROOT / ".ci" / "nightly"


def campaign(*findings: tuple[str, bool]) -> dict[str, Any]:
    text = "severed differs from eager:\n  value: output: expected 1, got 2"
    found = [{"signature": s, "known": known, "path": f"/n/{s}.json", "text": text} for s, known in findings]
    return {"programs": 600, "seconds": 60.0, "failures": 5, "findings": found}


def test_findings_are_new_or_known_as_the_corpus_has_them() -> None:
    night = compare("severed", campaign(("a1", False), ("b2", True)), {}, None)
    assert night.new == (Entry("a1.json", "a1 value: output: expected 1, got 2"),)
    assert [entry.case for entry in night.known] == ["b2.json"]
    assert (night.rate, night.rate_before, night.exit_code) == (10.0, 0.0, 1)


@pytest.mark.parametrize(
    ("recorded", "now", "kind"),
    [
        ("open", "fixed", "fixed"),
        ("flaky", "fixed", "fixed"),
        ("open", "changed", "changed"),
        ("fixed", "open", "changed"),
        ("open", "open", None),
        ("open", "unavailable", None),
    ],
)
def test_cases_are_fixed_or_changed_by_what_they_do_now(recorded: str, now: str, kind: str | None) -> None:
    night = compare("severed", campaign(), {"c.json": (recorded, Replay(now, None, "severed: what"))}, None)
    assert [each for each in ("fixed", "changed", "new", "known") if getattr(night, each)] == ([kind] if kind else [])
    if kind is not None:
        assert getattr(night, kind) == (Entry("c.json", f"was {recorded}, is {now}: severed: what"),)
    assert night.exit_code == (kind == "changed")


def test_a_shipped_case_is_reported_once_and_not_each_night() -> None:
    seen = {"c.json": ("open", Replay("fixed", None, "severed: ok"))}
    first = compare("severed", campaign(), seen, None)
    again = compare("severed", campaign(), seen, first)
    assert (len(first.fixed), len(again.fixed)) == (1, 0)
    assert again.rate_before == 10.0


def test_a_case_that_there_was_no_time_for_keeps_its_state() -> None:
    first = compare("severed", campaign(), {"c.json": ("open", Replay("fixed", None, "ok"))}, None)
    second = compare("severed", campaign(), {"c.json": ("open", None)}, first)
    assert (second.states, second.not_replayed, second.exit_code) == ({"c.json": "fixed"}, 1, 0)
    assert "severed: 1 saved cases were not run again" in page([second])


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A corpus of one case, on which `severed` is wrong and `null` right; nothing is shipped."""
    monkeypatch.setattr(targets, "_BUILT_IN", {**targets._BUILT_IN, "severed": "tests.planted:Severed"})
    monkeypatch.setattr(nightly, "SHIPPED", tmp_path / "shipped")
    return Store(tmp_path / "null" / "corpus")


def case(target: str) -> Case:
    def shift(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    x = torch.arange(4.0)
    program = trace(shift, x[:3], x[1:]).without_sources()
    signature = check(program, target=Severed()).signature
    return Case(program=program, target=target, state="open", signature=signature)


def test_replays_are_of_this_targets_cases_and_are_written_to_the_corpus(corpus: Store) -> None:
    corpus.save(case("severed"))
    path = corpus.save(case("null"))
    (name, (state, now)), = replays("null", corpus, 60.0).items()  # fmt: skip
    assert (name, state) == (path.name, "open")
    assert now is not None
    assert now.state == "fixed"
    assert corpus.load(path).state == "fixed"
    assert replays("null", corpus, 0.0) == {path.name: ("fixed", None)}


def test_the_command_writes_the_night_and_the_summary_of_all(
    corpus: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = corpus.save(case("null"))
    (tmp_path / "null" / "summary.json").write_text(json.dumps({"targets": {"null": campaign(("a1", False))}}))
    assert nightly.main([str(tmp_path), "null"]) == 1
    text = (tmp_path / "nights.md").read_text()
    assert capsys.readouterr().out == text
    assert "| null | 600 | 10 | - | 1 | 0 | 1 | 0 |" in text
    assert f"- null: `{path.name}`: was open, is fixed: null: ok" in text
    (only,) = json.loads((tmp_path / "nights.json").read_text())
    assert (only["format"], only["version"], only["new"][0]["case"]) == ("aliasfuzz.night", 1, "a1.json")
    other = Night(target="pipeline:nvfuser", programs=0, seconds=0.0)
    (tmp_path / "pipeline-nvfuser").mkdir()
    (tmp_path / "pipeline-nvfuser" / "night.json").write_bytes(msgspec.json.encode(other))
    assert nightly.main([str(tmp_path)]) == 0
    assert "| pipeline:nvfuser | 0 | 0 | - | 0 | 0 | 0 | 0 |" in (tmp_path / "nights.md").read_text()


def test_a_campaign_that_did_not_end_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nightly.main([str(tmp_path), "null"]) == 2
    assert "did the campaign end?" in capsys.readouterr().err
    (tmp_path / "night.json").write_text("[]")
    with pytest.raises(NightlyError, match=r"no night\.json.*delete it"):
        read(tmp_path / "night.json")
    (tmp_path / "night.json").write_bytes(msgspec.json.encode(Night(target="null", programs=0, seconds=0.0, version=9)))
    with pytest.raises(NightlyError, match=r"9 is not aliasfuzz\.night 1"):
        read(tmp_path / "night.json")


def environment(folder: Path, **more: str) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "GITHUB_"))}
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), plain.get("PATH", "")])
    return {**plain, "PATH": path, "ALIASFUZZ_NIGHTLY_FOLDER": str(folder / "nightly"), "OMP_NUM_THREADS": "1", **more}


def job(folder: Path, *parts: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), *parts],
        env=environment(folder, ALIASFUZZ_NIGHTLY_BUDGET="2m", ALIASFUZZ_NIGHTLY_WORKERS="0", **more),
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
    )


def test_the_jobs_commands_run(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    done = job(tmp_path, "null", GITHUB_STEP_SUMMARY=str(summary), PYTEST_ADDOPTS="--fuzz-batches 1")
    assert done.returncode == 0, done.stdout + done.stderr
    place = tmp_path / "nightly" / "null"
    assert read(place / "night.json").programs > 0
    assert [page.name for page in (place / "runs").glob("*/report.html")] == ["report.html"]
    assert "| null | " in summary.read_text()
    assert (tmp_path / "nightly" / "nights.md").read_text() in summary.read_text()


PYTHON = """#!/usr/bin/env bash
echo "python $*"
case "$*" in
  *"--fuzz-target thunder"*) exit 3 ;;
  *"nightly thunder") exit 1 ;;
esac
"""


def test_the_job_goes_through_all_parts_and_its_code_is_the_worst(tmp_path: Path) -> None:
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    for number in range(9):
        (tmp_path / "nightly" / "thunder" / "runs" / f"2026010{number}").mkdir(parents=True)
    done = job(tmp_path, "thunder", "pipeline:nvfuser", "tests", "summary")
    assert done.returncode == 3
    nights = f"python -m fuzz.nightly {tmp_path}/nightly"
    assert [line for line in done.stdout.splitlines() if line.startswith(nights)] == [
        f"{nights} thunder",
        f"{nights} pipeline:nvfuser",
        nights,
    ]
    assert "--fuzz-target pipeline:nvfuser --fuzz-budget 2m" in done.stdout
    assert f"--fuzz-corpus {tmp_path}/nightly/pipeline-nvfuser/corpus" in done.stdout
    assert "python -m pytest -n 0\n" in done.stdout
    assert len(re.findall(r"^python -m aliasfuzz report .*/runs/\d+-\d+$", done.stdout, re.MULTILINE)) == 2
    # Of the runs of nine nights the last seven are kept.
    runs = sorted(run.name for run in (tmp_path / "nightly" / "thunder" / "runs").iterdir())
    assert runs == [f"2026010{number}" for number in range(2, 9)]


GH = """#!/usr/bin/env bash
case "$1 $2 $3" in
  "run list --workflow") printf '30\\n20\\n10\\n' ;;
  "run download 20") echo "$@"; mkdir -p "$7"; touch "$7/night.json" ;;
  *) exit 1 ;;
esac
"""


def last_night(folder: Path, gh: str) -> subprocess.CompletedProcess[str]:
    (folder / "gh").write_text(gh)
    (folder / "gh").chmod(0o755)
    command = ["bash", str(ROOT / ".ci" / "last-night"), "thunder"]
    return subprocess.run(command, env=environment(folder), text=True, capture_output=True, timeout=60, check=False)


def test_the_last_nights_files_come_from_the_newest_run_that_has_them(tmp_path: Path) -> None:
    done = last_night(tmp_path, GH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"run download 20 --name nightly-thunder --dir {tmp_path}/nightly/thunder",
        "nightly-thunder is that of run 20",
    ]
    assert (tmp_path / "nightly" / "thunder" / "night.json").exists()


def test_a_first_night_has_none(tmp_path: Path) -> None:
    done = last_night(tmp_path, GH.replace("30\\n20\\n10\\n", "30\\n"))
    assert (done.returncode, done.stdout) == (0, "no earlier nightly-thunder: everything counts as new\n")
    assert last_night(tmp_path, "#!/usr/bin/env bash\nexit 7\n").returncode == 7


def parts(text: str) -> list[str]:
    (found,) = re.findall(r"part: \[(.*)\]", text)
    return [part.strip() for part in found.split(",")]


def test_the_workflow_runs_what_tox_runs_without_arguments() -> None:
    (default,) = re.findall(r"set -- (.*)", SCRIPT.read_text())
    assert parts(WORKFLOW) == default.split()
    for part in parts(WORKFLOW)[1:]:
        assert part in targets.names()
    for target in re.findall(r'target: "(.*?)"', WORKFLOW):
        assert target in targets.names()
    environments = set(re.findall(r"tox run -e (\S+)", WORKFLOW))
    assert environments == {"nightly", "nightly-gpu"}
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    for environment in environments:
        command = tox[f"testenv:{environment}"]["commands"]
        assert command.startswith("bash {tox_root}{/}.ci{/}nightly {posargs")


def test_no_night_is_cancelled_and_every_upload_happens_whatever_failed() -> None:
    assert re.search(r"^concurrency:\n  group: \S+\n  cancel-in-progress: false$", WORKFLOW, re.MULTILINE)
    uploads = re.findall(r"- uses: actions/upload-artifact@.*\n( +if: .*)", WORKFLOW)
    assert [line.strip() for line in uploads] == ["if: ${{ always() }}"] * 3
    # Each job, and in it the campaign, has its time; the campaign's is shorter, so that the upload has some left.
    assert re.findall(r"timeout-minutes: (\d+)", WORKFLOW) == ["150", "120", "150", "120", "20"]


@pytest.mark.parametrize("file", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_actions_are_pinned_to_commits_and_every_script_exists(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    used = re.findall(r"uses: (.*)", text)
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", line)] == []
    assert all((ROOT / script).is_file() for script in re.findall(r"bash (\S+)", text))


def test_actions_are_the_same_in_all_workflows() -> None:
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / ".github" / "workflows").glob("*.yml")]
    used = {line.partition("@")[0]: set[str]() for text in texts for line in re.findall(r"uses: (.*)", text)}
    for text in texts:
        for line in re.findall(r"uses: (.*)", text):
            used[line.partition("@")[0]].add(line)
    assert [sorted(pins) for pins in used.values() if len(pins) > 1] == []
