"""Compilers that misbehave, each in one way, on programs that hold one operator; right on all others.

They are third parties' targets: `install` writes the entry points by which processes started later find them too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import secrets
import signal
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from executor import targets
from executor.program import Program
from executor.targets.base import Target

ROOT = Path(__file__).parents[1]


class Misbehaving(Target):
    """Does what eager does, and misbehaves as well on a program that holds the operator `trigger`."""

    unsafe = True
    needs_source = False

    def __init__(self, trigger: str = "mul_") -> None:
        self.trigger = trigger
        self.compiled = 0

    def tally(self) -> dict[str, int]:
        taken, self.compiled = self.compiled, 0
        return {"compiled": taken}

    @abstractmethod
    def misbehave(self, args: Sequence[torch.Tensor]) -> None: ...

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        assert isinstance(fn, Program)
        self.compiled += 1
        if not holds(fn, self.trigger):
            return fn

        def compiled(*args: Any) -> Any:
            result = fn(*args)
            self.misbehave(args)
            return result

        return compiled


class Segfault(Misbehaving):
    """Reads address 0."""

    name = "segfault"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        ctypes.string_at(0)


class Abort(Misbehaving):
    """Ends as C++ does for an exception that nobody catches, with words on stderr."""

    name = "abort"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        os.write(2, b"terminate called after throwing an instance of 'std::bad_function_call'\n")
        os.abort()


class NativeHang(Misbehaving):
    """Sleeps in C, with the interpreter locked and all signals blocked that can be."""

    name = "native-hang"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        ctypes.PyDLL(None).sleep(1000)


class PythonHang(Misbehaving):
    """Catches whatever would end it."""

    name = "python-hang"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(0.01)


class Hoard(Misbehaving):
    """Allocates without end."""

    name = "hoard"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        held = []
        while True:
            held.append(torch.ones(4 << 20))


class Exit(Misbehaving):
    """Ends the process without a word."""

    name = "exit"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        os._exit(3)


class Chatter(Misbehaving):
    """Prints gigabytes past Python's streams."""

    name = "chatter"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        line = b"x" * (1 << 20)
        for _ in range(1 << 11):
            os.write(1, line)


class Orphans(Misbehaving):
    """Starts processes that leave its group and outlive it."""

    name = "orphans"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        if os.fork() == 0:
            os.setsid()
            time.sleep(1000)
        os._exit(4)


class Draws(Misbehaving):
    """Draws random numbers from torch's generator."""

    name = "draws"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        torch.rand(3)


class DrawsInPython(Misbehaving):
    """Draws random numbers from Python's generator."""

    name = "draws-in-python"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        random.random()


class DefaultDtype(Misbehaving):
    """Changes the default dtype."""

    name = "default-dtype"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        torch.set_default_dtype(torch.float64)


class Threads(Misbehaving):
    """Changes the number of threads."""

    name = "threads"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        torch.set_num_threads(torch.get_num_threads() + 1)


class GradMode(Misbehaving):
    """Turns gradients off."""

    name = "grad-mode"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        torch.set_grad_enabled(False)


class Moves(Misbehaving):
    """Leaves the process in another folder."""

    name = "moves"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        os.chdir("/")


class Deletes(Misbehaving):
    """Takes the memory from under an input."""

    name = "deletes"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        tensor = first_tensor(args)
        tensor.data = torch.empty(0, dtype=tensor.dtype)


class Resizes(Misbehaving):
    """Changes an input's shape."""

    name = "resizes"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        first_tensor(args).unsqueeze_(0)


class Late(Misbehaving):
    """Raises in a thread, after it has returned."""

    name = "late"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        def fail() -> None:
            time.sleep(0.02)
            raise ValueError("later")

        threading.Thread(target=fail).start()


class LateCrash(Misbehaving):
    """Crashes in a thread that nobody can wait for, after it has returned."""

    name = "late-crash"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        parent = os.getpid()
        if os.fork() == 0:
            time.sleep(0.5)
            os.kill(parent, signal.SIGSEGV)
            os._exit(0)


class Endless(Misbehaving):
    """Returns a list that holds itself."""

    name = "endless"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None: ...

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        inner = super().compile(fn, example_args)
        if inner is fn:
            return fn

        def compiled(*args: Any) -> Any:
            inner(*args)
            found: list[Any] = []
            found.append(found)
            return found

        return compiled


class Patches(Misbehaving):
    """Breaks a function that the comparison relies on."""

    name = "patches"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        torch.equal = None  # type: ignore[assignment]


class Patricide(Misbehaving):
    """Kills the process that it was forked from."""

    name = "patricide"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)


WRONG = (Segfault, Abort, NativeHang, PythonHang, Hoard, Exit, Orphans, Draws, DrawsInPython, DefaultDtype, Threads,
         GradMode, Moves, Deletes, Resizes, Late, LateCrash, Endless, Patches, Patricide)  # fmt: skip
SLOW = {NativeHang, PythonHang, Hoard, Patricide, Chatter}
EACH: tuple[type[Misbehaving], ...] = (*WRONG, Chatter)


# One operator for each; the ways that cost time come last, with operators that are rare.
TRIGGERS = dict(zip(
    ("eq_", "_foreach_zero_", "tril_", "logical_or_", "_foreach_mul_", "square_", "triu_", "gt_", "remainder_",
     "bitwise_xor_", "clamp_", "abs_", "bitwise_and_", "bitwise_not_", "_foreach_neg_", "_foreach_add_",
     "logical_not_", "round_", "sign_", "_foreach_copy_", "sin_"),
    sorted(EACH, key=lambda kind: (kind in SLOW, kind.name)), strict=True))  # fmt: skip


class Mixed(Misbehaving):
    """Misbehaves in every way above, each on an operator of its own, half of them in half of the runs only."""

    name = "mixed"

    def misbehave(self, args: Sequence[torch.Tensor]) -> None: ...

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        assert isinstance(fn, Program)
        for number, (trigger, kind) in enumerate(TRIGGERS.items()):
            if holds(fn, trigger) and (number % 2 or secrets.randbelow(2)):
                return kind(trigger).compile(fn, example_args)
        return fn


def first_tensor(args: Sequence[Any]) -> torch.Tensor:
    """The first tensor among the arguments, which may be lists of some."""
    found: torch.Tensor = next(leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor))
    return found


def holds(program: Program, operator: str) -> bool:
    """Whether the program calls this operator."""
    return any(call.op.split(".")[1] == operator for call in program.calls)


def install(folder: Path) -> None:
    """Makes these targets known to processes that have `folder` on their path."""
    info = folder / "misbehaving-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving\nVersion: 1.0\n")
    known: tuple[type[Misbehaving], ...] = (*EACH, Mixed)
    points = [f"{target.name} = {target.__module__}:{target.__name__}" for target in known]
    (info / "entry_points.txt").write_text("\n".join([f"[{targets.GROUP}]", *points, ""]))
    for path in (str(folder), str(ROOT)):
        if path not in sys.path:
            sys.path.append(path)
    targets.get.cache_clear()


@contextlib.contextmanager
def known(folder: Path) -> Iterator[None]:
    """Makes these targets known, here too, for the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        install(folder)
        patch.syspath_prepend(folder)
        yield
    targets.get.cache_clear()
