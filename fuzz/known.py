"""What is known before a run: signatures of the open cases, and flags for the bugs that would hide others."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from corpus.case import Case, CorpusError
from corpus.flags import Flag, fits
from corpus.signature import Signature
from corpus.store import SHIPPED, Store, find, read
from executor.limits import Limits
from executor.targets import Target
from fuzz.check import Verdict, check


class Stale(NamedTuple):
    """A flag that its case does not prove any more, and why."""

    flag: Flag
    why: str


@dataclass(frozen=True)
class Known:
    """The flags that are on."""

    flags: tuple[Flag, ...] = ()

    @classmethod
    def of(cls, flags: Iterable[Flag], target: str) -> Known:
        """Those that concern a target in the versions that are installed."""
        return cls(tuple(flag for flag in flags if flag.concerns(target)))

    def narrow(self, limits: Limits) -> Limits:
        """The limits without what the flags ban."""
        return reduce(lambda narrower, flag: flag.narrow(narrower), self.flags, limits)

    def narrowed(self, target: Target) -> Target:
        """The target, in whose limits is nothing that the flags ban."""
        limits = self.narrow(target.limits)
        if limits == target.limits:
            return target
        narrower = copy(target)
        narrower.limits = limits
        return narrower

    def covers(self, verdict: Verdict, signature: Signature | None = None) -> Flag | None:
        """The first flag that the failure looks like; stage and relation are looked at only with a signature."""
        facts = {
            "symptoms": verdict.symptoms,
            "details": [mismatch.detail for mismatch in verdict.mismatches],
            "texts": [str(mismatch) for mismatch in verdict.mismatches],
            "ops": [call.op for call in verdict.program.calls] if verdict.program is not None else [],
            "stage": signature.stage if signature is not None else None,
            "relation": signature.relation if signature is not None else None,
            "later": verdict.call > 0,
            "gradients": verdict.program is not None and bool(verdict.program.leaves or verdict.program.rooted),
        }
        return next((flag for flag in self.flags if fits(flag.match, facts)), None)

    def stale(self, target: Target, share: tuple[int, int] = (0, 1)) -> list[Stale]:
        """The flags of the target, not those of another that has the same bugs, that do not hold any more: their cases are run again.

        `share` is the number of a part of them and how many parts there are: workers divide them.
        """
        number, parts = share
        mine = [flag for flag in self.flags if flag.target == target.name]
        checked = [(flag, self._fault(flag, target)) for flag in mine[number::parts]]
        return [Stale(flag, why) for flag, why in checked if why is not None]

    def _fault(self, flag: Flag, target: Target) -> str | None:
        try:
            case = read(find(flag.case))
        except CorpusError as error:
            return f"its case cannot be read: {error}"
        if case.target != flag.target:
            return f"its case {flag.case} is one of {case.target}"
        verdict = check(case.program, target=target, exact=case.exact, calls=case.calls, bounds=case.bounds)
        if verdict.ok:
            return f"its case {flag.case} is right now: remove the flag, or end its range of versions"
        alone = Known((flag,))
        if flag.match != type(flag.match)() and alone.covers(verdict, verdict.signature) is None:
            return f"its case {flag.case} fails, but not as `match` says: {verdict.mismatches[0]}"
        return None


def known_signatures(*stores: Store) -> frozenset[Signature]:
    """Signatures of the cases that fail and are expected to; unreadable files are passed over here, replay names them."""
    found = set()
    for store in (Store(SHIPPED), *stores):
        for _, case in store.cases():
            if isinstance(case, Case) and case.signature is not None and case.state in ("open", "flaky"):
                found.add(case.signature)
    return frozenset(found)
