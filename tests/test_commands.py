"""The commands of `aliasfuzz`, in this process: what they print, their exit codes, and that users' errors have no traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from click.testing import CliRunner, Result

import aliasfuzz
from aliasfuzz import __main__ as main_module
from aliasfuzz import commands
from corpus.case import Case, CorpusError
from corpus.signature import Signature
from corpus.store import Store
from executor import targets
from executor.tracing import trace
from fuzz.check import check
from tests.planted import Crashing, Severed


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of its own, no shipped one, and the planted targets."""
    known = {**targets._BUILT_IN, **{t.name: f"tests.planted:{t.__name__}" for t in (Severed, Crashing)}}
    monkeypatch.setattr(targets, "_BUILT_IN", known)
    monkeypatch.setenv("ALIASFUZZ_CORPUS", str(tmp_path))
    monkeypatch.setattr(commands, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(commands.console, "width", 300)
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(commands.cli, args)


def saved(folder: Path, *, target: str = "severed", state: str = "open") -> Path:
    """A case of two overlapping inputs, on which `severed` is wrong and `null` right."""

    def shift(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    x = torch.arange(4.0)
    program = trace(shift, x[:3], x[1:]).without_sources()
    signature = check(program, target="severed").signature
    case = Case(program=program, target=target, state="open", signature=signature, versions={"torch": "2.13.0"})
    return Store(folder).save(msgspec.structs.replace(case, state=state), "two-windows")


def test_replay_of_an_open_case_is_nothing_new(folder: Path) -> None:
    path = saved(folder)
    result = run("replay")
    assert result.exit_code == 0
    assert path.name in result.output
    assert "open" in result.output


def test_replay_of_a_fixed_case_that_fails_again_is(folder: Path) -> None:
    saved(folder, state="fixed")
    assert run("replay").exit_code == 1


def test_replay_of_an_open_case_that_passes_is_reported_and_no_failure(folder: Path) -> None:
    saved(folder, target="null")
    result = run("replay", "two-windows")
    assert result.exit_code == 0
    assert "fixed" in result.output


def test_replay_on_another_target(folder: Path) -> None:
    saved(folder)
    result = run("replay", "--target", "null")
    assert result.exit_code == 0
    assert "null: ok" in result.output


def test_replay_with_another_signature_is_changed(folder: Path) -> None:
    path = saved(folder)
    case = Store(folder).load(path)
    Store(folder).update(path, msgspec.structs.replace(case, signature=Signature("severed", "shape")))
    result = run("replay")
    assert result.exit_code == 1
    assert "changed" in result.output


def test_replay_names_an_unreadable_file_and_goes_on(folder: Path) -> None:
    saved(folder)
    (folder / "broken.json").write_text("{")
    result = run("replay")
    assert result.exit_code == 2
    assert "broken.json" in result.output
    assert "two-windows" in result.output


def test_replay_of_named_files_goes_on_after_an_unreadable_one(folder: Path) -> None:
    (folder / "broken.json").write_text("{")
    result = run("replay", str(folder / "broken.json"), str(saved(folder)))
    assert result.exit_code == 2
    assert "unreadable" in result.output
    assert re.search(r"two-windows.* open +open ", result.output)


def test_replay_for_machines(folder: Path) -> None:
    path = saved(folder)
    (row,) = json.loads(run("replay", "--json").output)
    assert (row["case"], row["target"], row["recorded"], row["now"]) == (path.name, "severed", "open", "open")
    assert row["what"] == "severed differs from eager:"
    assert json.loads(run("replay", "--update", "--json").output)[0]["now"] == "open"
    assert json.loads(run("replay", "--update", "--json").output) == []


def test_the_version_is_told() -> None:
    assert run("--version").output == f"aliasfuzz, version {aliasfuzz.__version__}\n"


def test_update_writes_what_is_seen_and_shows_what_changed(folder: Path) -> None:
    fixed, still = saved(folder, target="null"), saved(folder)
    before = still.read_bytes()
    now = Store(folder).load(still)
    result = run("replay", "--update")
    assert result.exit_code == 0
    assert re.search(rf"{fixed.name} +null +open +fixed", result.output)
    case = Store(folder).load(fixed)
    assert (case.state, case.versions) == ("fixed", {"torch": torch.__version__})
    assert [seen.state for seen in case.history] == ["open"]
    assert case.program == now.program
    assert Store(folder).load(still).state == "open"
    assert still.read_bytes() != before  # another version of torch was recorded
    assert run("replay", "--update").output == "no case changed\n"


def test_update_leaves_unreadable_files_and_says_so(folder: Path) -> None:
    saved(folder, target="null")
    (folder / "broken.json").write_text("{")
    result = run("replay", "--update")
    assert result.exit_code == 2
    assert re.search(r"broken.json +unreadable", result.output)
    assert "fixed" in result.output
    assert (folder / "broken.json").read_text() == "{"


def test_update_goes_on_where_a_file_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = saved(folder, target="null"), saved(folder, target="pipeline")
    update = Store.update

    def full(store: Store, path: Path, case: Case) -> None:
        if path == first:
            raise CorpusError("no space")
        update(store, path, case)

    monkeypatch.setattr(Store, "update", full)
    result = run("replay", "--update")
    assert result.exit_code == 2
    assert re.search(r"not saved +no space", result.output)
    assert (Store(folder).load(first).state, Store(folder).load(second).state) == ("open", "fixed")


def test_update_is_about_a_cases_own_target(folder: Path) -> None:
    saved(folder)
    result = run("replay", "--update", "--target", "null")
    assert result.exit_code == 2
    assert "leave out --target" in result.output


def test_show_prints_the_program_and_its_facts(folder: Path) -> None:
    path = saved(folder)
    result = run("show", path.stem)
    assert result.exit_code == 0
    assert "a = s0[:3]" in result.output
    assert "a.add_(1)" in result.output
    assert "state: open" in result.output
    assert "torch 2.13.0" in result.output


def test_script_was_run_and_says_so(folder: Path) -> None:
    path = saved(folder, target="null", state="fixed")
    result = CliRunner().invoke(commands.cli, ["script", path.name])
    assert result.exit_code == 0
    assert "it shows no difference (exit code 0)" in result.stderr
    assert result.stdout.startswith('"""')
    assert "aliasfuzz" not in result.stdout
    assert "import torch" in result.stdout


def test_targets_for_people_and_machines() -> None:
    assert "aot_eager" in run("targets").output
    rows = json.loads(run("targets", "--json").output)
    assert {row["name"]: row["available"] for row in rows}["null"] is True
    assert all(row["about"] for row in rows)


@pytest.mark.parametrize("command", ["run", "replay", "reduce", "show", "script", "targets", "doctor"])
def test_help_has_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"aliasfuzz {command}" in result.output.split("Example", 1)[1]


def test_errors_of_users_have_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["aliasfuzz", "show", "nothere"])
    with pytest.raises(SystemExit) as stop:
        main_module.main()
    assert stop.value.code == 2
    assert "no file and no case 'nothere'" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["aliasfuzz", "replay", "--target", "nul"])
    with pytest.raises(SystemExit) as stop:
        main_module.main()
    assert stop.value.code == 2
    assert "there is no target 'nul'" in capsys.readouterr().err


@pytest.mark.parametrize("workers", ["many", "0", "00", "-1", "1.5", "\N{SUPERSCRIPT TWO}", ""])
def test_workers_must_be_a_number(workers: str) -> None:
    result = run("run", "--workers", workers)
    assert result.exit_code == 2
    assert f"a positive number, or auto, not {workers!r}" in result.output


@pytest.mark.parametrize(("code", "ours"), [(0, 0), (1, 1), (2, 130), (-2, 130), (3, 3), (4, 2), (5, 3), (-9, 3)])
def test_exit_codes_of_run(code: int, ours: int) -> None:
    assert commands._exit_code(code) == ours


def test_a_pipe_gets_the_names_of_cases_whole(folder: Path) -> None:
    short = saved(folder, target="null", state="fixed")
    path = short.rename(folder / f"{'long-' * 15}{short.name}")
    plain = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    done = subprocess.run([sys.executable, "-m", "aliasfuzz", "replay", str(path)], env=plain, text=True,
                          capture_output=True, check=True)  # fmt: skip
    assert path.name in done.stdout


def test_a_flaky_case_may_fail(folder: Path) -> None:
    saved(folder, state="flaky")
    assert run("replay").exit_code == 0


def test_a_case_of_an_unknown_target_is_unavailable_and_the_rest_goes_on(folder: Path) -> None:
    saved(folder)
    path = saved(folder, target="elsewhere")
    result = run("replay")
    assert result.exit_code == 0
    assert "unavailable" in result.output
    assert path.name in result.output
