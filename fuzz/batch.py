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
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.strategies import SearchStrategy

from executor.program import Program
from executor.targets import Target
from fuzz.check import Verdict
from fuzz.findings import Kind, TargetFailure, failure_class, kind_of
from fuzz.pursuit import Pursuit
from fuzz.runs import Interrupted
from fuzz.uniform import BACKEND

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
    """Draws programs, judges each once, and pursues the first failure to its smallest form.

    `judge` gives the verdict on a program; the stages of `target`, if given, tell bugs apart. Failures of kinds that are
    `muted` are counted and passed over. The batch ends at `deadline` (seconds of `time.monotonic`), or `shrink_seconds`
    after it found a failure, at `found_at`. `judged` is told the numbers of programs and failures after each program, once it is clear whether that is pursued.
    """

    judge: Callable[[Program], Verdict]
    deadline: float
    shrink_seconds: float
    muted: Callable[[Kind], bool] = lambda kind: False
    judged: Callable[[int, int], None] = lambda programs, failures: None
    programs: int = 0
    failures: int = 0
    target: Target | None = None
    found_at: float = 0.0
    pursuit: Pursuit | None = None
    _known: dict[str, bool] = field(default_factory=dict)
    _seconds: float = 0.0
    _interrupts: list[Interrupted] = field(default_factory=list)

    @property
    def kind(self) -> Kind | None:
        """The kind of the failure that is pursued."""
        return self.pursuit.kind if self.pursuit is not None else None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the smallest program that fails so."""
        return self.pursuit.verdict if self.pursuit is not None else None

    @property
    def smallest(self) -> Program | None:
        """That program."""
        return self.pursuit.smallest if self.pursuit is not None else None

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
            backend=BACKEND,
            suppress_health_check=(HealthCheck.too_slow,),  # a busy machine is no fault of the strategy
        )
        @hypothesis.given(strategy)
        def property_(program: Program) -> None:
            nonlocal reduced
            if self.fails(program):
                assert self.pursuit is not None, "a failure is pursued"
                if not reduced:
                    reduced = True
                    self._reduce(self.pursuit)
                    self._end_if_slow()
                raise failure_class(self.pursuit.kind)

        with contextlib.suppress(_TimeUp), _counted_interrupts() as self._interrupts:
            with contextlib.suppress(TargetFailure):
                property_()
            if self.pursuit is not None:
                self.pursuit.reduce(self.fails)

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
        return self._known[digest]

    def _reduce(self, pursuit: Pursuit) -> None:
        """Reduces the failure, or what causes it, if that shows at an earlier stage."""
        self._go_back(pursuit)
        pursuit.reduce(self.fails)
        while self._go_back(pursuit):
            pursuit.reduce(self.fails)

    def _go_back(self, pursuit: Pursuit) -> bool:
        """Whether something earlier is pursued now: what did not fail as before may fail so."""
        moved = pursuit.go_back(self.fails)
        if moved:
            self._known = {digest: True for digest, failed in self._known.items() if failed}
        return moved

    def _end_if_slow(self) -> None:
        """Ends the batch where a program takes so long that Hypothesis's shrinking, hundreds of runs, is not worth it."""
        if self._seconds > SLOW * self.programs:
            raise _TimeUp

    def _judge(self, program: Program) -> bool:
        """Whether the program fails in the way that is pursued; the first failure decides which one that is."""
        self.programs += 1
        begun = time.monotonic()
        verdict = self.judge(program)
        self._seconds += time.monotonic() - begun
        self.failures += not verdict.ok
        pursued = self._pursued(verdict)
        self.judged(self.programs, self.failures)
        return pursued

    def _pursued(self, verdict: Verdict) -> bool:
        """Whether a verdict is a failure of the kind that is pursued; the first one that is not muted decides which that is."""
        if verdict.ok or self.muted(kind_of(verdict)):
            return False
        if self.pursuit is not None:
            return self.pursuit.same(verdict)
        self.pursuit, self.found_at = Pursuit(verdict, self.target), time.monotonic()
        self.deadline = self.found_at + self.shrink_seconds
        return True
