"""`aliasfuzz reduce`: what it takes, what it prints and saves, how it says what it cannot do."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from rich.console import Console

from aliasfuzz import commands, reducing
from aliasfuzz.reducing import ReduceError, start, watched
from corpus.case import Case
from corpus.store import Store
from executor import targets
from executor.tracing import trace
from fuzz.check import check
from fuzz.pursuit import Pursuit
from tests.planted import Crashing, Severed

MODULE = """
import torch

def step(a, b):
    c = a * 3
    a.mul_(2)
    d = b.neg()
    b.sub_(1)
    return d + c.sum()

def step_args():
    x = torch.arange(12.0) * 3
    return [x[:8], x[4:]]

def apart():
    return torch.ones(3), torch.ones(3)

def plain(a, b):
    return a + b

def args():
    return step_args()

def number():
    return 3

PLAIN = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus and a current folder of its own, with a module in it, and the planted targets."""
    known = {**targets._BUILT_IN, **{t.name: f"tests.planted:{t.__name__}" for t in (Severed, Crashing)}}
    monkeypatch.setattr(targets, "_BUILT_IN", known)
    monkeypatch.setenv("ALIASFUZZ_CORPUS", str(tmp_path / "corpus"))
    monkeypatch.setattr(commands.console, "width", 300)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(MODULE)
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(commands.cli, ("reduce", *args))


@pytest.mark.parametrize("name", ["mine:step", "mine.py:step"])
def test_a_function_is_reduced_and_saved(name: str, folder: Path) -> None:
    result = run(name, "--target", "severed")
    assert result.exit_code == 0, result.output
    assert "nothing more can go" in result.output
    assert "signature: " in result.output
    path = Path(result.output.partition("saved as ")[2].splitlines()[0])
    case = Store(folder / "corpus").load(path)
    assert (case.target, case.state, case.note) == ("severed", "open", f"Reduced from {name}.")
    assert len(case.program.calls) == 1
    assert case.signature is not None
    assert case.signature.digest in result.output
    assert not check(case.program, target="severed").ok


def test_a_reduction_for_machines_is_one_object(folder: Path) -> None:
    result = run("mine:step", "--target", "severed", "--json")
    found = json.loads(result.stdout)
    assert found["why"] == "minimum"
    first = found["cases"][0]
    case = Store(folder / "corpus").load(first["path"])
    assert case.signature is not None
    assert (first["signature"], first["statements"]) == (case.signature.digest, len(case.program.calls))
    assert first["text"].startswith("severed differs from eager:")
    assert "def program(" in first["program"]
    assert len(found["cases"]) == len(Store(folder / "corpus").files())


def test_a_case_is_reduced_on_its_own_target(folder: Path) -> None:
    whole = start("mine:step", None, "severed")
    verdict = check(whole.program, target="severed")
    made = Case(program=whole.program, target="severed", state="open", signature=verdict.signature)
    path = Store(folder / "corpus").save(made, "whole")
    before = path.read_bytes()
    assert run("whole").exit_code == 0
    assert path.read_bytes() == before
    cases = [case for _, case in Store(folder / "corpus").cases() if isinstance(case, Case)]
    wrong = [case for case in cases if case.signature and case.signature.symptom in ("value", "memory")]
    assert sorted(len(case.program.calls) for case in wrong) == [1, len(whole.program.calls)]


def test_steps_end_it() -> None:
    result = run("mine:step", "--target", "severed", "--steps", "2")
    assert "the steps are used up" in result.output


def test_another_function_makes_the_arguments() -> None:
    assert start("mine:step", "apart", None).program.inputs == (0, 1)
    assert len(start("mine:step", "apart", None).program.entry.storages) == 2
    assert len(start("mine:plain", None, None).program.entry.storages) == 1


WRONG = [
    ("nosuch:f", None, "nosuch cannot be imported: ModuleNotFoundError"),
    ("mine:nosuch", None, "mine has no function 'nosuch'"),
    ("mine:PLAIN", None, "mine has no function 'PLAIN'"),
    ("mine:step", "nosuch", "nothing makes the arguments of step: define nosuch()"),
    ("mine:step", "number", "number() returns a int, not a list or tuple"),
]


@pytest.mark.parametrize(("name", "args", "message"), WRONG)
def test_what_is_wrong_is_said(name: str, args: str | None, message: str) -> None:
    with pytest.raises(ReduceError) as caught:
        start(name, args, None)
    assert message in str(caught.value)


def test_a_function_that_does_not_fail_is_refused() -> None:
    result = run("mine:step", "--target", "null")
    assert isinstance(result.exception, ReduceError)
    assert str(result.exception) == "nothing to reduce: null: ok"


def test_other_bugs_that_are_met_are_saved_once(folder: Path) -> None:
    made = trace(*_pair())
    verdict = check(made, target="severed")
    crash = check(trace(lambda a: a.t() + 1, _pair()[1].reshape(2, -1)), target="crashing")
    pursuit = Pursuit(verdict, targets.get("severed"), {("x",): crash, ("y",): crash})
    lines = [str(line) for line in reducing.lines(reducing.keep(pursuit, "mine:step"), "time")]
    assert sum(line.startswith("met on the way") for line in lines) == 1
    assert sum(line.startswith("saved as") for line in lines) == 2
    assert len(Store(folder / "corpus").files()) == 2


def _pair() -> tuple[Callable[..., torch.Tensor], torch.Tensor, torch.Tensor]:
    x = torch.arange(12.0) * 3
    return (lambda a, b: (a.add_(1), b * 2)[1]), x[:8], x[4:]


def test_progress_without_a_terminal_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    pursuit = Pursuit(check(trace(*_pair()), target="severed"), None)
    monkeypatch.setattr(reducing, "SECONDS_BETWEEN_LINES", 0.0)
    with watched(Console(file=out)) as watch:
        watch(1, pursuit)
        watch(2, pursuit)
    assert out.getvalue() == "1 programs tried: 2 calls, 2 inputs\n2 programs tried: 2 calls, 2 inputs\n"
    monkeypatch.setattr(reducing, "SECONDS_BETWEEN_LINES", 60.0)
    with watched(Console(file=out)) as watch:
        watch(3, pursuit)
    assert "3 programs" not in out.getvalue()


def test_progress_on_a_terminal_is_one_line_that_changes() -> None:
    out = io.StringIO()
    pursuit = Pursuit(check(trace(*_pair()), target="severed"), None)
    with watched(Console(file=out, force_terminal=True, width=80)) as watch:
        watch(7, pursuit)
    assert "7 programs tried: 2 calls, 2 inputs" in out.getvalue()
