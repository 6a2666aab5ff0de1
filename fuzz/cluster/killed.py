"""What killed workers have left on a node: the program that each was judging."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from executor import printing
from fuzz import flight
from fuzz.cluster.messages import Found, Place
from fuzz.recovery import case_of


class Killed(NamedTuple):
    """The program that a dead worker was judging, where it was, and the files that say so."""

    shard: int
    place: Place
    found: Found
    journal: Path


def killed(scratch: Path) -> list[Killed]:
    """What dead workers left in a folder; live ones are left alone."""
    found = []
    for journal in sorted(scratch.glob("*.jsonl")):
        left = None
        with (
            contextlib.suppress(FileNotFoundError),
            flight.orphaned(journal) as dead,
        ):  # its worker may be done just now
            left = flight.read(journal) if dead else None
        if left is not None:
            case = case_of(left, scratch.name)
            text = f"{left.target}: was judging this program when its worker, number {left.shard}, was killed"
            found.append(
                Killed(left.shard, Place(*left.place), Found(case, text, printing.listing(left.program), ""), journal)
            )
    return found


def clear(scratch: Path, worker: int) -> None:
    """Deletes what a worker that is done has left in a folder, and the folder if it was the last there."""
    for path in scratch.glob(f"*-{worker}.*"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others are at work there
        scratch.rmdir()


def forget(left: list[Killed]) -> None:
    """Deletes what they left: the coordinator knows of it."""
    for dead in left:
        flight.forget(flight.slots(dead.journal))
