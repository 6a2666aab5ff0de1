"""What code under test may leave changed beside its results: settings of the process, and errors that come late."""

from __future__ import annotations

import operator
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils import _device

_SECONDS_FOR_THREADS = 0.5  # how long a run waits for the threads that it started


_TORCH, _PYTHON = "torch's random numbers", "Python's random numbers"
DRAWN = frozenset({_TORCH, _PYTHON})
_CPU = torch.device("cpu")


class Setting(NamedTuple):
    """One setting of the process: how it is called, read, and put back, and when what is read now counts as unchanged."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    same: Callable[[Any, Any], bool] = operator.eq


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def gpu_lost() -> bool:
    """Waits for what runs on the GPU. Whether a kernel's fault has made it useless to this process."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _all_generators() -> tuple[torch.Generator, ...]:
    """Torch's generators, those of devices in use included."""
    used = torch.cuda.is_initialized() and not gpu_lost()
    return (torch.default_generator, *(torch.cuda.default_generators if used else ()))


def _generators() -> tuple[bytes, ...]:
    return tuple(generator.get_state().numpy().tobytes() for generator in _all_generators())


def _set_generators(states: tuple[bytes, ...]) -> None:
    for generator, state in zip(_all_generators(), states, strict=False):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _same_device(now: torch.device | None, before: torch.device | None) -> bool:
    return (now or _CPU) == (before or _CPU)


SETTINGS = (
    Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting("number of threads", torch.get_num_threads, torch.set_num_threads),
    Setting("default device", lambda: _device.CURRENT_DEVICE, torch.set_default_device, _same_device),
    Setting("deterministic algorithms", _deterministic, lambda v: torch.use_deterministic_algorithms(v[0], warn_only=v[1])),
    Setting("autocast", lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)),
    Setting("anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    Setting("matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    Setting(_TORCH, _generators, _set_generators, lambda now, before: now[: len(before)] == before[: len(now)]),
    Setting(_PYTHON, random.getstate, random.setstate),
    Setting("current folder", os.getcwd, os.chdir),
)  # fmt: skip


class State:
    """All settings as they are when this is made."""

    def __init__(self) -> None:
        self._values = [setting.read() for setting in SETTINGS]

    def restore(self) -> tuple[str, ...]:
        """Puts back the settings that have changed since, and returns their names."""
        changed = []
        for setting, value in zip(SETTINGS, self._values, strict=True):
            if not setting.same(setting.read(), value):
                setting.write(value)
                changed.append(setting.name)
        return tuple(changed)


@contextmanager
def late_errors() -> Iterator[list[str]]:
    """Collects the types of what the block raises where nobody catches it: in threads, destructors and callbacks.

    Waits a while for threads that the block started.
    """
    found: list[str] = []

    def note(unraisable: Any) -> None:
        found.append(unraisable.exc_type.__name__)

    before = frozenset(threading.enumerate())
    hooks = threading.excepthook, sys.unraisablehook
    threading.excepthook = sys.unraisablehook = note
    try:
        yield found
    finally:
        end = time.monotonic() + _SECONDS_FOR_THREADS
        for thread in frozenset(threading.enumerate()) - before:
            thread.join(max(end - time.monotonic(), 0))
        threading.excepthook, sys.unraisablehook = hooks
