"""The program that a shard is about to judge, on disk before it runs: a shard that is killed leaves it behind.

Two files beside the shard's journal hold the last two programs, each with a checksum, written in turn: whenever the writer is
killed, one of them is whole. Nothing is flushed to the disk itself, since what the kernel holds outlives a process;
so a program costs some microseconds. (A file renamed over the last one costs 0.2 ms on ext4, which flushes it.)
The shard locks its journal for as long as it lives, so a journal without a lock is nobody's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from executor.program import Program
from fuzz.journal import JournalError, writing

_HEADER = struct.Struct(">8sQIQ")  # magic, number of the record, checksum, length
_MAGIC = b"aflight1"


class InFlight(msgspec.Struct, frozen=True):
    """A program that a shard was about to judge, and what it had done before: `counts` of programs by outcome.

    `again` says that the compiled function was to be called several times, `exact` how it is judged. `place` is the batch, and
    how many of its programs were done with before, where the shard is one of a campaign on many machines; `drawn` says that
    the program is the next one that was drawn there, or its rewriting, and not one that was met while something was shrunk.
    """

    target: str
    shard: int
    versions: dict[str, str]
    counts: dict[str, int]
    again: bool
    program: Program
    exact: bool = True
    place: tuple[int, int] = (0, 0)
    drawn: bool = True


class Flight:
    """Keeps the program in flight of one shard. A context manager.

    Leaving it forgets the program, unless something other than Ctrl-C ends the block: then the program is evidence. `place`
    and `drawn` are noted with each program; see `InFlight`.
    """

    def __init__(
        self, journal: Path, target: str, shard: int, versions: Mapping[str, str], *, exact: bool = True
    ) -> None:
        self._target, self._shard, self._versions, self._exact = target, shard, dict(versions), exact
        self._paths, self._number = slots(journal), 0
        self.place, self.drawn = (0, 0), True
        with writing(journal):
            self._lock = os.open(journal, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock)
                raise JournalError(
                    f"{journal}: another run writes there; choose another folder by --fuzz-run"
                ) from None
            self._files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644) for path in self._paths]

    def begin(self, program: Program, counts: Mapping[str, int], *, again: bool) -> None:
        """Notes the program that runs next, with the counts before it. Raises `JournalError`."""
        plain = program.without_sources()
        record = InFlight(
            self._target, self._shard, self._versions, dict(counts), again, plain, self._exact, self.place, self.drawn
        )
        payload = msgspec.msgpack.encode(record)
        self._number += 1
        slot = self._number % 2
        data = _packed(self._number, payload)
        with writing(self._paths[slot]):
            if os.pwrite(self._files[slot], data, 0) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for file in self._files:
            os.close(file)
        if kind is None or issubclass(kind, KeyboardInterrupt):
            forget(self._paths)
        os.close(self._lock)


def _packed(number: int, payload: bytes) -> bytes:
    counted = number.to_bytes(8) + payload
    return _HEADER.pack(_MAGIC, number, zlib.crc32(counted), len(payload)) + payload


def slots(journal: Path) -> tuple[Path, Path]:
    """The two files for the programs of the shard with this journal."""
    return journal.with_suffix(".flight0"), journal.with_suffix(".flight1")


def forget(paths: tuple[Path, ...]) -> None:
    """Deletes the files."""
    for path in paths:
        path.unlink(missing_ok=True)


def read(journal: Path) -> InFlight | None:
    """The program that the shard with this journal judged last, if it has left one that can be read."""
    found = [
        record for path in slots(journal) if path.exists() and (record := _unpacked(path.read_bytes())) is not None
    ]
    return max(found, key=lambda record: record[0])[1] if found else None


def _unpacked(data: bytes) -> tuple[int, InFlight] | None:
    if len(data) < _HEADER.size:
        return None
    _, number, _, length = _HEADER.unpack_from(data)
    payload = data[_HEADER.size : _HEADER.size + length]
    if _packed(number, payload) != data[: _HEADER.size + length]:
        return None
    try:
        return number, msgspec.msgpack.decode(payload, type=InFlight)
    except (msgspec.DecodeError, UnicodeDecodeError):  # of another version of this project
        return None


@contextmanager
def orphaned(journal: Path) -> Iterator[bool]:
    """Whether the shard with this journal is dead; then nobody else deals with it during the block."""
    file = os.open(journal, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(file)
