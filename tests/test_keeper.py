"""Failures on their way to the corpus: each signature once, flaky where they do not repeat, and lost nowhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from corpus.case import Case, CorpusError
from corpus.store import Store
from executor import targets
from executor.program import Program
from executor.tracing import trace
from fuzz import journal
from fuzz.check import Verdict
from fuzz.journal import Journal
from fuzz.keeper import REPEATS, Keeper
from fuzz.oracle import Mismatch

PROGRAM = trace(lambda x: x.mul_(2), torch.ones(3))


def failed(symptom: str = "value") -> Verdict:
    return Verdict("null", (Mismatch(symptom, "output", "1", "2"),), 0, PROGRAM)


def keeper(folder: Path) -> Keeper:
    return Keeper(targets.get("null"), Store(folder / "corpus"), frozenset(), Journal(folder / "run" / "0.jsonl"))


def failing(times: int) -> Callable[[Program], Verdict]:
    """Judges that the program fails so many times, and is right afterwards."""
    left = times

    def judge(program: Program) -> Verdict:
        nonlocal left
        left -= 1
        return failed() if left >= 0 else Verdict("null", program=program)

    return judge


@pytest.mark.parametrize(("times", "state", "note"), [
    (REPEATS, "open", ""),
    (1, "flaky", "Run 3 times more when it was found, it failed 1 times."),
    (0, "flaky", "Run 3 times more when it was found, it failed 0 times."),
])  # fmt: skip
def test_a_failure_that_does_not_repeat_is_flaky(tmp_path: Path, times: int, state: str, note: str) -> None:
    kept = keeper(tmp_path)
    kept.keep(failed(), failing(times))
    (case,) = [case for _, case in Store(tmp_path / "corpus").cases()]
    assert isinstance(case, Case)
    assert (case.state, case.note, case.program) == (state, note, PROGRAM.without_sources())
    assert [event["state"] for event in journal.read(tmp_path / "run")] == [state]


def test_without_repeats_a_failure_is_open(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    kept.keep(failed(), failing(0), repeats=0)
    assert [found.case.state for found in kept.findings] == ["open"]


def test_each_signature_is_kept_once(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    for symptom in ("value", "memory", "value"):
        kept.keep(failed(symptom), failing(REPEATS))
    assert [found.verdict.symptom for found in kept.findings] == ["value", "memory"]
    assert not any(found.known for found in kept.findings)


def test_a_failure_that_cannot_be_saved_is_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "corpus").write_text("no folder")
    kept = keeper(tmp_path)
    with pytest.raises(CorpusError, match=r"(?s)cannot be used as a corpus.*null differs from eager.*def program\("):
        kept.keep(failed(), failing(REPEATS))
