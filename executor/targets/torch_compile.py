"""`aot_eager` and `inductor`: torch.compile with the whole function in one graph, specialised to its inputs' shapes.

Dynamo says of some calls that it does not trace them: those that change the shape of an input ("Getting an inplace view
on a graph input is not supported"), and `resize_` of anything. `aot_eager:breaks` and `inductor:breaks` are what
torch.compile does by default with such a call: it ends a graph, runs the call in eager, and begins another.

Inputs may require grad. Two things AOTAutograd does not promise, and they are limits here. Its backward pass is one function of all
outputs, so that a leaf to which nothing flows gets zeros (autograd makes zeros of the cotangents that it has not). And a partitioner
chooses what is kept for the backward pass, so that what the caller may write in between is not what it is in eager.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch._dynamo import config, guards
from torch._dynamo.exc import Unsupported

from executor.errors import TargetError
from executor.limits import Limits
from executor.targets import torch_memory
from executor.targets.base import Target, quiet
from executor.targets.functionalize import Functionalize

# The default of 8 raises in a call that brings the ninth alias pattern; a test of many patterns needs more.
_RECOMPILE_LIMIT = 1024


_NOT_YET = ("aot_autograd() does not yet handle",)
_BROKEN = Limits(written_results=False, none_gradients=False)
_WHOLE = Limits(
    metadata_of_inputs=False,
    written_results=False,
    none_gradients=False,
    banned_ops=frozenset({"aten.resize_.default", "aten.resize_as_.default"}),
)


class TorchCompile(Target):
    """`torch.compile(fn, backend=name, fullgraph=True, dynamic=False)`; with `breaks`, in as many graphs as Dynamo makes."""

    unsafe = True

    def __init__(self, backend: str, stage: str = "", *, breaks: bool = False) -> None:
        self.name, self.about = backend, f"torch.compile with the backend {backend!r}"
        if breaks:
            self.name, self.about = f"{self.name}:breaks", f"{self.about}, and breaks of the graph"
        self.limits = _BROKEN if breaks else _WHOLE
        self._backend, self._breaks = backend, breaks
        if stage:
            self.name = stage
        self.stages: Mapping[str, Target] = self._stages() if not stage else {}

    def _stages(self) -> Mapping[str, Target]:
        """Dynamo alone, functionalization alone, AOTAutograd around it, and Inductor behind that."""
        name = self.name
        found: dict[str, Target] = {
            "dynamo": TorchCompile("eager", f"{name}/dynamo", breaks=self._breaks),
            "functionalization": Functionalize(f"{name}/functionalization"),
            "aot": TorchCompile("aot_eager", f"{name}/aot", breaks=self._breaks),
        }
        return found | ({"aot": self} if self._backend == "aot_eager" else {self._backend: self})

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:  # noqa: ARG002
        """A function that compiles when it is called; what was compiled before is forgotten."""
        torch.compiler.reset()
        jitted = torch.compile(fn, backend=self._backend, fullgraph=not self._breaks, dynamic=False)

        def compiled(*args: Any) -> Any:
            with quiet(), _settings():
                return jitted(*args)

        return compiled

    def script(self) -> list[str]:
        """See `Target.script`."""
        return [
            "import torch",
            f"compiled = torch.compile(program, backend={self._backend!r}, fullgraph={not self._breaks}, dynamic=False)",
        ]

    def refusal(self, error: BaseException) -> str | None:
        """See `Target.refusal`: what Dynamo calls unsupported, such as `out=` with gaps, or AOTAutograd does not handle yet."""
        lines = str(error).splitlines() or [""]
        said = [line for line in lines if any(text in line for text in _NOT_YET)]
        return lines[0] if isinstance(error, Unsupported) else next(iter(said), None)

    def reset(self) -> None:
        """Drops all compiled code, and what torch would keep of earlier compilations; 0.1 s, so not for each program."""
        torch.compiler.reset()
        torch_memory.release()


def aot_eager() -> TorchCompile:
    """Dynamo, AOTAutograd and its functionalization; the graph then runs op by op."""
    return TorchCompile("aot_eager")


def aot_eager_breaks() -> TorchCompile:
    """The same, where Dynamo may end a graph and begin another."""
    return TorchCompile("aot_eager", breaks=True)


def inductor_breaks() -> TorchCompile:
    """`inductor`, where Dynamo may end a graph and begin another. Raises `TargetError` as that does."""
    return inductor(breaks=True)


def inductor(*, breaks: bool = False) -> TorchCompile:
    """The same, then kernels in C++ or Triton, whose accesses out of bounds may crash the process.

    Raises `TargetError` where there is no C++ compiler.
    """
    compilers = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++"]
    if not any(map(shutil.which, compilers)):
        raise TargetError(f"Inductor needs a C++ compiler, and {' and '.join(compilers)} cannot be found: install g++")
    return TorchCompile("inductor", breaks=breaks)


@contextmanager
def _settings() -> Iterator[None]:
    """A higher recompile limit, and no timing of the guards.

    Dynamo measures how long fresh guards take, with a flush of the processor's caches before it: for the log only, yet
    16 of the 56 ms that a program of six calls took. Nothing else reads the number.
    """
    timing = mock.patch.object(guards, "profile_guard_manager", _no_timing, create=True)
    limit = config.patch(recompile_limit=_RECOMPILE_LIMIT, accumulated_recompile_limit=_RECOMPILE_LIMIT)
    with timing, limit:
        yield


def _no_timing(*_: Any) -> float:
    return 0.0
