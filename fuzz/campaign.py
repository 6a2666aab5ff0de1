"""A shard of a campaign: batches of programs against one target until the time is up, each finding saved at once."""

from __future__ import annotations

import gc
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from corpus.signature import Signature
from corpus.store import Store
from executor import targets
from executor.program import Program
from executor.targets import Target
from fuzz import variants
from fuzz.account import Account
from fuzz.accounts import FAILURES
from fuzz.against import against, opened
from fuzz.batch import Batch
from fuzz.check import TIME_LIMIT, Verdict, check
from fuzz.coverage import Watched
from fuzz.findings import kind_of
from fuzz.flight import Flight
from fuzz.isolation import Isolated, contained
from fuzz.isolation.sandbox import MEMORY_LIMIT
from fuzz.journal import Journal
from fuzz.keeper import REPEATS, Finding, Keeper
from fuzz.known import Known
from fuzz.muting import Muting
from fuzz.options import GRADIENTS
from fuzz.pulse import Pulse
from fuzz.pursuit import Judge, shrink
from fuzz.recovery import recover_shard
from fuzz.related import related
from fuzz.relations import Choice, Rewriting, rewriting
from strategies.programs import programs

CALLED_AGAIN = 8  # one batch in so many calls each compiled function several times
WITH_GRADIENTS = 4  # one batch in so many has inputs that require grad
_ALLOCATIONS = 20_000  # more objects than before, after which the garbage collector looks at the young ones
OTHERS_SHARE = 8  # a failure met on the way is shrunk for such a part of the time for one


@dataclass(frozen=True)
class Plan:
    """What one shard has to do. Times are seconds of `time.monotonic`; `batches` of 0 means until the deadline.

    `flags` are those that are on; the shards divide among them the work of proving these, `shards` in all.
    `against` is another compiler: failures that it shares are passed over (see `fuzz.against`).
    Unless `exact`, programs hold operators such as `exp`, and are judged against float64.
    `relations` says which programs are tried once more, rewritten, and how (see `fuzz.relations`). `gradients` says in which
    batches inputs require grad, one of `fuzz.options.GRADIENTS`, where the target takes that.
    `time_limit` and `memory_limit` are those of one program on an unsafe target; see `fuzz.isolation`.
    """

    target: str
    shard: int
    seed: int
    deadline: float
    shrink_seconds: float = 40.0
    batches: int = 0
    time_limit: float = TIME_LIMIT
    memory_limit: int = MEMORY_LIMIT
    shards: int = 1
    flags: Known = field(default_factory=Known)
    exact: bool = True
    against: str = ""
    relations: Choice = field(default_factory=Choice)
    gradients: str = GRADIENTS[0]


@dataclass
class Totals:
    """What a shard did. `counts` are its programs by outcome, those of the batch that runs included."""

    programs: int = 0
    failures: int = 0
    batches: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


def batch_seed(seed: int, target: str, shard: int, batch: int) -> int:
    """The seed of a batch: the same for the same campaign, so that any batch can be run again alone.

    Every eighth batch of a shard is one of those in which functions are called again (`called_again`), an early one the
    first, so that no run is without them.
    """
    text = f"{seed}/{target}/{shard}/{batch}"
    drawn = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return drawn - drawn % CALLED_AGAIN + (batch + shard - 1) % CALLED_AGAIN


def called_again(seed: int) -> bool:
    """Whether the functions of the batch with this seed are called several times."""
    return seed % CALLED_AGAIN == 0


def with_gradients(seed: int, gradients: str) -> bool:
    """Whether inputs require grad in the batch with this seed: in all, in none, or in some of them."""
    return gradients == "all" or (gradients == "some" and seed // CALLED_AGAIN % WITH_GRADIENTS == 0)


def judge(compiler: Target, seed: int, *, exact: bool = True) -> Callable[[Program], Verdict]:
    """The verdict on a program of the batch with this seed; in one batch of eight with further calls.

    All programs of a batch are called alike, so that a failure in a later call stays one while it shrinks.
    """
    again = called_again(seed)

    def verdict(program: Program) -> Verdict:
        calls = variants.calls(program, compiler) if again else ()
        return check(program, target=compiler, calls=calls, exact=exact)

    return verdict


def run_shard(plan: Plan, store: Store, known: frozenset[Signature], journal: Journal) -> Totals:
    """Runs batches until the plan's deadline, saving each new finding as soon as it is shrunk.

    On Ctrl-C the smallest failures so far are saved before the interrupt goes on. A program that was in flight when this
    shard was killed before becomes a case first.
    """
    recover_shard(journal.path, store)
    target = targets.get(plan.target)
    stacks = journal.path.with_suffix(".stacks")
    with (
        ExitStack() as stack,
        contained(target, seconds=plan.time_limit, memory=plan.memory_limit, stacks=stacks) as whole,
        Flight(journal.path, plan.target, plan.shard, targets.versions(target), exact=plan.exact) as flight,
    ):
        for flag, why in plan.flags.stale(whole, (plan.shard, plan.shards)):
            journal.write("stale", target=plan.target, flag=flag.name, why=why)
        narrowed = plan.flags.narrowed(whole)
        compiler = narrowed if isinstance(narrowed, Isolated) else Watched(narrowed)
        other = stack.enter_context(_other(plan, stacks)) if plan.against else None
        stack.enter_context(set_aside())
        totals = Shard(plan, compiler, Keeper(compiler, store, known, journal), flight, other).run()
        journal.write("done", target=plan.target, shard=plan.shard)
    return totals


@contextmanager
def set_aside() -> Iterator[None]:
    """Spares the garbage collector what is there by now, most of it torch's, and has it look at the rest less often.

    Either took a twentieth of the time. Hardly anything of a program is left in cycles.
    """
    gc.collect()
    gc.freeze()
    usual = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


def _other(plan: Plan, stacks: Path) -> AbstractContextManager[Target]:
    return opened(plan.against, seconds=plan.time_limit, memory=plan.memory_limit, stacks=stacks)


class Shard:
    """A shard at work: `compiler` is what it tests, `keeper` saves what it finds, `flight` knows what it judges.

    `other` is the compiler that it is measured against, if any, and `muting` decides which failures are shrunk.
    """

    def __init__(
        self,
        plan: Plan,
        compiler: Target,
        keeper: Keeper,
        flight: Flight,
        other: Target | None = None,
        muting: Muting | None = None,
    ) -> None:
        self._other_compiler = other
        self._limits = compiler.limits.meet(other.limits) if other is not None else compiler.limits
        self._plan, self._compiler, self._keeper = plan, compiler, keeper
        self._totals = Totals(findings=keeper.findings)
        self._muting = muting or Muting()
        self._batch: Batch | None = None
        self._start = time.monotonic()
        self._pulse = Pulse(keeper.journal, compiler, plan.shard, self._totals.counts)
        self._account = Account(compiler, plan.flags, self._rewrite, flight, self._pulse, self._totals.counts)

    def run(self) -> Totals:
        """All batches."""
        plan, totals = self._plan, self._totals
        self.begin()
        try:
            while time.monotonic() < plan.deadline and not 0 < plan.batches <= totals.batches:
                self.batch(batch_seed(plan.seed, plan.target, plan.shard, totals.batches))
        finally:
            self.end()
        return totals

    def begin(self) -> None:
        """Says what is tested."""
        self._pulse.begin(self._limits, targets.versions(self._compiler))

    def end(self) -> None:
        """Says what the programs were like."""
        self._pulse.coverage()

    @property
    def counts(self) -> Counter[str]:
        """The programs so far, by outcome."""
        return self._totals.counts

    @property
    def shrinks(self) -> bool:
        """Whether the batch, running or the last one, has met a failure that it shrinks: then it draws no more."""
        return self._batch is not None and self._batch.pursuit is not None

    @property
    def drawn(self) -> int:
        """How many of the programs that the running batch has drawn are done with; one that is shrunk is not."""
        return self._account.drawn - 1 if self.shrinks else self._account.drawn

    @property
    def whole(self) -> bool:
        """Whether all programs that the running batch has counted are done with: none is being judged, or shrunk."""
        return not (self._account.judging or self.shrinks)

    def until(self, deadline: float) -> None:
        """Ends at this time (`time.monotonic`) instead; in a batch that shrinks, no later than its own time for that."""
        self._plan = replace(self._plan, deadline=deadline)
        if self._batch is not None:
            self._batch.deadline = min(self._batch.deadline, deadline)

    def batch(self, seed: int, skip: Callable[[int, Program], bool] = lambda number, program: False) -> None:
        """Runs one batch. Programs are passed over, as if they were right, where `skip` of their number in the batch says so.

        Numbers are from 1; that of a program which is met while one is shrunk is 0.
        """
        self._batch = None
        plan, totals = self._plan, self._totals
        watched = self._account.batch(partial(self._judge, seed), self._pursued, skip, again=called_again(seed))
        batch = self._batch = Batch(
            watched,
            plan.deadline,
            plan.shrink_seconds,
            self._muting.muted(seed),
            lambda programs, failures: self._pulse.judged(totals.batches),
            target=self._compiler,
        )
        repeats = 0  # after an interrupt there is no time for them
        try:
            gradients = self._limits.gradients and with_gradients(seed, plan.gradients)
            batch.run(programs(self._limits, exact=plan.exact, gradients=gradients), seed)
            repeats = REPEATS
        finally:
            totals.batches += 1
            self._count()
            for verdict in self._found(batch):
                self._keep(verdict, seed, repeats)
            self._pulse.totals(totals.batches)
        others = batch.pursuit.others if batch.pursuit is not None else {}
        for other in others.values():
            self._other(other, watched, seed)
        self._compiler.reset()

    def _pursued(self) -> Verdict | None:
        """The failure that the running batch shrinks, if it has met one."""
        return self._batch.verdict if self._batch is not None else None

    def _rewrite(self, program: Program) -> Rewriting | None:
        return rewriting(program, self._plan.relations, self._limits)

    def _judge(self, seed: int, relation: str = "") -> Judge:
        """Judges programs of the batch with this seed; with a relation, their rewritings, and how both compare, too."""
        plan, compiler = self._plan, self._compiler
        if relation:
            return lambda program: related(program, compiler, relation, exact=plan.exact)
        judged = judge(compiler, seed, exact=plan.exact)
        if self._other_compiler is None:
            return judged
        return against(judged, judge(self._other_compiler, seed, exact=plan.exact))

    def _keep(self, verdict: Verdict, seed: int, repeats: int) -> None:
        self._pulse.turn("replay")
        self._keeper.keep(verdict, self._judge(seed, verdict.relation), repeats)

    def _count(self) -> None:
        totals = self._totals
        totals.programs = totals.counts.total()
        totals.failures = sum(totals.counts[name] for name in FAILURES)
        totals.seconds = time.monotonic() - self._start

    def _found(self, batch: Batch) -> list[Verdict]:
        """The failures to save: the one that was shrunk, and workers that died in between."""
        late = self._compiler.sandbox.late if isinstance(self._compiler, Isolated) else []
        found = list(late)
        late.clear()
        if batch.pursuit is not None:
            signed = batch.pursuit.signed()
            self._muting.add({batch.pursuit.kind, kind_of(signed)})
            found.append(signed)
        return [verdict for verdict in found if self._plan.flags.covers(verdict, verdict.signature) is None]

    def _other(self, verdict: Verdict, watched: Judge, seed: int) -> None:
        """Shrinks and saves a failure that was met on the way, unless its like was often enough, or somebody else does.

        It is saved as it is once the time is up, or on Ctrl-C.
        """
        kind = kind_of(verdict)
        if not (self._muting.often(kind) or self._muting.hand_over(verdict, kind, seed)):
            self._shrink(verdict, watched, seed, self._plan.shrink_seconds / OTHERS_SHARE)

    def shrink(self, program: Program, seed: int, relation: str = "") -> bool:
        """Shrinks and saves a failure that another shard met, in a batch called alike; False if it does not fail here."""
        judged, again, self._batch = self._judge(seed, relation), called_again(seed), None

        def watched(program: Program) -> Verdict:
            return self._account.judge(program, judged, again=again)

        self._pulse.turn("shrink")
        found = watched(program)
        if not found.ok:
            self._shrink(found, watched, seed, self._plan.shrink_seconds)
        return not found.ok

    def _shrink(self, verdict: Verdict, watched: Judge, seed: int, seconds: float) -> None:
        plan, batches = self._plan, self._totals.batches
        left = min(seconds, plan.deadline - time.monotonic())
        pursuit, why = shrink(
            verdict,
            self._compiler,
            watched,
            seconds=max(left, 0.0),
            watch=lambda step, pursuit: self._pulse.judged(batches),
        )
        signed = pursuit.signed()
        self._muting.add({kind_of(verdict), kind_of(signed)})
        if plan.flags.covers(signed, signed.signature) is None:
            self._keep(signed, seed, REPEATS if why != "interrupted" else 0)
        self._count()
        self._pulse.totals(self._totals.batches)
        if why == "interrupted":
            raise KeyboardInterrupt
