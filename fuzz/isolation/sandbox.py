"""`Sandbox`: a process for a compiler under test, with limits on time and memory. It always gives a verdict."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import msgspec

from executor.errors import ArgumentError
from fuzz.check import TIME_LIMIT, Verdict
from fuzz.isolation.host import Host, Worker
from fuzz.isolation.messages import Ended, Judged, Task
from fuzz.isolation.stacks import innermost
from fuzz.isolation.worker import RESET
from fuzz.oracle import Mismatch

MEMORY_LIMIT = 4 << 30  # bytes that a worker may take on top of what it has at its start
SHORT_LIMIT = 2.0  # seconds that even the quickest program is given
PATIENCE = 5  # times as long as the slowest program so far a program may take
TRUSTED = 20  # programs after which their times tell something
RECYCLED = 1000  # programs after which a worker is replaced even where that costs a lot, for what compilers leak
_LOOK = 0.05  # seconds between two looks at a worker's memory
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SHOWN = 300  # characters of what a worker printed

_decode = msgspec.msgpack.Decoder(Judged).decode


class Sandbox:
    """A process for the target of this name, and its stages. A context manager: leaving it ends all processes.

    `seconds` is the time limit of a program. Once `TRUSTED` programs were judged, one that follows from their times holds,
    if it is shorter; it is believed if a program has passed the full one before. `memory` is what a worker may take on top
    of what it begins with. Stacks of workers that die go to the file `stacks`. `python` is another interpreter, if any.
    `late` are verdicts on programs after which a worker died while it had nothing to do; the caller takes them out.
    """

    def __init__(
        self,
        name: str,
        *,
        seconds: float = TIME_LIMIT,
        memory: int = MEMORY_LIMIT,
        stacks: Path | None = None,
        python: str = "",
    ) -> None:
        self.name, self.seconds, self.memory = name, seconds, memory
        self.late: list[Verdict] = []
        self._tally: Counter[str] = Counter()
        self._folder = TemporaryDirectory(prefix="aliasfuzz-")
        self._stacks = stacks or Path(self._folder.name, "stacks")
        self._host = Host(name, self._stacks, python)
        self._worker: Worker | None = None
        self._base = self._served = self._good = 0
        self._last: Task | None = None
        self._slowest, self._hung = 0.0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends all processes."""
        self._drop()
        self._host.close()
        self._folder.cleanup()

    def judge(self, task: Task) -> Verdict:
        """The verdict on the task's program. A crash, a hang and memory without end are failures like others."""
        limit = self._limit
        verdict = self._verdict(task, limit)
        if verdict.symptom == "timeout" and not self._hung:
            if limit < self.seconds:
                verdict = self._verdict(task, self.seconds)
            self._hung = verdict.symptom == "timeout"
        return verdict

    def tally(self) -> dict[str, int]:
        """What the workers counted since this was asked last; see `Target.tally`."""
        found = dict(self._tally)
        self._tally.clear()
        return found

    def refresh(self) -> None:
        """Has the target forget earlier programs, by a new worker where that costs little."""
        if self._current() is None:
            return
        if self._host.warm or self._served >= RECYCLED:
            self._end()
        else:
            self._ready().connection.send_bytes(RESET)

    @property
    def _limit(self) -> float:
        usual = max(PATIENCE * self._slowest, SHORT_LIMIT) if self._good >= TRUSTED else self.seconds
        return min(usual, self.seconds)

    def _verdict(self, task: Task, seconds: float) -> Verdict:
        worker, begun = self._ready(), time.monotonic()
        try:
            worker.connection.send_bytes(msgspec.msgpack.encode(msgspec.structs.replace(task, seconds=seconds)))
            judged = self._answer(worker, seconds)
        except BrokenPipeError:
            self._note_late(self._host.ended())
            return self._verdict(task, seconds)
        except BaseException:
            self._end()  # it may still be at work on this program
            raise
        self._tally.update(judged.tally)
        if judged.spoilt:
            self._end()
        if judged.problem is not None:
            raise ArgumentError(judged.problem)
        if not judged.mismatches and self._served:
            self._good += 1
            self._slowest = max(self._slowest, time.monotonic() - begun)
        self._served += 1
        self._last = task
        return judged.verdict(task)

    def _answer(self, worker: Worker, seconds: float) -> Judged:
        end = time.monotonic() + seconds
        while not wait([worker.connection], _LOOK):
            if time.monotonic() > end:
                self._end()
                return self._failed("timeout", f"no result after {seconds:g} s")
            if (taken := _memory(worker.pid) - self._base) > self.memory:
                self._end()
                return self._failed("memory-limit", f"{taken >> 20} MiB of memory, of {self.memory >> 20} allowed")
        try:
            return _decode(worker.connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            self._drop()
            return self._crashed(self._host.ended())

    def _failed(self, symptom: str, actual: str, detail: str = "") -> Judged:
        where = innermost(self._stacks)
        return Judged((Mismatch(symptom, "the run", "a result", f"{actual}{where and f', in {where}'}", detail),))

    def _crashed(self, ended: Ended) -> Judged:
        code = os.waitstatus_to_exitcode(ended.status)
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        last = " ".join(ended.printed.split())[-_SHOWN:]
        return self._failed("crash", f"{how}{last and f' ({last})'}", how)

    def _ready(self) -> Worker:
        """The worker, or a new one."""
        if (worker := self._current()) is None:
            worker = self._worker = self._host.fork()
            self._base, self._served = _memory(worker.pid), 0
        return worker

    def _current(self) -> Worker | None:
        """The worker, if there is one that has not died in the meantime."""
        if self._worker is not None and self._host.dead():
            self._note_late(self._host.ended())
        return self._worker

    def _note_late(self, ended: Ended) -> None:
        """A worker that dies while it waits died of the program before."""
        self._drop()
        if self._last is not None:
            self.late.append(self._crashed(ended).verdict(self._last))

    def _end(self) -> None:
        if self._worker is not None:
            self._host.kill()
            self._drop()

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.connection.close()
            self._worker = None


def _memory(pid: int) -> int:
    """Bytes of memory that a process holds; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (ProcessLookupError, FileNotFoundError):
        return 0
