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
def writing(path: Path, remedy: str = "choose another folder by --fuzz-run") -> Iterator[None]:
    """Turns an `OSError` of the block into a `JournalError` about this file."""
    try:
        yield
    except OSError as error:
        raise JournalError(
            f"{path}: cannot be written: {error.strerror}; what was written before is whole. Make room, or {remedy}"
        ) from error


def write_whole(path: Path, text: str, remedy: str = "choose another folder by --fuzz-run") -> None:
    """Writes a file so that it is there as a whole or as it was before. Raises `JournalError`."""
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    with writing(path, remedy):
        try:
            part.write_text(text, encoding="utf-8", errors="backslashreplace")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of all journals in a folder, as far as they can be read."""
    for path in sorted(folder.glob("*.jsonl")):
        yield from events(path)


def events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of one journal; a line that is damaged, or cut short by a killed writer, is passed over."""
    yield from _events(path.read_bytes())


def _events(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.decode(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            yield event


class Tail:
    """The journals of a folder, read as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    @property
    def files(self) -> tuple[Path, ...]:
        """The journals so far."""
        return tuple(self._read)

    def new(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The events that were written since this was asked last, each with its file."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.setdefault(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] += len(whole) + len(newline)
            yield from ((path, event) for event in _events(whole))
