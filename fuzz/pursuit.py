"""One bug while its program shrinks: which failures are still the same bug, the smallest so far, and others on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from executor.program import Program
from executor.targets import Target
from fuzz import blame
from fuzz.check import Verdict
from fuzz.findings import Kind, kind_of, size
from fuzz.reducer import reduce

_MOST_OTHERS = 16

Judge = Callable[[Program], Verdict]


@dataclass
class Pursuit:
    """The failure that is shrunk.

    `verdict` is that of the smallest program so far. The stages of `target`, if it is given, tell bugs apart. `others` are
    the failures of other kinds, or of other stages, that were met: the smallest of each.
    """

    verdict: Verdict
    target: Target | None
    others: dict[tuple[str, ...], Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._same = {self.smallest.digest: self.verdict}
        again = blame.alone(self.verdict, self.target) if self.target is not None else None
        if again is not None and not again.ok:  # a later call that needs none before it
            self.verdict = again
        self.kind: Kind = kind_of(self.verdict)
        self.stage = self._stage(self.verdict)
        self._limited = not self._refused(self.verdict)
        self._same[self.smallest.digest] = self.verdict

    @property
    def smallest(self) -> Program:
        """The smallest program so far."""
        assert self.verdict.program is not None, "only failures of programs are pursued"
        return self.verdict.program

    def same(self, verdict: Verdict) -> bool:
        """Whether a failure is of the same bug; the smallest is kept, and so are failures that are not."""
        kind = kind_of(verdict)
        if self._limited and self._refused(verdict):
            return False
        if not self.kind.may_become(kind):
            self._keep_other((*kind[:3], ""), verdict)
            return False
        stage = self._stage(verdict, self.stage)
        if stage != self.stage:
            self._keep_other((*kind[:3], stage), verdict)
            return False
        assert verdict.program is not None, "only programs are run while one shrinks"
        self._same[verdict.program.digest] = verdict
        if size(verdict.program) < size(self.smallest):
            self.verdict = verdict
        return True

    def reduce(self, fails: Callable[[Program], bool]) -> None:
        """Reduces the smallest program; `fails` says `same` of the verdict on a program, always the same of one."""

        def taken(program: Program) -> bool:
            found = fails(program)
            if found:  # the reducer goes on from here
                self.verdict = self._same[program.digest]
            return found

        reduce(self.smallest, taken)

    def _refused(self, verdict: Verdict) -> bool:
        """Whether the target does not claim to take the program; what is reduced stays within what it takes."""
        if self.target is None or verdict.program is None:
            return False
        return self.target.limits.refuse(verdict.program) is not None

    def _keep_other(self, key: tuple[str, ...], verdict: Verdict) -> None:
        known = self.others.get(key)
        if known is None and len(self.others) >= _MOST_OTHERS:
            return
        assert verdict.program is not None, "only programs are run while one shrinks"
        if known is None or known.program is None or size(verdict.program) < size(known.program):
            self.others[key] = verdict

    def signed(self) -> Verdict:
        """The verdict on the smallest program, with the signature that tells whom to blame."""
        return blame.blamed(self.verdict, self.target) if self.target is not None else self.verdict

    def _stage(self, verdict: Verdict, guess: str = "") -> str:
        return blame.stage(verdict, self.target, guess) if self.target is not None else ""


class _Ended(Exception):
    """The limits on time or steps are reached."""


def shrink(
    verdict: Verdict,
    target: Target,
    judge: Judge,
    *,
    seconds: float,
    steps: int = 0,
    watch: Callable[[int, Pursuit], None] = lambda step, pursuit: None,
) -> tuple[Pursuit, str]:
    """Reduces the program of a failed verdict as far as it goes, and says why it stopped: "minimum", "time" or "steps".

    Ends after so many seconds, or after `steps` programs if that is not 0; Ctrl-C ends it too ("interrupted"). What is
    smallest then is kept. `watch` is told of each program that was run.
    """
    pursuit = Pursuit(verdict, target)
    deadline, known = time.monotonic() + seconds, {pursuit.smallest.digest: True}

    def fails(program: Program) -> bool:
        digest = program.digest
        if digest not in known:
            if time.monotonic() > deadline:
                raise _Ended("time")
            if 0 < steps <= len(known) - 1:
                raise _Ended("steps")
            found = judge(program)
            known[digest] = not found.ok and pursuit.same(found)
            watch(len(known) - 1, pursuit)
        return known[digest]

    try:
        pursuit.reduce(fails)
    except _Ended as ended:
        return pursuit, str(ended)
    except KeyboardInterrupt:
        return pursuit, "interrupted"
    return pursuit, "minimum"
