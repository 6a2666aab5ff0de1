"""What a shard writes to its journal about itself while it works: totals, what it does, and what its programs were like."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

import msgspec

from executor.limits import Limits
from executor.program import Program
from executor.targets import Target
from fuzz.accounts import FAILURES
from fuzz.coverage import EVERY, Counts, Watched
from fuzz.isolation import Isolated
from fuzz.journal import Journal

SECONDS_BETWEEN_PULSES = 4.0
SECONDS_BETWEEN_COUNTS = 10.0

Phase = Literal["generate", "shrink", "replay"]


class Pulse:
    """The voice of one shard of a target. `counts` are its programs by outcome, which go on changing.

    Events are "begin", with what the target takes and its versions; "batch" with the totals, after each batch and now and
    then within one; "phase" whenever the shard turns to something else; and "coverage" with the counts of `fuzz.coverage`
    since the last such event, so that those of a shard that is killed and begins anew add up.
    """

    def __init__(self, journal: Journal, target: Target, shard: int, counts: Mapping[str, int]) -> None:
        self._journal, self._target, self._shard, self._counts = journal, target, shard, counts
        # A slow compiler leaves time to look at all programs.
        self._seen = Counts(1 if isinstance(target, Isolated) else EVERY)
        self._phase = ""
        self._start = self._last = self._counted = time.monotonic()

    def begin(self, limits: Limits, versions: Mapping[str, str]) -> None:
        """Writes what is tested: within which limits, in which versions."""
        self._write("begin", limits=msgspec.to_builtins(limits, order="sorted"), versions=dict(versions))

    def turn(self, phase: Phase) -> None:
        """Writes what the shard does from now on, if that is something else."""
        if phase != self._phase:
            self._phase = phase
            self._write("phase", phase=phase)

    def see(self, program: Program, compiler: Target) -> None:
        """Counts a program that was drawn and judged on this compiler."""
        self._seen.see(program, compiler.take() if isinstance(compiler, Watched) else None)

    def judged(self, batches: int) -> None:
        """Writes the totals, if the last time is long ago."""
        if time.monotonic() > self._last + SECONDS_BETWEEN_PULSES:
            self.totals(batches)

    def totals(self, batches: int) -> None:
        """Writes the totals, those of the batch that runs included, and now and then the coverage."""
        self._last = time.monotonic()
        counts = dict(self._counts)
        self._write(
            "batch",
            programs=sum(counts.values()),
            failures=sum(counts.get(name, 0) for name in FAILURES),
            batches=batches,
            counts=counts,
            seconds=round(self._last - self._start, 3),
        )
        if self._last > self._counted + SECONDS_BETWEEN_COUNTS:
            self.coverage()

    def coverage(self) -> None:
        """Writes the coverage since the last time."""
        self._counted = time.monotonic()
        seen = msgspec.structs.replace(self._seen.take(), tally=self._target.tally())
        self._write("coverage", counts=msgspec.to_builtins(seen))

    def _write(self, event: str, **fields: object) -> None:
        self._journal.write(event, target=self._target.name, shard=self._shard, **fields)
