"""What runs that were killed have left: the program that each shard was judging becomes a case."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from corpus.case import Case
from corpus.signature import Signature
from corpus.store import Store
from executor import targets
from executor.errors import TargetError
from executor.program import Inputs
from fuzz import flight, variants
from fuzz.flight import InFlight
from fuzz.journal import Journal

SYMPTOM = "in-flight"


class Recovered(NamedTuple):
    """A program that a shard was judging when it was killed, and the case that it was saved as."""

    target: str
    shard: int
    journal: Path
    case: Path

    def __str__(self) -> str:
        return (
            f"{self.target}: shard {self.shard} of {self.journal.parent.name} was killed while it judged a program, "
            f"saved as {self.case}\n  aliasfuzz replay {self.case.name}"
        )


def recover(folder: Path, store: Store) -> list[Recovered]:
    """Saves the programs that dead shards of the run in this folder left; those of live ones are left alone."""
    found = [recover_shard(journal, store) for journal in sorted(folder.glob("*.jsonl"))]
    return [left for left in found if left is not None]


def recover_shard(journal: Path, store: Store) -> Recovered | None:
    """Saves the program that the shard with this journal left, if it is dead and has left one."""
    paths = flight.slots(journal)
    if not any(path.exists() for path in paths):
        return None
    with flight.orphaned(journal) as dead:
        left = flight.read(journal) if dead else None
        if left is not None:
            path = store.save(case_of(left, journal.parent.name))
            Journal(journal).write("killed", target=left.target, shard=left.shard, counts=left.counts,
                                   digest=left.program.digest, path=str(path))  # fmt: skip
        if dead:
            flight.forget(paths)
    return Recovered(left.target, left.shard, journal, path) if left is not None else None


def case_of(left: InFlight, run: str) -> Case:
    """The program that a killed shard of a run was judging, as an open case."""
    return Case(
        program=left.program,
        target=left.target,
        versions=left.versions,
        signature=Signature(left.target, SYMPTOM),
        state="open",
        exact=left.exact,
        calls=_calls(left),
        found=time.strftime("%Y-%m-%d"),
        note=f"Was being judged when its run was killed ({run}); perhaps by it, perhaps not.",
    )


def _calls(left: InFlight) -> tuple[Inputs, ...]:
    if not left.again:
        return ()
    try:
        return variants.calls(left.program, targets.get(left.target))
    except TargetError:  # no longer installed
        return ()
