"""Runs a program on guarded memory, in eager and compiled, so that all that can be observed afterwards is at hand."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from executor.memory import Memory


class Timeout(BaseException):
    """A run passed its time limit. No `Exception`, so that no compiler swallows it."""


class Interrupted(BaseException):
    """Ctrl-C, under a name that Hypothesis does not know: of a KeyboardInterrupt it makes a failure while it shrinks."""


class Run(NamedTuple):
    """What one run left behind: its memory, its output tree flattened, or the exception that it raised."""

    memory: Memory
    leaves: tuple[Any, ...]
    structure: Any
    error: BaseException | None


def run(fn: Callable[..., Any], memory: Memory, arguments: Sequence[Any], seconds: float = 0) -> Run:
    """Calls `fn` on `arguments`, whose tensors lie in `memory`. Any exception becomes part of the result."""
    out, error = attempt(fn, arguments, seconds)
    leaves, structure = pytree.tree_flatten(out)
    return Run(memory, tuple(leaves), structure, error)


def attempt(fn: Callable[..., Any], arguments: Sequence[Any], seconds: float = 0) -> tuple[Any, BaseException | None]:
    """What `fn` returns and None, or None and the exception that it raised. Takes at most `seconds`, if not 0."""
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        with quiet(), time_limit(seconds):
            return fn(*arguments), None
    except (KeyboardInterrupt, Interrupted):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever code under test raises is its result; Rust's panics are no Exception
        error.__traceback__ = None  # frames would keep every tensor of the run alive
        return None, error
    finally:  # what a run leaves changed must not decide the next one's outcome
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignores the warnings of code under test: torch's once-only ones would fail the first run and no other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `Timeout` inside the block after so many seconds; 0 means never.

    Works by a signal, so only in the main thread and for code that returns to the interpreter; elsewhere there is none.
    """
    if seconds <= 0 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise Timeout(f"no result after {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
