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
from fuzz.hazards import hazards, worst
from fuzz.provenance import ONE_SHAPE, laid
from fuzz.reducer import reduce
from fuzz.skeletons import plain

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
        self._same, self._reduced = {self.smallest.digest: self.verdict}, False
        again = blame.alone(self.verdict, self.target) if self.target is not None else None
        if again is not None and not again.ok:  # a later call that needs none before it
            self.verdict = again
        self.kind: Kind = kind_of(self.verdict)
        self.stage = self._stage(self.verdict)
        self._limited = not self._refused(self.verdict)
        self._lying = frozenset(hazard.relation for hazard in hazards(self.smallest))
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
        if not self._shown(self.kind).may_become(self._shown(kind)) or self._more_special(verdict):
            self._keep_other((*kind[:3], ""), verdict)
            return False
        stage = self._stage(verdict, self.stage)
        if stage != self.stage:
            self._keep_other((*kind[:3], stage), verdict)
            return False
        assert verdict.program is not None, "only programs are run while one shrinks"
        self._same[verdict.program.digest] = verdict
        if self._smaller(verdict.program):
            self.verdict, self._reduced = verdict, False
        return True

    def _smaller(self, program: Program) -> bool:
        """Whether a program is smaller than the smallest; once that is reduced, only what has less in it counts as that."""
        one, other = size(program), size(self.smallest)
        return one[:2] < other[:2] if self._reduced else one < other

    def reduce(self, fails: Callable[[Program], bool]) -> None:
        """Reduces the smallest program; `fails` says `same` of the verdict on a program, always the same of one."""

        def taken(program: Program) -> bool:
            found = fails(program) and program.digest in self._same
            if found:  # the reducer goes on from here
                self.verdict = self._same[program.digest]
            return found

        relations = self._relations()
        if self._tells and not self._reduced:  # most bugs of a stage show in one of these, which saves the long way
            calls = len(self.smallest.calls)
            next((True for one in plain(self.smallest, relations) if len(one.calls) < calls and taken(one)), False)
        reduce(self.smallest, taken, relations)
        self._reduced = True

    def _relations(self) -> frozenset[str]:
        """How the accesses lie that may be to blame: the hardest when the pursuit began, all where the stage tells the rest."""
        return self._lying if self._tells else frozenset({self.kind.relation})

    def go_back(self, fails: Callable[[Program], bool]) -> bool:
        """Pursues a failure that begins at an earlier stage instead, if a plain program with the same accesses has one.

        What is wrong there most likely causes what is wrong later. Whether it does so; the failure up to now is one of the
        others then, and `fails` has to be asked anew about programs that did not fail so.
        """
        earlier, late = self._earlier_stages(), self.verdict
        if not earlier:
            return False
        for candidate in plain(self.smallest, self._relations()):
            fails(candidate)
        found = [(earlier.index(key[-1]), size(other.program), key)
                 for key, other in self.others.items() if key[-1] in earlier and other.program is not None]  # fmt: skip
        if not found:
            self.verdict = late  # what is plainest, not what is smallest
            return False
        key = min(found)[-1]
        self.verdict = self.others.pop(key)
        self.others[(*self.kind[:3], self.stage)] = late
        self.kind, self.stage = kind_of(self.verdict), key[-1]
        self._same, self._reduced = {self.smallest.digest: self.verdict}, False
        return True

    def _earlier_stages(self) -> list[str]:
        """The stages before the one to blame, where stages tell more than symptoms; none if no code of theirs is to blame."""
        names = list(self.target.stages) if self.target is not None and self._tells else []
        return names[: names.index(self.stage)] if self.stage in names else []

    def _shown(self, kind: Kind) -> Kind:
        """The kind, less what the stage says better: how it shows, and which access comes first."""
        if not self._tells:
            return kind
        return kind._replace(symptom=blame.coarse(kind.symptom), detail="", dependence="none")

    def _more_special(self, verdict: Verdict) -> bool:
        """Whether accesses lie apart as before, but are of one shape now: a bug that needs no such is not to look so."""
        program = verdict.program
        assert program is not None, "only programs are run while one shrinks"
        before, now = worst(self.smallest), worst(program)
        if before is None or now is None or before.relation != now.relation:
            return False
        return laid(program, now) == ONE_SHAPE != laid(self.smallest, before)

    @property
    def _tells(self) -> bool:
        return self.target is not None and blame.tells(self.target, self.stage)

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
