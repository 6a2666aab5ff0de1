"""`aliasfuzz doctor`: what it looks for, what it says to install, and its exit code."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from aliasfuzz import commands, doctor
from aliasfuzz.doctor import Check
from executor import targets
from executor.errors import TargetError
from tests.planted import Severed


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for findings."""
    monkeypatch.setenv("ALIASFUZZ_CORPUS", str(tmp_path / "corpus"))
    return tmp_path


def found(name: str) -> Check:
    return next(check for check in doctor.checks() if check.name == name)


def run(*args: str) -> Result:
    return CliRunner().invoke(commands.cli, ["doctor", *args])


def no_target(name: str) -> Any:
    raise TargetError(f"{name} is not installed")


def test_it_looks_for_all_that_a_run_may_need() -> None:
    assert [check.name for check in doctor.checks()] == [
        "python", "torch", "hypothesis", "default target", "findings folder", "disk space",
        "C++ compiler", "jinja2", "thunder", "GPU", "nvfuser",
    ]  # fmt: skip


def test_what_is_found_is_named_with_its_version() -> None:
    assert found("python") == Check("python", ".".join(map(str, sys.version_info[:3])))
    assert str(torch.__version__) in found("torch").what
    assert found("default target") == Check("default target", "pipeline: ok")


def test_without_jinja2_it_says_what_the_report_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("jinja2").found

    def version(name: str) -> str:
        if name == "jinja2":
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(doctor, "version", version)
    assert found("jinja2").remedy == "for aliasfuzz report: pip install 'aliasfuzz[report]'"


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_another_python_is_named_as_wrong(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    assert "3.11" in found("python").remedy


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    check = found("C++ compiler")
    assert (check.found, check.what) == (False, "no no-such-compiler")
    assert "$CXX" in check.remedy


def test_missing_targets_say_why_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "get", lambda name: Severed() if name == "pipeline" else no_target(name))
    monkeypatch.setattr(doctor, "_default_target", lambda: Check("default target", "ok"))
    thunder, nvfuser = found("thunder"), found("nvfuser")
    assert (thunder.what, nvfuser.what) == ("thunder is not installed", "pipeline:nvfuser is not installed")
    assert "aliasfuzz[thunder]" in thunder.remedy
    assert "aliasfuzz[nvfuser]" in nvfuser.remedy


def test_a_gpu_is_named_with_its_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(
        is_available=lambda: True, get_device_capability=lambda: (9, 0), get_device_name=lambda: "NVIDIA H100"
    )
    monkeypatch.setattr(doctor, "torch", SimpleNamespace(cuda=cuda))
    assert doctor._gpu() == Check("GPU", "NVIDIA H100, compute capability 9.0")


@pytest.mark.parametrize(("built_for", "missing"), [(None, "a build of torch with CUDA"), ("13.0", "its driver")])
def test_without_a_gpu_it_says_what_is_missing(
    built_for: str | None, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    assert missing in doctor._gpu().remedy


def test_a_folder_that_cannot_be_written_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("findings folder").found
    (folder / "file").write_text("")
    monkeypatch.setenv("ALIASFUZZ_CORPUS", str(folder / "file"))
    check = found("findings folder")
    assert (check.found, check.what) == (False, f"{folder / 'file'} cannot be written")
    assert "$ALIASFUZZ_CORPUS" in check.remedy


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 29))
    check = found("disk space")
    assert (check.found, check.what) == (False, "0.5 GiB free")


def test_the_exit_code_is_about_the_default_target_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert run().exit_code == 0
    monkeypatch.setattr(doctor, "_default_target", lambda: Check("default target", "wrong", "reinstall"))
    assert run().exit_code == 3


def test_people_read_a_table_and_machines_json() -> None:
    table, rows = run().output, json.loads(run("--json").output)
    assert "default target" in table
    assert rows[0].keys() == {"name", "found", "what", "remedy"}
    assert {row["found"] for row in rows} <= {True, False}
    assert all(row["found"] == (not row["remedy"]) for row in rows)
