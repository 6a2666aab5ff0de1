"""Runs a program on guarded memory, in eager and compiled, so that all that can be observed afterwards is at hand."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from executor.memory import Memory
from fuzz.state import State, gpu_lost, late_errors


class Timeout(BaseException):
    """A run passed its time limit. No `Exception`, so that no compiler swallows it."""


class Endless(Exception):
    """The output of a run contains itself."""


class Interrupted(BaseException):
    """Ctrl-C, under a name that Hypothesis does not know: of a KeyboardInterrupt it makes a failure while it shrinks."""


class Run(NamedTuple):
    """What one run left behind: its memory, its output tree flattened, or the exception that it raised.

    `changed` names what the run changed beside its memory; see `Attempt`. `moved` are the positions of the inputs that lie
    elsewhere or otherwise now. Where inputs require grad, `written` are the positions of those whose version counters moved,
    and `passed` is what came of going backward (see `fuzz.gradients`).
    """

    memory: Memory
    leaves: tuple[Any, ...]
    structure: Any
    error: BaseException | None
    changed: tuple[str, ...] = ()
    moved: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    passed: Passed | None = None


class Passed(NamedTuple):
    """What a caller sees of autograd after a call.

    `states` are those of the outputs that are tensors, and of the inputs, each with its name, right after the call. `roots` are
    the positions, among outputs and then inputs, of those from which the caller went backward. `gradients` are those of the leaves by name, None for a leaf that got none; of each pass, if they were asked for by `torch.autograd.grad`.
    `error` is what going backward raised. `inexact` says that a gradient on the way was too large for its dtype, if that was watched.
    """

    states: tuple[tuple[str, str], ...] = ()
    roots: tuple[int, ...] = ()
    gradients: tuple[tuple[str, torch.Tensor | None], ...] = ()
    error: BaseException | None = None
    inexact: bool = False


def run(
    fn: Callable[..., Any], memory: Memory, arguments: Sequence[Any], seconds: float = 0, state: State | None = None
) -> Run:
    """Calls `fn` on `arguments`, whose tensors lie in `memory`. Any exception becomes part of the result. See `attempt`."""
    before, versions = _layout(memory), _versions(memory)
    out, error, changed = attempt(fn, arguments, seconds, state)
    moved, written = _differing(before, _layout(memory)), _differing(versions, _versions(memory))
    try:
        leaves, structure = pytree.tree_flatten(out)
    except RecursionError:
        leaves, structure = [], None
        error = Endless("its output is nested without end, or too deeply to be compared")
    return Run(memory, tuple(leaves), structure, error, changed, moved, written)


def _differing(before: Sequence[Any], now: Sequence[Any]) -> tuple[int, ...]:
    return tuple(k for k, (one, other) in enumerate(zip(before, now, strict=True)) if one != other)


def _versions(memory: Memory) -> list[int]:
    """The version counters of the inputs, which autograd goes by."""
    return [tensor._version for tensor in memory.tensors] if memory.leaves else []


def _layout(memory: Memory) -> list[tuple[Any, ...]]:
    """Where and how the input tensors lie, which few programs change, and whether one requires grad if none was to."""
    plain = not memory.leaves
    return [
        (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, plain and tensor.requires_grad)
        for tensor in memory.tensors
    ]


class Attempt(NamedTuple):
    """What a call returned, or None and the exception that it raised.

    `changed` names the settings of the process that the call left changed, which were put back, and the errors that it
    raised where nobody could catch them.
    """

    value: Any
    error: BaseException | None
    changed: tuple[str, ...] = ()


def attempt(
    fn: Callable[..., Any], arguments: Sequence[Any], seconds: float = 0, state: State | None = None
) -> Attempt:
    """Calls code under test. Takes at most `seconds`, if not 0. `state` is what the process's settings are now, if known."""
    state, lost, value, failure = state or State(), gpu_lost(), None, None
    with late_errors() as late:
        try:
            with quiet(), time_limit(seconds):
                value = fn(*arguments)
                if torch.cuda.is_initialized() and not lost:
                    torch.cuda.synchronize()  # errors of kernels come late
        except (KeyboardInterrupt, Interrupted):
            state.restore()
            raise
        except BaseException as error:  # noqa: BLE001 - whatever code under test raises is its result; Rust's panics are no Exception
            error.__traceback__ = None  # frames would keep every tensor of the run alive
            value, failure = None, error
    return Attempt(value, failure, (*state.restore(), *(f"late {name}" for name in late)))


def quiet() -> AbstractContextManager[object]:
    """Ignores the warnings of code under test: torch's once-only ones would fail the first run and no other."""
    return warnings.catch_warnings(action="ignore")


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
