"""A worker: judges one program after the other until its caller hangs up. Runs in a process that the supervisor forked."""

from __future__ import annotations

import faulthandler
import os
import resource
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from executor import targets
from executor.errors import AliasfuzzError
from fuzz.check import examine
from fuzz.isolation.messages import Judged, Task
from fuzz.oracle import Mismatch, brief
from fuzz.relations.pair import compared
from fuzz.state import gpu_lost
from fuzz.subjects import of_program

RESET = b""  # instead of a task: forget earlier programs
_MOMENT = 0.9  # the part of the time limit after which the stack is noted

_decode = msgspec.msgpack.Decoder(Task).decode


def work(name: str, connection: Connection, stacks: Path) -> None:
    """Serves the connection. Stacks of a worker that dies or hangs are written to the file `stacks`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    file = os.open(stacks, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    faulthandler.enable(file)
    targets.get(name)
    connection.send_bytes(RESET)  # ready
    while True:
        try:
            data = connection.recv_bytes()
        except EOFError:
            return
        if data == RESET:
            targets.get(name).reset()
            continue
        task = _decode(data)
        faulthandler.dump_traceback_later(task.seconds * _MOMENT, file=file)
        judged = judge(task)
        faulthandler.cancel_dump_traceback_later()
        if judged.mismatches and gpu_lost():
            judged = msgspec.structs.replace(judged, spoilt=True)
        if judged.problem is None:
            judged = msgspec.structs.replace(judged, tally=targets.get(task.target).tally())
        connection.send_bytes(msgspec.msgpack.encode(judged))


def judge(task: Task) -> Judged:
    """The verdict on a task's program.

    What goes wrong in the comparison itself counts as the target's doing: it must have changed what that relies on.
    """
    try:
        compiler = targets.get(task.target)
        if task.relation:
            return Judged(compared(task.program, task.relation, compiler, seconds=0))
        subject = of_program(task.program, task.calls, source=compiler.needs_source)
        return Judged.of(examine(subject, compiler, exact=task.exact, bounds=task.bounds, seconds=0))
    except AliasfuzzError as error:
        return Judged(problem=str(error))
    except BaseException as error:  # noqa: BLE001 - whatever the target broke, the campaign goes on
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{brief(error)}, in {Path(frame.filename).name}:{frame.lineno}"
        return Judged((Mismatch("state", "the comparison", "no error", text, type(error).__name__),), spoilt=True)
