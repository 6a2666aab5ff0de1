"""Runs a case again and says what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import cast

from corpus.case import Case, State
from executor import targets
from executor.errors import TargetError
from executor.targets import Target
from fuzz.blame import blamed
from fuzz.check import Verdict
from fuzz.isolation import contained
from fuzz.related import rerun

TRIES = 3  # runs of a case that does not do what it did, before it is called anything but flaky
RUNS = 10  # runs of a case that is flaky, to know its rate
_DEADLY = ("crash", "memory-limit", "timeout", "in-flight")


@dataclass(frozen=True)
class Replay:
    """What a case does now: "open", "fixed", "changed", "flaky", or "unavailable" if its target is not installed.

    It failed in `failed` of `runs` runs. `verdict` is that of the first failure, or else of the first run.
    """

    state: str
    verdict: Verdict | None
    text: str
    runs: int = 1
    failed: int = 0


def replay(case: Case, target: str | None = None) -> Replay:
    """Runs the case on its own target, or on another, and compares with what it did when it was recorded.

    On its own target a failure with another signature than the recorded one is "changed"; on another target a failure
    is "open". A case that does not do in each of its runs the same is "flaky". Raises `TargetError` if `target` is unknown;
    a case's own that is not installed is "unavailable".
    """
    name = target or case.target
    try:
        compiler = targets.get(name)
    except TargetError as error:
        if target is not None and target not in targets.names():
            raise
        return Replay("unavailable", None, str(error))
    # What ended the process once may do so again.
    deadly = case.signature is not None and case.signature.symptom.startswith(_DEADLY)
    with contained(compiler, always=True) if deadly else nullcontext(compiler) as safe:
        return _replay(case, safe)


def _replay(case: Case, compiler: Target) -> Replay:
    if compiler.name != case.target:
        return _summary([_run(case, compiler, {})], case, compiler)
    verdicts = [_run(case, compiler, case.bounds)]
    first = _summary(verdicts, case, compiler)
    if first.state == case.state:
        return first
    verdicts += [_run(case, compiler, case.bounds) for _ in range(TRIES - 1)]
    if 0 < sum(verdict.ok for verdict in verdicts) < TRIES:
        verdicts += [_run(case, compiler, case.bounds) for _ in range(RUNS - TRIES)]
    return _summary(verdicts, case, compiler)


def observed(case: Case, outcome: Replay) -> Case:
    """The case with what it did now; what it did before goes to its history."""
    if outcome.state == "unavailable":
        return case
    signature = outcome.verdict.signature if outcome.verdict is not None else None
    versions = targets.versions(targets.get(case.target))
    return case.seen(cast("State", outcome.state), versions, signature)


def _run(case: Case, compiler: Target, bounds: Mapping[str, int]) -> Verdict:
    return rerun(case, compiler, bounds=bounds)


def _summary(verdicts: list[Verdict], case: Case, compiler: Target) -> Replay:
    failures = [verdict for verdict in verdicts if not verdict.ok]
    runs, failed = len(verdicts), len(failures)
    if not failures:
        return Replay("fixed", verdicts[0], str(verdicts[0]), runs)
    verdict = blamed(failures[0], compiler)
    if failed < runs:
        return Replay("flaky", verdict, f"failed in {failed} of {runs} runs\n{verdict}", runs, failed)
    return Replay(_failing(case, verdict), verdict, str(verdict), runs, failed)


def _failing(case: Case, verdict: Verdict) -> str:
    """The state of a case that fails: as recorded, if it was failing in the same way."""
    signature = verdict.signature
    if verdict.target != case.target or case.signature is None:
        return "open"
    assert signature is not None, "it fails"
    if not signature.fits(case.signature):
        return "changed"
    return "changed" if case.state == "changed" else "open"
