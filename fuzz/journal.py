"""What a shard did, a line of JSON an event, written at once: a shard that dies leaves all it knew."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from executor.errors import AliasfuzzError


class JournalError(AliasfuzzError):
    """A run's folder cannot be written to; the message says what would help."""


class Journal:
    """An append-only file of events."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, event: str, **fields: Any) -> None:
        """Appends an event with the time in seconds since the epoch. Raises `JournalError`, and then no part of it is left."""
        line = json.dumps({"event": event, "time": round(time.time(), 3), **fields}).encode() + b"\n"
        with writing(self.path), self.path.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                whole = file.write(line) == len(line)
            except OSError:
                file.truncate(size)
                raise
            if not whole:
                file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an `OSError` of the block into a `JournalError` about this file."""
    try:
        yield
    except OSError as error:
        raise JournalError(
            f"{path}: cannot be written: {error.strerror}; what was written before is whole. Make room, or choose "
            "another folder by --fuzz-run"
        ) from error


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of all journals in a folder, as far as they can be read."""
    for path in sorted(folder.glob("*.jsonl")):
        yield from events(path)


def events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of one journal; a line that is damaged, or cut short by a killed writer, is passed over."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            yield event
