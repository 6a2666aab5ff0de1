"""A shard of a campaign: batches of programs against one target until the time is up, each finding saved at once."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from corpus.case import Case
from corpus.signature import Signature
from corpus.store import Store
from executor import printing, targets
from executor.program import Program
from executor.targets import Target
from fuzz import variants
from fuzz.batch import Batch
from fuzz.check import Verdict, check
from fuzz.findings import Kind, kind_of
from fuzz.journal import Journal
from strategies.programs import programs

# Wrong numbers first: symptoms that users notice, or hardly mind, count as shrunk so many times from the start.
HEAD_START = {"exception": 1, "timeout": 1, "strides": 1, "identity": 2}
CALLED_AGAIN = 8  # one batch in so many calls each compiled function several times
SECONDS_BETWEEN_PULSES = 4.0
SHRINKS_PER_KIND = 2  # how often a shard shrinks failures that look alike before it only counts them


@dataclass(frozen=True)
class Plan:
    """What one shard has to do. Times are seconds of `time.monotonic`; `batches` of 0 means until the deadline."""

    target: str
    shard: int
    seed: int
    deadline: float
    shrink_seconds: float = 40.0
    batches: int = 0


@dataclass(frozen=True)
class Finding:
    """A shrunk failure: its case file, and whether its signature was in the corpus before this run."""

    path: Path
    case: Case
    verdict: Verdict
    known: bool


@dataclass
class Totals:
    """What a shard did."""

    programs: int = 0
    failures: int = 0
    batches: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)


class Pulse:
    """Writes a shard's totals to its journal: after each batch, and now and then within one, so that progress shows."""

    def __init__(self, plan: Plan, totals: Totals, journal: Journal, start: float) -> None:
        self._plan, self._totals, self._journal, self._start = plan, totals, journal, start
        self._last = start

    def judged(self, programs: int, failures: int) -> None:
        """Writes, if the last time is long ago, the totals with those of the batch that runs."""
        if time.monotonic() > self._last + SECONDS_BETWEEN_PULSES:
            self.write(programs, failures)

    def write(self, programs: int = 0, failures: int = 0) -> None:
        """Writes the totals of all batches that ended, and what is given on top."""
        self._last = time.monotonic()
        self._journal.write(
            "batch",
            target=self._plan.target,
            shard=self._plan.shard,
            programs=self._totals.programs + programs,
            failures=self._totals.failures + failures,
            batches=self._totals.batches,
            seconds=round(self._last - self._start, 3),
        )


def batch_seed(seed: int, target: str, shard: int, batch: int) -> int:
    """The seed of a batch: the same for the same campaign, so that any batch can be run again alone."""
    text = f"{seed}/{target}/{shard}/{batch}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def judge(compiler: Target, seed: int) -> Callable[[Program], Verdict]:
    """The verdict on a program of the batch with this seed; in one batch of eight with further calls.

    All programs of a batch are called alike, so that a failure in a later call stays one while it shrinks.
    """
    again = seed % CALLED_AGAIN == 0

    def verdict(program: Program) -> Verdict:
        return check(program, target=compiler, calls=variants.calls(program, compiler) if again else ())

    return verdict


def run_shard(plan: Plan, store: Store, known: frozenset[Signature], journal: Journal) -> Totals:
    """Runs batches until the plan's deadline, saving each new finding as soon as it is shrunk.

    On Ctrl-C the smallest failures so far are saved before the interrupt goes on.
    """
    compiler = targets.get(plan.target)
    totals, shrunk, start = Totals(), Counter[Kind](), time.monotonic()
    pulse = Pulse(plan, totals, journal, start)
    strategy = programs(compiler.limits)
    seen: set[Signature] = set()
    while time.monotonic() < plan.deadline and not 0 < plan.batches <= totals.batches:
        seed = batch_seed(plan.seed, plan.target, plan.shard, totals.batches)
        batch = Batch(judge(compiler, seed), plan.deadline, plan.shrink_seconds, muted(shrunk, seed), pulse.judged)
        try:
            batch.run(strategy, seed)
        finally:
            totals.batches += 1
            totals.programs += batch.programs
            totals.failures += batch.failures
            totals.seconds = time.monotonic() - start
            if batch.kind is not None and batch.verdict is not None:
                shrunk.update({batch.kind, kind_of(batch.verdict)})
                _keep(batch.verdict, store, known, seen, totals, journal)
            pulse.write()
        compiler.reset()
    journal.write("done", target=plan.target, shard=plan.shard)
    return totals


def muted(shrunk: Counter[Kind], seed: int) -> Callable[[Kind], bool]:
    """Which failures the batch with this seed passes over, given how often each kind was shrunk before.

    A kind that was shrunk often enough, always. Otherwise a symptom that was shrunk n times, in n of n + 1 batches: else
    the commonest symptom would take all the time, and hide the rarer ones.
    """
    often: Counter[tuple[str, str]] = Counter()
    for kind, count in shrunk.items():
        often[kind.symptom, kind.detail] += count

    def passed(kind: Kind) -> bool:
        count = HEAD_START.get(kind.symptom, 0) + often[kind.symptom, kind.detail]
        chance = random.Random(f"{seed}/{kind.symptom}/{kind.detail}").random()
        return shrunk[kind] >= SHRINKS_PER_KIND or chance < count / (count + 1)

    return passed


def _keep(
    verdict: Verdict, store: Store, known: frozenset[Signature], seen: set[Signature], totals: Totals, journal: Journal
) -> None:
    signature, program = verdict.signature, verdict.program
    assert signature is not None, "only failures come here"
    assert program is not None, "only failures of programs come here"
    if signature in seen:
        return
    seen.add(signature)
    compiler = targets.get(verdict.target)
    calls = variants.calls(program, compiler) if verdict.call else ()
    case = Case(
        program=program.without_sources(),
        target=verdict.target,
        versions=targets.versions(compiler),
        signature=signature,
        state="open",
        calls=calls,
        found=time.strftime("%Y-%m-%d"),
    )
    path = store.save(case)
    totals.findings.append(Finding(path, case, verdict, signature in known))
    journal.write(
        "finding",
        target=verdict.target,
        path=str(path),
        signature=signature.digest,
        known=signature in known,
        text=str(verdict),
        program=printing.listing(program),
    )
