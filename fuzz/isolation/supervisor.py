"""The supervisor: imports what a worker needs once, forks workers, and sees to it that none of them is left behind.

Runs as `python -m fuzz.isolation.supervisor SOCKET TARGET STACKS`, in a session of its own. It never runs the compiler
itself but once, to warm it up, so it stays sound whatever workers do; and it ends when its caller does.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import signal
import socket
import sys
from multiprocessing.connection import Connection, wait
from pathlib import Path

import msgspec
import torch

from executor.args import Ref
from executor.program import Call, Inputs, Iota, Param, Program, Storage, Value
from fuzz.isolation.host import COLD, FORK, WARM
from fuzz.isolation.messages import Ended, Task
from fuzz.isolation.worker import judge, work

LAST_WORDS = 4096  # bytes kept of what a worker prints
_CHUNK = 1 << 20
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def warm_up(name: str) -> bool:
    """Loads the target and runs it once, so that no worker has to; False where there is a GPU, which no fork may inherit.

    Its file is looked for: even to ask for the number of GPUs may set up the driver.
    """
    if torch.version.cuda is not None and any(Path("/dev").glob("nvidia[0-9]*")):
        return False
    inputs = Inputs((Storage(8, Iota("float32")),), (Value(0, "float32", (2,), (1,)),))
    values = (*inputs.values, Value(1, "float32", (2,), (1,)))
    call = Call("aten.add.Tensor", (Ref(0), Ref(0)), (), (1,))
    program = Program((*inputs.storages, Storage(8)), values, (Param("x", Ref(0)),), (call,), Ref(1))
    judge(Task(name, program))
    return True


class Supervisor:
    """Serves one caller, over a socket that keeps messages apart, with at most one worker at a time."""

    def __init__(self, control: socket.socket, name: str, stacks: Path) -> None:
        self._control, self._name, self._stacks = control, name, stacks
        self._worker = self._life = self._output = -1
        self._printed = b""

    def serve(self, greeting: bytes) -> None:
        """Until the caller hangs up, then without a worker."""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it hung up without reading all
            self._control.send(greeting)
            while self._step():
                pass
        self._end_all()

    def _step(self) -> bool:
        """Waits for something to do, and does it; False if the caller has hung up."""
        ready = wait([self._control, *(fd for fd in (self._life, self._output) if fd >= 0)])
        if self._output in ready:
            self._listen()
        if self._life in ready:
            self._bury()
        if self._control not in ready:
            return True
        message = self._control.recv(len(FORK))
        if message == FORK:
            self._fork()
        elif self._worker > 0:
            self._kill()
        return bool(message)

    def _fork(self) -> None:
        ours, theirs = socket.socketpair()
        output, print_to = os.pipe()
        os.set_blocking(output, False)
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _CHUNK)
        parent, self._printed = os.getpid(), b""
        self._worker = os.fork()
        if self._worker == 0:
            self._become_worker(theirs, print_to, parent)
        for fd in (theirs.detach(), print_to):
            os.close(fd)
        self._life, self._output = os.pidfd_open(self._worker), output
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(self._worker, self._worker)
        socket.send_fds(self._control, [str(self._worker).encode()], [ours.fileno()])
        ours.close()

    def _become_worker(self, connection: socket.socket, print_to: int, parent: int) -> None:
        code = 1
        try:
            os.setpgid(0, 0)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                return
            self._control.close()
            null = os.open(os.devnull, os.O_RDONLY)
            for old, new in ((null, 0), (print_to, 1), (print_to, 2)):
                os.dup2(old, new)
            os.close(print_to)
            work(self._name, Connection(connection.detach()), self._stacks)
            code = 0
        finally:
            os._exit(code)

    def _listen(self) -> int:
        """Takes in some of what the worker printed; keeps the last of it. Returns how much there was."""
        try:
            text = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return 0
        if not text:
            os.close(self._output)
            self._output = -1
        self._printed = (self._printed + text[-LAST_WORDS:])[-LAST_WORDS:]
        return len(text)

    def _end_all(self) -> None:
        """Waits for the end of the worker and of what it started."""
        self._kill()
        while _children():
            self._kill()
            os.waitpid(-1, 0)

    def _kill(self) -> None:
        """Kills the worker and what it started: its group, and orphans, which become children of the supervisor."""
        if self._worker > 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._worker, signal.SIGKILL)
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def _bury(self) -> None:
        """Tells the caller how the worker ended, once nothing is left of it."""
        _, status = os.waitpid(self._worker, 0)
        self._end_all()
        while self._output >= 0 and self._listen():
            pass
        for fd in (self._life, self._output):
            if fd >= 0:
                os.close(fd)
        self._worker = self._life = self._output = -1
        self._control.send(msgspec.msgpack.encode(Ended(status, self._printed.decode(errors="replace"))))


def _children() -> list[int]:
    me = os.getpid()
    return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text(encoding="ascii").split()]


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main() -> None:
    """Serves until the caller is gone."""
    fd, name, stacks, mode = sys.argv[1:]
    control = socket.socket(fileno=int(fd))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    warm = mode == WARM.decode() and warm_up(name)
    gc.collect()
    gc.freeze()  # so that workers share these objects' pages
    Supervisor(control, name, Path(stacks)).serve(WARM if warm else COLD)
    os._exit(0)  # at once: nothing here needs to be taken down


if __name__ == "__main__":
    main()
