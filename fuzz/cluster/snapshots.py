"""A coordinator's state on any filesystem that fsspec knows: two files, written in turn, so that one of them is whole."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import fsspec

_HEADER = struct.Struct(">8sQI")  # magic, number, checksum
_MAGIC = b"acoord01"


class Snapshots:
    """The snapshots in a folder: a path, or a URL such as "s3://bucket/run".

    They are written in the background, one at a time: a store that is slow, or away, holds up nobody. `saved` is the number of
    the last one that is whole, `error` says why the last attempt failed, or is empty. `url` may be a filesystem's own.
    """

    def __init__(self, url: str, executor: Executor | None = None) -> None:
        self._files, self._folder = _open(url)
        self._executor = executor or ThreadPoolExecutor(1, "aliasfuzz-snapshots")
        self._write: Future[None] | None = None
        self._writing, self._slot = 0, 1  # the slot of the last whole one, which is not touched
        self.saved, self.error = 0, ""

    def load(self) -> tuple[int, bytes] | None:
        """The newest snapshot that is whole, with its number; None if there is none. Raises `OSError` if nobody knows."""
        self._files.makedirs(self._folder, exist_ok=True)
        found = [(*one, slot) for slot in range(2) if (one := self._read(self._path(slot))) is not None]
        if not found:
            return None
        self.saved, payload, self._slot = max(found, key=lambda one: one[0])
        return self.saved, payload

    def _read(self, path: str) -> tuple[int, bytes] | None:
        try:
            data: bytes = self._files.cat_file(path)
        except FileNotFoundError:
            return None
        if len(data) < _HEADER.size:
            return None
        magic, number, checksum = _HEADER.unpack_from(data)
        payload = data[_HEADER.size :]
        return (number, payload) if magic == _MAGIC and zlib.crc32(payload) == checksum else None

    def _path(self, slot: int) -> str:
        return f"{self._folder}/state{slot}"

    def offer(self, number: int, make: Callable[[], bytes]) -> bool:
        """Begins to write a snapshot with this number, unless one is being written still; whether it did."""
        self.poll()
        if self._write is not None:
            return False
        payload = make()
        data = _HEADER.pack(_MAGIC, number, zlib.crc32(payload)) + payload
        self._writing = number
        self._write = self._executor.submit(self._files.pipe_file, self._path(1 - self._slot), data)
        self.poll()
        return True

    def poll(self, seconds: float = 0.0) -> int:
        """The number of the last snapshot that is whole, having waited at most so long for one that is being written."""
        if self._write is None:
            return self.saved
        try:
            self._write.result(seconds)
        except TimeoutError:
            if not self._write.done():
                return self.saved
            self.error = "timed out"
        except Exception as error:  # noqa: BLE001 - filesystems raise what they like; the next snapshot tries again
            self.error = f"{type(error).__name__}: {error}"
        else:
            self.saved, self.error, self._slot = self._writing, "", 1 - self._slot
        self._write = None
        return self.saved


def _open(url: str) -> tuple[Any, str]:
    files, folder = fsspec.core.url_to_fs(url)
    return files, folder.rstrip("/")
