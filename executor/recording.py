"""Records what a Python function does, by running it under a dispatch mode: each call of an ATen operator, with its source line."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from executor.accepted import check_returned
from executor.args import Arg, Ref, to_arg
from executor.errors import ArgumentError, DataDependentError, TraceError
from executor.functions import FUNCTIONS
from executor.outside import named
from executor.program import Source
from executor.recorder import Recorder
from executor.refusals import refusal
from executor.schema import changes_metadata, op_name, resolve
from executor.schema_fixes import SET_DATA

_HERE = str(Path(__file__).resolve().parent) + os.sep
_TORCH = str(Path(torch.__file__).resolve().parent) + os.sep
_LIFTS = frozenset({torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default})
_DATA_TAGS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})
# These read memory without a dispatched call, so only the function mode sees them.
_HIDDEN_READS = {
    torch.Tensor.tolist: "tolist",
    torch.Tensor.numpy: "numpy",
    torch.Tensor.__array__: "__array__",
    torch.Tensor.data_ptr: "data_ptr",
    torch.Tensor.__repr__: "__repr__",
    torch.Tensor.__format__: "__format__",
}


class Recording:
    """One function, and the recorder that fills while it runs.

    Without `metadata`, calls that change what a tensor is (`transpose_`) are refused.
    """

    def __init__(self, fn: Callable[..., Any], *, metadata: bool) -> None:
        self.fn, self.metadata = fn, metadata
        self.recorder = Recorder()
        self.recorder.name = partial(named, fn)
        self.kept: list[torch.Tensor] = []  # what autograd keeps
        self.over = False  # nothing is recorded any more, or for now
        self.given = 0  # how many of the recorder's values are inputs

    def watching(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the function returns for arguments on tensors of the recorder, while its calls are recorded."""
        functions = _Functions(self)
        # With hooks, autograd keeps tensors as they are, and makes no calls of its own to detach them. The graph must not
        # hold the recording, which holds the graph: no collector sees such a cycle.
        this = weakref.proxy(self)
        # A bound method of a proxy holds the object itself.
        pack, unpack = lambda tensor: this.pack(tensor), lambda number: this.unpack(number)  # noqa: PLW0108
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, unpack)
        with hooks, functions, _Record(self, functions):
            return self.fn(*args, **kwargs)

    def autograds_own(self, op: OpOverload, function: str) -> bool:
        """Whether autograd makes this call for itself, while this torch function runs: what `mul_` overwrites is cloned first."""
        in_place = function.endswith("_") and (function.startswith("__i") or not function.startswith("__"))
        return in_place and self.recorder.grad and op is torch.ops.aten.clone.default

    def instead(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """What is called instead of this torch function, of the same meaning, so that what it calls is recorded."""
        del args, kwargs
        custom = FUNCTIONS.get(op_name(func)) if isinstance(func, OpOverload) else None
        return None if custom is None else custom.apply

    def pack(self, tensor: torch.Tensor) -> int:
        """Keeps a tensor that autograd keeps, in its place. Returns its number."""
        self.kept.append(tensor)
        return len(self.kept) - 1

    def unpack(self, number: int) -> torch.Tensor:
        """The tensor that was kept under this number."""
        return self.kept[number]

    def recording(self) -> TorchDispatchMode:
        """A mode under which calls are recorded, those of autograd's engine too."""
        return _Record(self, _Functions(self))

    def record(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Runs and records a call. Raises `TraceError` for one that cannot be part of the program, with its source line."""
        source = _source()
        refuse(op, args, source)
        if not self.metadata and changes_metadata(op_name(op)):
            raise TraceError(
                f"{op_name(op)} at {_at(source)} changes a tensor's shape or storage in place, which is not "
                "supported; use the out-of-place view"
            )
        try:
            return self.recorder.record(op, args, kwargs, source)
        except TraceError as error:
            raise type(error)(f"{error} ({op_name(op)} at {_at(source)})") from None

    def refuse_late(
        self, error: Exception, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], start: int
    ) -> None:
        """Records the call that autograd refused before it was dispatched, if that is why this torch function raised."""
        if self.recorder.grad and self.recorder.refused is None and not self.over:
            self.over = True
            refusal(self.recorder, error, func, args, kwargs, start)

    def returned(self, out: Any) -> Arg:
        """What the function returned, as a tree. Raises `TraceError` for what a program cannot return."""
        check_returned(out)
        try:
            return to_arg(out, self._output)
        except ArgumentError as error:
            raise TraceError(f"the function returns what a program cannot: {error}") from error

    def _output(self, tensor: torch.Tensor) -> Ref:
        ref = self.recorder.ref(tensor)
        made = ref.index >= self.given
        if made and tensor.requires_grad and tensor._base is None and tensor.is_leaf:
            raise TraceError("the function returns a leaf that it makes itself, which is not supported")
        return ref


class _Record(TorchDispatchMode):
    def __init__(self, tracer: Recording, functions: _Functions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracer, self.functions = tracer, functions
        self.last: tuple[Any, object] = (None, None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self.tracer.over:
            return func(*args, **(kwargs or {}))
        if func in _LIFTS:
            out = func(*args)
            if not self.tracer.recorder.knows(out):
                self.tracer.recorder.constant(out)
            return out
        # Factories and dtype views detach what they have just made, because the recorder holds it too. That is no call
        # of the user's, and without it what a program prints traces to the same program.
        running = self.functions.running
        if func is torch.ops.aten.detach.default and self.last[0] is args[0] and self.last[1] is running is not None:
            return args[0]
        if self.tracer.autograds_own(func, self.functions.name):
            return func(*args, **(kwargs or {}))
        out = self.tracer.record(func, args, kwargs or {})
        self.last = out, running
        return out


class _Functions(TorchFunctionMode):
    """Knows which call of a torch function runs; refuses the methods that read memory without a dispatched call.

    Assigning to `Tensor.data` is no dispatched call either, and is recorded here.
    """

    def __init__(self, tracer: Recording) -> None:
        super().__init__()
        self.tracer = tracer
        self.running: object = None
        self.name = ""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not isinstance(func, OpOverload):
            _check_function(func)
            if func == _SET_DATA:  # each access makes a wrapper of its own
                return self.tracer.record(resolve(SET_DATA), args, {})
        other = self.tracer.instead(func, args, kwargs or {})
        if other is not None:
            with self:  # what it calls is called as from the user's own function
                return other(*args, **(kwargs or {}))
        before, self.running, self.name = self.running, object(), getattr(func, "__name__", "")
        start = len(self.tracer.recorder.calls)
        try:
            return func(*args, **(kwargs or {}))
        except RuntimeError as error:
            self.tracer.refuse_late(error, func, args, kwargs or {}, start)
            raise
        finally:
            self.running, self.name = before, ""


def _check_function(func: Any) -> None:
    """Raises `TraceError` for a torch function that reads or sets what no dispatched call would show."""
    if func in _HIDDEN_READS:
        raise DataDependentError(
            f"Tensor.{_HIDDEN_READS[func]} reads a tensor's contents at {_at(_source())}; "
            "a program cannot depend on data"
        )
    if func in _GRADIENTS:
        raise TraceError(
            f"the function reads or sets a tensor's `grad` at {_at(_source())}, which is not supported: pass the "
            "gradient as an argument"
        )


def refuse(op: OpOverload, args: Sequence[Any], source: Source | None) -> None:
    """Raises `TraceError` if calls of this operator cannot be part of a program, naming it and the line."""
    refused = _refused(op)
    if op is torch.ops.aten.index.Tensor and any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    ):
        refused = DataDependentError, _DATA
    if refused is not None:
        error, text = refused
        raise error(text.format(name=op_name(op), at=_at(source)))


_DATA = (
    "{name} at {at} has a result whose shape or value depends on data, which a program cannot; use torch.where or a "
    "masked write"
)


@lru_cache(maxsize=4096)
def _refused(op: OpOverload) -> tuple[type[TraceError], str] | None:
    """The error for any call of this operator, and its words; None if a call of it can be part of a program."""
    name = op_name(op)
    if name == "aten._local_scalar_dense.default":
        return DataDependentError, (
            ".item(), or a condition on a tensor, at {at} ({name}): a program cannot depend on data; use torch.where or "
            "keep the number in a tensor"
        )
    if not _DATA_TAGS.isdisjoint(op.tags) and name != "aten.index.Tensor":
        return DataDependentError, _DATA
    if torch.Tag.nondeterministic_seeded in op.tags:
        return TraceError, "{name} at {at} draws random numbers, which is not supported; pass them as an argument"
    if name.startswith("aten.set_.source_Storage"):
        return TraceError, "{name} at {at} takes a storage, which is not supported; use set_ with a tensor"
    return None


_GRAD: Any = torch.Tensor.grad
_GRADIENTS = (_GRAD.__get__, _GRAD.__set__)
_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]


def _source() -> Source | None:
    """The innermost line that belongs neither to torch nor to this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, _HERE, "<frozen")):
            return Source(file, frame.f_lineno)
        frame = frame.f_back
    return None


def _at(source: Source | None) -> str:
    return f"{source.file}:{source.line}" if source else "an unknown line"
