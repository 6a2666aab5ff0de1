"""Every case again: our compiler is always right, and its own compiler does what it did when the case was recorded.

Where the compiler's version is another one than recorded, a difference is no failure but a skipped test that says so:
`aliasfuzz replay` shows it, and the case's state wants an update.
"""

from __future__ import annotations

import pytest

from corpus.case import Case, CorpusError
from corpus.conftest import Entry
from executor import targets
from executor.errors import TargetError
from executor.targets import DEFAULT
from fuzz.replay import Replay, replay

# What else a case that fails at times may do.
_AT_TIMES = {"flaky": ("open", "fixed", "flaky")}


def test_replay(entry: Entry) -> None:
    if isinstance(entry.case, CorpusError):
        pytest.fail(str(entry.case), pytrace=False)
    try:
        outcome = replay(entry.case, entry.target)
    except TargetError as error:  # nobody registers a target of this name, as long as its package is not installed
        pytest.skip(str(error))
    if outcome.state == "unavailable":
        pytest.skip(outcome.text)
    if entry.target == DEFAULT:
        assert outcome.verdict is not None
        if not outcome.verdict.ok:
            pytest.fail(
                f"{entry.file} on {entry.target}, which must do what eager does:\n{outcome.text}", pytrace=False
            )
    elif (change := changed(entry.case, outcome, installed := targets.versions(targets.get(entry.target)))) is not None:
        if recorded(entry.case, installed) == installed:
            pytest.fail(f"{entry.file}: {change}:\n{outcome.text}", pytrace=False)
        pytest.skip(change)


def changed(case: Case, outcome: Replay, installed: dict[str, str]) -> str | None:
    """How the outcome differs from the recorded state, in words; None if it does not."""
    if outcome.state in _AT_TIMES.get(case.state, (case.state,)):
        return None
    return f"was {case.state} with {_text(recorded(case, installed))}, is {outcome.state} with {_text(installed)}"


def recorded(case: Case, installed: dict[str, str]) -> dict[str, str]:
    """The case's versions of the packages that its compiler depends on."""
    return {name: case.versions.get(name, "?") for name in installed}


def _text(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())
