"""What the caller and a worker tell each other, as data: no exception and no object of the compiler's crosses."""

from __future__ import annotations

import msgspec

from executor.program import Inputs, Program
from fuzz.check import Verdict
from fuzz.oracle import Mismatch


class Task(msgspec.Struct, frozen=True):
    """A program to judge on the target of this name, and how; see `fuzz.check.check`.

    With a `relation` it is only to be compared with its rewriting; see `fuzz.relations.pair.compared`. The worker's stack
    is noted before `seconds` are over.
    """

    target: str
    program: Program
    calls: tuple[Inputs, ...] = ()
    exact: bool = True
    bounds: dict[str, int] = {}
    seconds: float = 0
    relation: str = ""


class Judged(msgspec.Struct, frozen=True):
    """A `Verdict` without the program. `problem` says why there is none: what the program or the request lacks.

    `spoilt` says that the worker can judge no more. `tally` is the target's own, see `Target.tally`.
    """

    mismatches: tuple[Mismatch, ...] = ()
    call: int = 0
    refused: str | None = None
    raised: str | None = None
    unstable: str | None = None
    problem: str | None = None
    spoilt: bool = False
    tally: dict[str, int] = {}

    @classmethod
    def of(cls, verdict: Verdict) -> Judged:
        """What crosses of a verdict."""
        return cls(verdict.mismatches, verdict.call, verdict.refused, verdict.raised, verdict.unstable)

    def verdict(self, task: Task) -> Verdict:
        """The verdict again."""
        return Verdict(
            task.target,
            self.mismatches,
            self.call,
            task.program,
            refused=self.refused,
            raised=self.raised,
            unstable=self.unstable,
            calls=task.calls,
            exact=task.exact,
        )


class Ended(msgspec.Struct, frozen=True):
    """How a worker ended, as `os.waitpid` says it, and the last of what it printed."""

    status: int
    printed: str
