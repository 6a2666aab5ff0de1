"""The account of a shard's programs: each is on disk before it runs, and counted by what became of it afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from executor.program import Program
from executor.targets import Target
from fuzz.accounts import outcome
from fuzz.check import Verdict
from fuzz.flight import Flight
from fuzz.known import Known
from fuzz.pulse import Pulse
from fuzz.pursuit import Judge
from fuzz.related import agreed, tells
from fuzz.relations import Rewriting


class Account:
    """Judges the programs of a shard on `compiler`, and counts each in `counts`; a failure that a flag covers is none.

    Programs that are drawn may be tried once more as `rewrite` makes them, if it makes something. `drawn` is how many of the
    batch's programs were drawn and judged, or passed over; `judging` says that one of them is being judged.
    """

    def __init__(
        self,
        compiler: Target,
        flags: Known,
        rewrite: Callable[[Program], Rewriting | None],
        flight: Flight,
        pulse: Pulse,
        counts: Counter[str],
    ) -> None:
        self._compiler, self._flags, self._rewrite = compiler, flags, rewrite
        self._flight, self._pulse, self._counts = flight, pulse, counts
        self.drawn, self.judging = 0, False

    def batch(
        self,
        judge: Callable[[str], Judge],
        pursued: Callable[[], Verdict | None],
        skip: Callable[[int, Program], bool],
        *,
        again: bool,
    ) -> Judge:
        """The judge of a new batch, in which functions are called `again` or not.

        `judge` judges programs, or with a relation also their rewritings; while `pursued` says that a failure is shrunk which
        only a relation shows, all are rewritten. `skip` says, by its number in the batch, which program is passed over.
        """
        self.drawn, self.judging = 0, False
        plain, one = judge(""), partial(self.judge, again=again)

        def verdict(program: Program) -> Verdict:
            failure = pursued()
            self._pulse.turn("generate" if failure is None else "shrink")
            number = self.drawn + 1 if failure is None else 0
            found = Verdict(self._compiler.name, program=program)
            if skip(number, program):
                self.drawn = number or self.drawn
            elif failure is not None:
                found = one(program, judge(failure.relation) if failure.relation else plain)
            else:
                self.judging = True
                found = one(program, plain)
                self._pulse.see(program, self._compiler)
                found = self._rewritten(found, plain, one)
                self.drawn, self.judging = number, False
            return found

        return verdict

    def judge(self, program: Program, judged: Judge, *, again: bool) -> Verdict:
        """The verdict on a program, which is on disk before it runs, and counted afterwards."""
        self._flight.begin(program, self._counts, again=again)
        found = judged(program)
        flag = self._flags.covers(found) if not found.ok else None
        if flag is not None:
            self._counts["known"] += 1
            return replace(found, mismatches=(), refused=f"known bug: {flag.name}")
        self._counts[outcome(found)] += 1
        return found

    def _rewritten(self, found: Verdict, judged: Judge, account: Callable[[Program, Judge], Verdict]) -> Verdict:
        """The verdict on a rewriting of a program if that fails, or what only the two together show; else `found`."""
        if found.program is None or not tells(found):
            return found
        made = self._rewrite(found.program)
        if made is None:
            return found
        other = account(made.program, judged)
        self._pulse.see(made.program, self._compiler)
        if not other.ok:
            return other
        both = agreed(found, self._compiler, made.relation) if tells(other) else found
        return account(found.program, lambda _: both) if not both.ok else found
