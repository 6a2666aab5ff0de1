"""What becomes of a case that runs again: its state, its rate, its history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import torch

from corpus.case import Case, Seen
from corpus.signature import Signature
from executor import targets
from executor.errors import TargetError
from executor.targets.base import Target
from executor.tracing import trace
from fuzz.replay import RUNS, TRIES, observed, replay


class Scripted(Target):
    """Wrong by what its script says of each run: "ok", "value", "shape"."""

    name = "scripted"
    needs_source = False

    def __init__(self) -> None:
        self.script_: Iterator[str] = iter(())

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        how = next(self.script_)
        return {"ok": fn, "value": lambda *args: fn(*args) + 1, "shape": lambda *args: fn(*args)[None]}[how]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Tells the target how its next runs end."""
    target = Scripted()
    get = targets.get
    monkeypatch.setattr(targets, "get", lambda name: target if name == target.name else get(name))

    def told(*runs: str) -> None:
        target.script_ = iter(runs)

    return told


OPEN = Signature("scripted", "value")


def case(**fields: Any) -> Case:
    program = trace(lambda a: a * 2, torch.ones(2)).without_sources()
    made = Case(program=program, target="scripted", state="open", signature=OPEN, versions={"torch": "2.0"})
    return msgspec.structs.replace(made, **fields)


STATES = [
    (case(), ["value"], "open"),
    (case(), ["shape"] * TRIES, "changed"),
    (case(), ["ok"] * TRIES, "fixed"),
    (case(state="fixed"), ["ok"], "fixed"),
    (case(state="fixed"), ["value"] * TRIES, "open"),
    (case(state="fixed", signature=None), ["shape"] * TRIES, "open"),
    (case(state="changed"), ["value"], "changed"),
    (case(state="flaky"), ["value"] * TRIES, "open"),
    (case(), ["ok", "value", "ok", *["value"] * (RUNS - TRIES)], "flaky"),
    (case(state="fixed"), ["value", "ok", "ok", *["ok"] * (RUNS - TRIES)], "flaky"),
]


@pytest.mark.parametrize(("made", "runs", "state"), STATES)
def test_the_state(made: Case, runs: list[str], state: str, script: Callable[..., None]) -> None:
    script(*runs)
    outcome = replay(made)
    assert outcome.state == state
    assert (outcome.runs, outcome.failed) == (len(runs), len(runs) - runs.count("ok"))
    assert outcome.verdict is not None
    assert outcome.verdict.ok == (state == "fixed")


def test_a_flaky_case_says_how_often_it_failed(script: Callable[..., None]) -> None:
    script("ok", "value", "ok", *["value"] * (RUNS - TRIES))
    assert replay(case()).text.startswith("failed in 8 of 10 runs\nscripted differs from eager")


def test_on_another_target_it_runs_once(script: Callable[..., None]) -> None:
    script()
    outcome = replay(case(), "null")
    assert (outcome.state, outcome.runs) == ("fixed", 1)


def test_a_target_that_is_not_there() -> None:
    assert replay(case(target="no such target")).state == "unavailable"
    with pytest.raises(TargetError, match="there is no target 'no such target'"):
        replay(case(), "no such target")


def test_what_is_seen_is_kept_and_so_is_what_was(script: Callable[..., None]) -> None:
    script(*["ok"] * TRIES)
    old = case(note="a note")
    new = observed(old, replay(old))
    now = {"torch": torch.__version__}
    assert (new.state, new.versions, new.signature, new.note) == ("fixed", now, OPEN, "a note")
    assert new.history == (Seen("open", {"torch": "2.0"}, OPEN),)
    script("ok")
    assert observed(new, replay(new)) == new


def test_a_change_brings_its_own_signature(script: Callable[..., None]) -> None:
    script(*["shape"] * TRIES)
    new = observed(case(), replay(case()))
    assert new.state == "changed"
    assert new.signature == Signature("scripted", "shape")
    assert new.history == (Seen("open", {"torch": "2.0"}, OPEN),)
    script("shape")
    assert replay(new).state == "changed"


def test_nothing_is_seen_of_a_case_whose_target_is_not_there() -> None:
    old = case(target="no such target")
    assert observed(old, replay(old)) == old


def test_a_deadly_case_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    contained: list[str] = []

    @contextmanager
    def noted(target: Target, **_: Any) -> Iterator[Target]:
        contained.append(target.name)
        yield target

    monkeypatch.setattr("fuzz.replay.contained", noted)
    replay(case(target="null", signature=Signature("null", "value")))
    assert contained == []
    replay(case(target="null", signature=Signature("null", "crash", "SIGSEGV")))
    assert contained == ["null"]
