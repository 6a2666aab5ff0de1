"""What a run may leave changed beside its results: it is seen, named and put back; and eager is held against itself."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from executor.memory import allocate
from executor.program import Program
from executor.targets.base import Target
from executor.tracing import trace
from fuzz import check as check_module
from fuzz.check import check
from fuzz.runs import attempt, run
from fuzz.state import SETTINGS, State, late_errors
from fuzz.subjects import Subject, of_program


class Does(Target):
    """Runs in eager, and does something else before it."""

    name = "does"
    needs_source = False

    def __init__(self, when: str, act: Callable[[], Any]) -> None:
        self.when, self.act = when, act

    def compile(self, fn: Callable[..., Any], example_args: Any) -> Callable[..., Any]:
        def compiled(*args: Any) -> Any:
            if self.when == "run":
                self.act()
            return fn(*args)

        if self.when == "compile":
            self.act()
        return compiled


def program() -> Program:
    return trace(lambda x: x.mul_(2), torch.ones(3))


CHANGES: dict[str, Callable[[], Any]] = {
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "grad mode": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "default device": lambda: torch.set_default_device("meta"),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(mode=True),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),  # noqa: FBT003 - positional in torch
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(mode=True),
    "matmul precision": lambda: torch.set_float32_matmul_precision("medium"),
    "torch's random numbers": lambda: torch.rand(1),
    "Python's random numbers": random.random,
    "current folder": lambda: os.chdir("/"),
}


def test_every_setting_has_a_change_to_test_it() -> None:
    assert [setting.name for setting in SETTINGS] == list(CHANGES)


@pytest.mark.parametrize("when", ["compile", "run"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_setting_is_named_and_put_back(name: str, when: str) -> None:
    before = State()
    verdict = check(program(), target=Does(when, CHANGES[name]))
    assert before.restore() == ()
    assert verdict.symptom == "state"
    assert [mismatch.detail for mismatch in verdict.mismatches] == [name]
    assert check(program(), target="null").ok


def test_a_setting_that_is_changed_and_changed_back_is_none() -> None:
    def act() -> None:
        torch.set_default_dtype(torch.float64)
        torch.set_default_dtype(torch.float32)

    assert check(program(), target=Does("run", act)).ok


def test_what_eager_changes_too_is_no_difference() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        return x + 1

    grad = torch.is_grad_enabled()
    assert check(function, [torch.ones(3)], target="null").ok
    assert torch.is_grad_enabled() == grad


def test_a_wrong_result_comes_before_a_changed_setting() -> None:
    class Both(Does):
        def compile(self, fn: Callable[..., Any], example_args: Any) -> Callable[..., Any]:
            inner = super().compile(fn, example_args)
            return lambda x: inner(x) + 1

    verdict = check(trace(lambda x: x * 2, torch.ones(3)), target=Both("run", CHANGES["default dtype"]))
    assert verdict.symptoms == ("value", "state")


@pytest.mark.parametrize("spoil", [
    lambda x: setattr(x, "data", torch.empty(0)),
    lambda x: x.unsqueeze_(0),
    lambda x: x.resize_(1),
    lambda x: x.requires_grad_(),
    lambda x: x.set_(torch.ones(3)),
])  # fmt: skip
def test_an_input_that_lies_otherwise_afterwards_is_a_change(spoil: Callable[[torch.Tensor], Any]) -> None:
    class Spoils(Target):
        name = "spoils"
        needs_source = False

        def compile(self, fn: Callable[..., Any], example_args: Any) -> Callable[..., Any]:
            def compiled(x: torch.Tensor) -> torch.Tensor:
                spoil(x)
                return torch.ones(3)

            return compiled

    verdict = check(trace(torch.ones_like, torch.ones(3)), target=Spoils())
    assert verdict.symptoms == ("state",)
    assert verdict.mismatches[0].detail == "an input's layout"


def fail() -> None:
    raise ValueError("later")


class Fails:
    """Raises when it is destroyed."""

    def __del__(self) -> None:
        fail()


@pytest.mark.parametrize("act", [lambda: threading.Thread(target=fail).start(), Fails])
def test_an_error_that_nobody_catches_is_one_of_the_run(act: Callable[[], Any]) -> None:
    verdict = check(program(), target=Does("run", act))
    assert [mismatch.detail for mismatch in verdict.mismatches] == ["late ValueError"]


def test_hooks_are_put_back_and_a_thread_that_stays_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.state._SECONDS_FOR_THREADS", 0.05)
    hooks, stop = (threading.excepthook, sys.unraisablehook), threading.Event()
    thread = threading.Thread(target=stop.wait)
    with late_errors() as found:
        thread.start()
    assert thread.is_alive()
    stop.set()
    thread.join()
    assert found == []
    assert (threading.excepthook, sys.unraisablehook) == hooks


def test_a_run_that_raises_is_looked_at_likewise() -> None:
    def act() -> None:
        torch.set_default_dtype(torch.float64)
        raise ValueError

    _, error, changed = attempt(act, ())
    assert isinstance(error, ValueError)
    assert changed == ("default dtype",)


def test_an_output_that_holds_itself_is_an_error_of_the_run() -> None:
    endless: list[Any] = []
    endless.append(endless)
    made = run(lambda: endless, allocate(trace(lambda x: x, torch.ones(1)).entry), ())
    assert str(made.error) == "its output is nested without end, or too deeply to be compared"


def test_eager_runs_twice_on_a_sample_and_what_differs_cannot_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def drifting(*args: Any, **kwargs: Any) -> Any:
        made = of_program(*args, **kwargs)

        def reference(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            return made.reference(*given) + calls

        return Subject(lambda *given: made.fn(*given) + 1, reference, made.program, made.ways)

    monkeypatch.setattr(check_module, "of_program", drifting)
    monkeypatch.setattr(check_module, "RUN_TWICE", 1)
    verdict = check(program(), target="null")
    assert verdict.ok
    assert verdict.unstable is not None
    assert str(verdict).startswith("null: cannot be judged: eager differs from itself (value: ")
    monkeypatch.setattr(check_module, "RUN_TWICE", 1 << 400)
    calls = 0
    assert check(program(), target="null").unstable is None
    assert calls == 1
    assert check(program(), target="null").unstable is not None  # it differs now, so that eager is run again
