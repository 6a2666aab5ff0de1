"""Compilers for CUDA as targets: programs are drawn for the CPU, their inputs are moved to the GPU and back.

The copies have the same offsets, strides and shared storages, so a compiler sees the same layouts. Writes out of bounds
that stay within a storage show; beside a storage there are no guards on a GPU.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import torch

from executor.args import Arg, Device, Dict, List, Tuple
from executor.backends.nvfuser import NvFuser
from executor.backends.nvfuser.loading import nvfuser
from executor.errors import TargetError
from executor.limits import Limits
from executor.program import Program
from executor.targets import moved
from executor.targets.base import Target
from executor.targets.moved import Moved
from executor.targets.pipeline import Pipeline
from executor.targets.thunder import Thunder

DEVICE = "cuda:0"
# Inputs are copies of the caller's, so that no gradient flows; the large squares are more than a wave of threads.
# CUDA has no matrix products of integers.
_PRODUCTS = frozenset(f"aten.{name}_.default" for name in ("addmm", "addmv", "addbmm", "baddbmm"))
_WITHOUT = Limits(gradients=False, side=2048, banned_ops=_PRODUCTS)
# The source of a function is written for the CPU, where this makes its tensors.
_WITH_SOURCE = msgspec.structs.replace(_WITHOUT, banned_ops=_PRODUCTS | {"aten.arange.default"})
MOST_FUSIONS = 8  # regions of a program that are told apart when one of them is to blame


class OnCuda(Target):
    """A target whose functions run on the GPU. Raises `TargetError` where there is none, or no nvFuser."""

    unsafe = True

    def __init__(self, inner: Target, about: str) -> None:
        nvfuser()
        self.name, self.about = inner.name, about
        self.limits = inner.limits.meet(_WITH_SOURCE if inner.needs_source else _WITHOUT)
        self.needs_source, self.fine_stages = inner.needs_source, inner.fine_stages
        self._inner = inner
        # Stages that run on the CPU stay there; one that is the whole compiler is this target.
        self.stages: Mapping[str, Target] = {
            name: self if stage is inner else stage for name, stage in inner.stages.items()
        }

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        """A function that takes CPU tensors."""
        return Moved(self._inner.compile(placed(fn, DEVICE) if isinstance(fn, Program) else fn, example_args), DEVICE)

    def metrics(self, compiled: Callable[..., Any]) -> dict[str, int]:
        """The compiler's own counts."""
        return self._inner.metrics(compiled.inner) if isinstance(compiled, Moved) else {}

    def tally(self) -> dict[str, int]:
        """The inner target's own."""
        return self._inner.tally()

    def versions(self) -> dict[str, str]:
        """With nvFuser's version, and the GPU's name."""
        return {**self._inner.versions(), "nvfuser": str(nvfuser().version()), "gpu": torch.cuda.get_device_name()}

    def script(self) -> list[str]:
        """See `Target.script`."""
        text = inspect.getsource(moved).split("import annotations")[1].strip().splitlines()
        return [*self._inner.script(), *text, f"compiled = Moved(compiled, {DEVICE!r})"]

    def refusal(self, error: BaseException) -> str | None:
        """See `Target.refusal`."""
        return self._inner.refusal(error)

    def reset(self) -> None:
        """See `Target.reset`."""
        self._inner.reset()


class _Thunder(Thunder):
    """Thunder, which its script helps to find nvFuser."""

    def script(self) -> list[str]:
        """See `Target.script`."""
        bridge = "sys.modules.setdefault('nvfuser', nvfuser_direct)  # where Thunder looks for it"
        return ["import sys", "import nvfuser_direct", bridge, *super().script()]


def placed(program: Program, device: str) -> Program:
    """The same program on another device: its storages, and what its calls allocate."""

    def moved_arg(arg: Arg) -> Arg:
        if isinstance(arg, Device):
            return Device(device)
        if isinstance(arg, List):
            return List(tuple(map(moved_arg, arg.items)))
        if isinstance(arg, Tuple):
            return Tuple(tuple(map(moved_arg, arg.items)))
        return Dict(tuple((key, moved_arg(item)) for key, item in arg.items)) if isinstance(arg, Dict) else arg

    calls = tuple(
        msgspec.structs.replace(
            call,
            args=tuple(map(moved_arg, call.args)),
            kwargs=tuple((name, moved_arg(arg)) for name, arg in call.kwargs),
        )
        for call in program.calls
    )
    storages = tuple(msgspec.structs.replace(storage, device=device) for storage in program.storages)
    return msgspec.structs.replace(program, calls=calls, storages=storages)


def pipeline() -> OnCuda:
    """Our compiler with nvFuser."""
    about = "our compiler, its regions as nvFuser kernels on the GPU"
    return OnCuda(Pipeline("pipeline:nvfuser", NvFuser()), about)


def validated() -> OnCuda:
    """The same, with nvFuser's evaluation on the host as a second oracle."""
    about = "the same, each kernel compared with nvFuser's own evaluation on the host"
    return OnCuda(Pipeline("pipeline:nvfuser:validated", NvFuser(validate=True)), about)


def thunder() -> OnCuda:
    """Thunder with nvFuser, its default on CUDA tensors."""
    # Thunder 0.2.6 takes a function from a module that nvFuser has given up, and that this one replaces.
    sys.modules.setdefault("nvfuser", nvfuser())
    found = _Thunder("thunder:nvfuser")
    if not importlib.import_module("thunder.executors.nvfuserex").nvfuser_available():
        raise TargetError("target 'thunder:nvfuser': Thunder does not find nvFuser, or not a version that it knows")
    whole = OnCuda(found, "Lightning Thunder with nvFuser on the GPU")
    parts = {stage: part for stage, part in whole.stages.items() if part is not whole}
    whole.stages = {**parts, **dict(_fuelled(whole.about)), "executors": whole}
    return whole


def _fuelled(about: str) -> Iterator[tuple[str, Target]]:
    """Thunder with more and more of its regions fused: the first number that goes wrong is that of the bad fusion."""
    for fuel in range(MOST_FUSIONS + 1):
        stage = f"fusion {fuel}" if fuel else "unfused"
        yield stage, OnCuda(Thunder(f"thunder:nvfuser/{stage}", fuel), about)
