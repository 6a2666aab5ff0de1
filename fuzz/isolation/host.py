"""The caller's side of the supervisor: starts it, asks it for workers, learns how they ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

import msgspec

from executor.errors import AliasfuzzError
from fuzz.isolation.messages import Ended

FORK, KILL = b"fork", b"kill"
WARM, COLD = b"warm", b"cold"  # whether the supervisor has loaded the target
_START = 120.0  # seconds for imports
_KILLED = Ended(9, "")
_MESSAGE = 1 << 16
# Tensors are tiny, and there is a worker a core.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # fmt: skip


class IsolationError(AliasfuzzError):
    """A process for the compiler under test cannot be started, or does not answer."""


class Worker(NamedTuple):
    """A worker that is ready, and the connection on which it takes tasks."""

    pid: int
    connection: Connection


class Host:
    """A supervisor and its worker, for the target of this name. Stacks of workers that die go to the file `stacks`.

    `python` is the interpreter, this one if it is empty.
    `warm` says whether the supervisor has loaded the target, so that a new worker costs little.
    """

    def __init__(self, name: str, stacks: Path, python: str = "") -> None:
        self._name, self._stacks, self._python = name, stacks, python
        self.warm = True
        # A target that cannot even be loaded kills the supervisor; then each worker has to load it.
        if not (self._start(WARM) or self._start(COLD)):
            where = f" with {python}, which needs aliasfuzz and the target" if python else ""
            raise IsolationError(
                f"no process for the target {name!r} could be started{where}; what it printed is above"
            )

    def _start(self, mode: bytes) -> bool:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_START)
        path = os.pathsep.join(folder or os.curdir for folder in sys.path)
        here = {} if self._python else {"PYTHONPATH": path}  # another interpreter has its own packages
        command = [self._python or sys.executable, "-m", "fuzz.isolation.supervisor", str(theirs.fileno()), self._name,
                   str(self._stacks), mode.decode()]  # fmt: skip
        with theirs:
            self._process = subprocess.Popen(
                command,
                env={**_ENVIRONMENT, **os.environ, **here},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            answer = self._control.recv(_MESSAGE)
        except TimeoutError:
            answer = b""
        if not answer:
            self.close()
        self.warm = answer == WARM
        return bool(answer)

    def fork(self) -> Worker:
        """A new worker, once it is ready. Raises `IsolationError` with what it printed if it never is."""
        self._control.send(FORK)
        data, (fd,), *_ = socket.recv_fds(self._control, _MESSAGE, 1)
        worker = Worker(int(data), Connection(fd))
        try:
            if worker.connection.poll(_START):
                worker.connection.recv_bytes()
                return worker
        except EOFError:
            pass
        worker.connection.close()
        raise IsolationError(
            f"the target {self._name!r} cannot be loaded in a process of its own: {self.kill().printed}"
        )

    def kill(self) -> Ended:
        """Kills the worker and all that it started. Returns when that is done."""
        try:
            self._control.send(KILL)
        except BrokenPipeError:
            return _KILLED
        return self.ended()

    def dead(self) -> bool:
        """Whether the worker has ended; `ended` then says how."""
        return bool(wait([self._control], 0))

    def ended(self) -> Ended:
        """Waits for the end of the worker."""
        data = self._control.recv(_MESSAGE)
        if not data:  # the supervisor itself was killed, and with it the worker
            self.close()
            self._start(WARM if self.warm else COLD)
            return _KILLED
        return msgspec.msgpack.decode(data, type=Ended)

    def close(self) -> None:
        """Ends all processes."""
        self._control.close()
        try:
            self._process.wait(_START)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
