"""A worker's bench: the compilers that it has opened, and the shard of the arm on which it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from copy import copy
from pathlib import Path
from typing import Any

from corpus.case import Case
from corpus.flags import Flag
from corpus.store import Store
from executor import targets
from executor.limits import Limits
from executor.program import Program
from executor.targets import Target
from fuzz.against import opened
from fuzz.campaign import Plan, Shard
from fuzz.check import TIME_LIMIT
from fuzz.cluster.messages import Place, Setup
from fuzz.cluster.profiles import PROFILES
from fuzz.coverage import Watched
from fuzz.flight import Flight
from fuzz.isolation import Isolated, contained
from fuzz.isolation.sandbox import MEMORY_LIMIT
from fuzz.journal import Journal, JournalError
from fuzz.keeper import Keeper
from fuzz.known import Known
from fuzz.muting import Muting
from fuzz.relations import chosen

Where = Callable[[], tuple[Place, bool]]  # how far a worker is, and whether it draws there, or shrinks


class NoRoom(BaseException):
    """A program cannot be put on disk before it runs. No `Exception`: Hypothesis would take it for a failure to shrink."""


class Careful(Flight):
    """A flight that knows where each program is met (see `InFlight`), and ends a batch at once if its disk is full."""

    where: Where = staticmethod(lambda: (Place(), True))

    def begin(self, program: Program, counts: Mapping[str, int], *, again: bool) -> None:
        """See `Flight`. Raises `NoRoom`."""
        here, self.drawn = self.where()
        self.place = here.batch, here.drawn
        try:
            super().begin(program, counts, again=again)
        except JournalError as error:
            raise NoRoom(str(error)) from error


class Events(Journal):
    """A journal whose events are handed on, and not written."""

    def __init__(self, path: Path, take: Callable[..., None]) -> None:
        super().__init__(path)
        self._take = take

    def write(self, event: str, **fields: Any) -> None:
        """Hands an event on."""
        self._take(event, **fields)


class Cases(Store):
    """A store whose cases are handed on, and not written."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Case | None = None

    def save(self, case: Case, slug: str = "") -> Path:
        """Keeps a case until the next one; the name that its file would have."""
        self.last = case
        return Path(case.file_name(slug))


class Bench:
    """What a worker works with. Compilers stay open, each in its sandbox if it is unsafe; there is one shard at a time.

    `scratch` is a folder on the node's own disk. `take` is told of the shard's events, each with its fields, and `keep` makes
    what keeps its findings, from the compiler and the journal. `where` says where the worker is.
    """

    def __init__(
        self,
        setup: Setup,
        worker: int,
        scratch: Path,
        take: Callable[..., None],
        keep: Callable[[Target, Journal], Keeper],
        where: Where = Careful.where,
    ) -> None:
        self._keep, self._where = keep, where
        self._setup, self._worker, self._scratch, self._take = setup, worker, scratch, take
        self._compilers, self._shard_stack = ExitStack(), ExitStack()
        self._open: dict[str, tuple[Target, Target | None]] = {}

    def shard(self, arm: int, flags: tuple[Flag, ...], muting: Muting, deadline: float) -> Shard:
        """A new shard on an arm, until a time of `time.monotonic`; the one before is over.

        Raises `JournalError` if its folder cannot be written to, and `IsolationError` or `TargetError` if there is no compiler.
        """
        self.leave()
        name, profile = self._setup.arms[arm]
        known = Known.of(flags, name)
        journal = self._journal(name)
        whole, other = self._compiler(name, known, journal)
        narrowed = _within(known.narrowed(whole), PROFILES[profile])
        compiler = narrowed if isinstance(narrowed, Isolated) else Watched(narrowed)
        options = self._setup.options
        plan = Plan(
            name, self._worker, options.seed, deadline, options.shrink, exact=options.exact, flags=known,
            against=options.against, relations=chosen(options.relations), shards=self._setup.workers,
            gradients=options.gradients,
        )  # fmt: skip
        flight = self._shard_stack.enter_context(
            Careful(journal.path, name, self._worker, targets.versions(whole), exact=options.exact)
        )
        flight.where = self._where
        shard = Shard(plan, compiler, self._keep(compiler, journal), flight, other, muting)
        shard.begin()
        return shard

    def leave(self) -> None:
        """Ends the shard; no program is in flight any more."""
        self._shard_stack.close()

    def close(self) -> None:
        """Ends the shard and all compilers."""
        self.leave()
        self._compilers.close()

    def _journal(self, name: str) -> Events:
        return Events(self._scratch / f"{name.replace(':', '-')}-{self._worker}.jsonl", self._take)

    def _compiler(self, name: str, known: Known, journal: Journal) -> tuple[Target, Target | None]:
        """A compiler and the other one that it is measured against; this worker's part of the flags is proved first."""
        if name not in self._open:
            stacks = journal.path.with_suffix(".stacks")
            whole = self._compilers.enter_context(contained(targets.get(name), stacks=stacks))
            against = self._setup.options.against
            other = self._compilers.enter_context(_other(against, stacks)) if against else None
            for flag, why in known.stale(whole, (self._worker, self._setup.workers)):
                journal.write("stale", target=name, flag=flag.name, why=why)
            self._open[name] = whole, other
        return self._open[name]


def _within(target: Target, limits: Limits) -> Target:
    narrower = copy(target)
    narrower.limits = target.limits.meet(limits)
    return narrower


def _other(against: str, stacks: Path) -> AbstractContextManager[Target]:
    return opened(against, seconds=TIME_LIMIT, memory=MEMORY_LIMIT, stacks=stacks)
