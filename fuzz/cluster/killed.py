"""What killed workers have left on a node, the program that each was judging, and how it is passed over from then on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from executor import printing
from executor.program import Program
from fuzz import flight
from fuzz.cluster.messages import Found, Left, Passed, Place
from fuzz.flight import InFlight
from fuzz.recovery import case_of


def killed(scratch: Path) -> dict[Path, InFlight]:
    """What dead workers left in a folder, by journal; live ones are left alone."""
    found = {}
    for journal in sorted(scratch.glob("*.jsonl")):
        left = None
        with (
            contextlib.suppress(FileNotFoundError),
            flight.orphaned(journal) as dead,
        ):  # its worker may be done just now
            left = flight.read(journal) if dead else None
        if left is not None:
            found[journal] = left
    return found


def told(left: InFlight, campaign: str) -> Left:
    """What a dead worker of this campaign left, as the coordinator is told of it."""
    text = f"{left.target}: was judging this program when its worker, number {left.shard}, was killed"
    found = Found(case_of(left, campaign), text, printing.listing(left.program), "")
    return Left(left.shard, Place(*left.place), found, left.drawn)


def clear(scratch: Path, worker: int) -> None:
    """Deletes what a worker that is done has left in a folder, and the folder if it was the last there."""
    for path in scratch.glob(f"*-{worker}.*"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others are at work there
        scratch.rmdir()


def forget(found: dict[Path, InFlight]) -> None:
    """Deletes what they left: the coordinator knows of it. What has changed since is another's, and stays."""
    for journal, left in found.items():
        with contextlib.suppress(FileNotFoundError), flight.orphaned(journal) as dead:
            if dead and flight.read(journal) == left:
                flight.forget(flight.slots(journal))


def done(place: Place, passed: Iterable[Passed]) -> Callable[[int, Program], bool]:
    """Which programs of a batch are not judged again: those before a place, and those that are passed over."""
    here = [one for one in passed if one.batch == place.batch]
    numbers, digests = {one.number for one in here}, {one.digest for one in here}

    def skip(number: int, program: Program) -> bool:
        return number <= place.drawn or number in numbers if number else program.digest in digests

    return skip
