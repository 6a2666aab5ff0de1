"""The main job and the command line as users run them: in processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def command(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in an empty folder, with the planted targets known to pytest."""
    return subprocess.run(args, cwd=folder, env=environment(folder), text=True, capture_output=True, timeout=240,
                          check=False)  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return {**plain, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-p tests.planted", "NO_COLOR": "1",
            "ALIASFUZZ_CORPUS": str(folder / "corpus"), "COLUMNS": "140"}  # fmt: skip


def pytest_fuzz(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    run = folder / f"run{len(list(folder.glob('run*')))}"
    return command(folder, sys.executable, "-m", "pytest", str(ROOT / "fuzz"), "-q", "-p", "no:cacheprovider",
                   "--fuzz-run", str(run), *args)  # fmt: skip


def aliasfuzz(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return command(folder, sys.executable, "-m", "aliasfuzz", *args)


def test_two_workers_find_nothing_on_null(tmp_path: Path) -> None:
    done = pytest_fuzz(tmp_path, "-n", "2", "--fuzz-target", "null", "--fuzz-budget", "4s")
    assert done.returncode == 0, done.stdout
    line = re.search(r"^null: (\d+) programs, \d+ programs/s, 0 failures \(0 distinct\)$", done.stdout, re.MULTILINE)
    assert line is not None, done.stdout
    assert int(line[1]) > 50
    assert len(list((tmp_path / "run0").glob("null-*.jsonl"))) == 2
    assert re.search(r"a shard runs again with: python -m pytest /.*/fuzz/ --fuzz-target null --fuzz-seed 0x\w+ --fuzz-shard 0/2",
                     done.stdout)  # fmt: skip


def test_a_bug_is_found_saved_shown_scripted_and_known_the_next_time(tmp_path: Path) -> None:
    args = ("--fuzz-target", "crashing", "--fuzz-budget", "60s", "--fuzz-batches", "5", "--fuzz-seed", "3")
    first = pytest_fuzz(tmp_path, *args, "--fuzz-json", str(tmp_path / "summary.json"))
    assert first.returncode == 1, first.stdout
    assert "NEW: crashing differs from eager:" in first.stdout
    assert "exception: the run: expected no exception, got KeyError: 'transposed'" in first.stdout
    summary: dict[str, Any] = json.loads((tmp_path / "summary.json").read_text())
    found = summary["targets"]["crashing"]["findings"]
    finding = found[0]
    assert summary["exit_code"] == 1
    path = Path(finding["path"])
    assert path.parent == tmp_path / "corpus"
    assert "def program(" in finding["program"]

    shown = aliasfuzz(tmp_path, "show", path.name)
    assert shown.returncode == 0, shown.stderr
    assert "def program(" in shown.stdout
    assert "state: open" in shown.stdout

    again = pytest_fuzz(tmp_path, *args)
    assert again.returncode == 0, again.stdout
    assert f"({len(found)} distinct, 0 new, {len(found)} known)" in again.stdout


def test_a_failure_of_the_harness_is_told_from_a_bug(tmp_path: Path) -> None:
    plugin = tmp_path / "broken_strategy.py"
    plugin.write_text(
        "import fuzz.campaign\n\ndef fail(*_):\n    raise ZeroDivisionError\n\nfuzz.campaign.judge = fail\n"
    )
    env = {**environment(tmp_path), "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    env["PYTEST_ADDOPTS"] += " -p broken_strategy"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(ROOT / "fuzz"), "-q", "-p", "no:cacheprovider", "--fuzz-run",
         str(tmp_path / "run"), "--fuzz-target", "null", "--fuzz-budget", "5s"],
        cwd=tmp_path, env=env, text=True, capture_output=True, timeout=240, check=False)  # fmt: skip
    assert done.returncode == 3, done.stdout
    assert "null: shard 0 did not end; run it again with: python -m pytest /" in done.stdout


@pytest.mark.parametrize(("args", "message"), [
    (("--fuzz-target", "nul"), "there is no target 'nul'; there are null, "),
    (("--fuzz-budget", "soon"), "a budget is a positive duration such as 60s, 5m or 1h, not 'soon'"),
    (("--fuzz-profile", "fast"), "a profile is one of pr, dev, nightly, not 'fast'"),
    (("--fuzz-shard", "3/2"), "a shard is its number and how many there are"),
    (("--fuzz-seed", "x"), "a seed is a number such as 7 or 0x1f, not 'x'"),
])  # fmt: skip
def test_bad_options_say_what_is_right(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    done = pytest_fuzz(tmp_path, *args)
    assert done.returncode == 4
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_keeps_what_was_found(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", str(ROOT / "fuzz"), "-n", "2", "-q", "-p", "no:cacheprovider", "--fuzz-run",
         str(tmp_path / "run"), "--fuzz-target", "crashing", "--fuzz-budget", "120s"],
        cwd=tmp_path, env=environment(tmp_path), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True)  # fmt: skip
    try:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline and not list((tmp_path / "corpus").glob("*.json")):
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=180)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert list((tmp_path / "corpus").glob("*.json"))
    assert process.returncode == 2, out
    assert "crashing: " in out


def test_ctrl_c_of_the_command_keeps_what_was_found(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "aliasfuzz", "run", "--target", "crashing", "--budget", "120s", "--workers", "1", "--json",
         "out.json"], cwd=tmp_path, env=environment(tmp_path), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
    try:
        deadline = time.monotonic() + 100
        runs = tmp_path / ".aliasfuzz" / "runs"
        while time.monotonic() < deadline and not any('"finding"' in p.read_text() for p in runs.glob("*/*.jsonl")):
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=180)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, out
    assert "NEW: crashing differs from eager:" in out
    assert json.loads((tmp_path / "out.json").read_text())["targets"]["crashing"]["findings"]


def test_without_xdist(tmp_path: Path) -> None:
    done = pytest_fuzz(tmp_path, "-p", "no:xdist", "--fuzz-target", "null", "--fuzz-budget", "2s")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^null: \d+ programs", done.stdout, re.MULTILINE)


def test_run_as_a_command(tmp_path: Path) -> None:
    done = aliasfuzz(tmp_path, "run", "--target", "null", "--budget", "3s", "--workers", "1", "--json", "out.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^null: \d+ programs, \d+ programs/s, 0 failures \(0 distinct\)$", done.stdout, re.MULTILINE)
    assert json.loads((tmp_path / "out.json").read_text())["exit_code"] == 0
    bad = aliasfuzz(tmp_path, "run", "--target", "nul")
    assert bad.returncode == 2
    assert "there is no target 'nul'" in bad.stderr
