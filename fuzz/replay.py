"""Runs a case again and says what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from corpus.case import Case
from executor import targets
from executor.errors import TargetError
from fuzz.check import Verdict, check

TRIES = 3  # runs of a case that does not do what it did, before it is called anything but flaky


@dataclass(frozen=True)
class Replay:
    """What a case does now: "open", "fixed", "changed", "flaky", or "unavailable" if its target is not installed."""

    state: str
    verdict: Verdict | None
    text: str


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
    own = name == case.target
    bounds = case.bounds if own else {}

    def again() -> Verdict:
        return check(case.program, target=compiler, exact=case.exact, calls=case.calls, bounds=bounds)

    first = again()
    state = _state(case, first, own=own)
    if state == case.state or not own:
        return Replay(state, first, str(first))
    others = [again() for _ in range(TRIES - 1)]
    failed = sum(not verdict.ok for verdict in (first, *others))
    if 0 < failed < TRIES:
        worst = next(verdict for verdict in (first, *others) if not verdict.ok)
        return Replay("flaky", worst, f"failed in {failed} of {TRIES} runs\n{worst}")
    return Replay(state, first, str(first))


def _state(case: Case, verdict: Verdict, *, own: bool) -> str:
    if verdict.ok:
        return "fixed"
    if not own:
        return "open"
    return "open" if verdict.signature == case.signature else "changed"
