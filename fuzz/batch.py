"""One batch: a few hundred programs from one seed, under Hypothesis, which finds a failure and shrinks it.

Batches exist because one `@given` with tens of thousands of examples grows without bound, and because the first failure
ends a batch: the next one, from another seed, finds what else there is.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import hypothesis
from hypothesis import Phase, Verbosity
from hypothesis.strategies import SearchStrategy

from executor.program import Program
from fuzz.check import Verdict
from fuzz.findings import Kind, TargetFailure, failure_class, kind_of, size
from fuzz.reducer import reduce
from fuzz.runs import Interrupted

EXAMPLES = 200
SLOW = 0.02  # seconds a program


class _TimeUp(BaseException):
    """Ends Hypothesis's work at once. No `Exception`, so that it is not taken for a failure to shrink."""


@contextlib.contextmanager
def _counted_interrupts() -> Iterator[list[Interrupted]]:
    """Collects Ctrl-C for the block to look at, and raises KeyboardInterrupt behind it; a second one ends it at once.

    An exception out of nowhere is not safe in Hypothesis: it may be taken for a flaky strategy, or be lost in a callback
    of the garbage collector. Has no effect outside the main thread.
    """
    interrupts: list[Interrupted] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

    def interrupt(*_: object) -> None:
        interrupts.append(Interrupted())
        if len(interrupts) > 1:
            raise interrupts[-1]

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupts
    except BaseException:
        if interrupts:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
    if interrupts:
        raise KeyboardInterrupt


@dataclass
class Batch:
    """Draws programs, judges each once, and keeps the smallest failure.

    `judge` gives the verdict on a program. Failures of kinds that are `muted` are counted and passed over. The batch ends at
    `deadline` (seconds of `time.monotonic`), or `shrink_seconds` after it found a failure, at `found_at`.
    `judged` is told the numbers of programs and failures so far, after each program.
    """

    judge: Callable[[Program], Verdict]
    deadline: float
    shrink_seconds: float
    muted: Callable[[Kind], bool] = lambda kind: False
    judged: Callable[[int, int], None] = lambda programs, failures: None
    programs: int = 0
    failures: int = 0
    kind: Kind | None = None
    found_at: float = 0.0
    smallest: Program | None = None
    verdict: Verdict | None = None
    _known: dict[str, Kind | None] = field(default_factory=dict)
    _seconds: float = 0.0
    _interrupts: list[Interrupted] = field(default_factory=list)

    def run(self, strategy: SearchStrategy[Program], seed: int, examples: int = EXAMPLES) -> None:
        """Runs the batch. Whatever is wrong with the harness itself, or the strategy, is raised."""
        reduced = False

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=examples,
            database=None,
            deadline=None,
            verbosity=Verbosity.quiet,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            print_blob=False,
        )
        @hypothesis.given(strategy)
        def property_(program: Program) -> None:
            nonlocal reduced
            if self.fails(program):
                if not reduced:
                    reduced = True
                    reduce(program, self.fails)
                    self._end_if_slow()
                raise failure_class(self.kind)

        with contextlib.suppress(_TimeUp), _counted_interrupts() as self._interrupts:
            with contextlib.suppress(TargetFailure):
                property_()
            if self.smallest is not None:
                reduce(self.smallest, self.fails)

    def fails(self, program: Program) -> bool:
        """Whether the program fails like the first failure of this batch; always the same for one program.

        Raises `_TimeUp` for a program not yet judged if the time is up.
        """
        if self._interrupts:
            raise self._interrupts[0]
        digest = program.digest
        if digest not in self._known:
            if time.monotonic() > self.deadline:
                raise _TimeUp
            self._known[digest] = self._judge(program)
        kind = self._known[digest]
        return kind is not None and self.kind is not None and self.kind.may_become(kind)

    def _end_if_slow(self) -> None:
        """Ends the batch where a program takes so long that Hypothesis's shrinking, hundreds of runs, is not worth it."""
        if self._seconds > SLOW * self.programs:
            raise _TimeUp

    def _judge(self, program: Program) -> Kind | None:
        self.programs += 1
        begun = time.monotonic()
        verdict = self.judge(program)
        self._seconds += time.monotonic() - begun
        self.failures += not verdict.ok
        self.judged(self.programs, self.failures)
        if verdict.ok:
            return None
        kind = kind_of(verdict)
        if self.muted(kind):
            return None
        if self.kind is None:
            self.kind, self.found_at = kind, time.monotonic()
            self.deadline = self.found_at + self.shrink_seconds
        if self.kind.may_become(kind) and (self.smallest is None or size(program) < size(self.smallest)):
            self.smallest, self.verdict = program, verdict
        return kind
