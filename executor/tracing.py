"""Turns a Python function over tensors into a `Program`, by running it once under a dispatch mode.

The function runs on guarded clones of the real inputs, laid out and aliased as they are, so views, in-place ops, offsets
and eager's own refusals are eager's. (Tracing on meta tensors would skip eager's overlap checks, and is no faster here.)
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from executor.accepted import check_containers, check_returned, plain
from executor.args import Arg, Ref, to_arg
from executor.errors import ArgumentError, DataDependentError, TraceError
from executor.memory import clone, describe, dtype_name, literal
from executor.program import Inputs, Iota, Literal, Param, Program, Source
from executor.recorder import LITERAL_LIMIT, Recorder
from executor.schema import changes_metadata, op_name, resolve
from executor.schema_fixes import SET_DATA

_HERE = str(Path(__file__).resolve().parent) + os.sep
_TORCH = str(Path(torch.__file__).resolve().parent) + os.sep
_LIFTS = frozenset({"aten.lift_fresh.default", "aten.lift.default"})
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


def trace(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Program:
    """The program that `fn` runs on these arguments, which are left as they are.

    Arguments are trees (lists, tuples, string-keyed dicts) of dense tensors that may share memory, numbers and None.
    Storages of up to 4096 elements keep their contents in the program, larger ones get a ramp.
    Raises `TraceError` for what cannot become a program, `DataDependentError` for `.item()` and control flow on data,
    each naming the call and the source line; `ArgumentError` for an argument that is no such tree; and whatever eager
    raises.
    """
    return Tracer(fn, args, kwargs).trace()


def trace_geometry(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Program:
    """`trace` without the inputs' contents: a compiler's entry, where time counts."""
    return Tracer(fn, args, kwargs, contents=False).trace()


def trace_refused(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Program:
    """The program of a function whose last call eager refuses: `raises` is set, and there are no outputs.

    Raises `TraceError` if eager accepts the function.
    """
    tracer = Tracer(fn, args, kwargs)
    try:
        tracer.trace()
    except Exception as error:
        if error is not tracer.recorder.refused:
            raise
        return tracer.refused()
    raise TraceError(f"eager does not refuse {getattr(fn, '__name__', fn)!s}")


class Tracer:
    """One function, clones of its arguments, and the recorder that fills as it runs.

    Without `metadata`, calls that change what a tensor is (`transpose_`) are refused.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        contents: bool = True,
        metadata: bool = True,
    ) -> None:
        self.fn, self.args, self.kwargs, self.metadata = fn, args, kwargs, metadata
        tensors: list[torch.Tensor] = []

        def ref(tensor: torch.Tensor) -> Ref:
            tensors.append(plain(tensor))
            return Ref(len(tensors) - 1)

        check_containers((args, kwargs))
        names = parameter_names(fn, len(args))
        self.params = [Param(name, to_arg(arg, ref)) for name, arg in zip(names, args, strict=True)]
        self.params += [Param(name, to_arg(arg, ref)) for name, arg in kwargs.items()]
        self.inputs = _inputs(tensors, contents=contents)
        self.recorder = Recorder()
        # A twin becomes a tensor object of its own, so that each parameter's uses are told apart.
        memory = clone(tensors, twins=False)
        for tensor, value in zip(memory.tensors, self.inputs.values, strict=True):
            self.recorder.input(tensor, self.inputs.storages[value.storage])
        self.clones = memory.tensors

    def trace(self) -> Program:
        """Runs the function and returns its program. Raises as the module's `trace` does."""
        clones = iter(self.clones)
        # The caller's own containers, so that a named tuple still has its names.
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda _: next(clones), (tuple(self.args), dict(self.kwargs)))
        functions = _Functions(self)
        with functions, _Record(self, functions):
            out = self.fn(*args, **kwargs)
        self._check_twins()
        return self.recorder.program(self.params, self._returned(out), self.inputs.twins)

    def record(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
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

    def _check_twins(self) -> None:
        """A tensor that is passed twice is two tensor objects here, of which a change would show in one."""
        for position in sorted(position for pair in self.inputs.twins for position in pair):
            if self.recorder.current(position) != position:
                raise TraceError("a tensor that is passed twice changes its shape or storage, which is not supported")

    def _returned(self, out: Any) -> Arg:
        check_returned(out)
        try:
            return to_arg(out, self.recorder.ref)
        except ArgumentError as error:
            raise TraceError(f"the function returns what a program cannot: {error}") from error

    def refused(self) -> Program:
        """The program up to and including the call that eager refused, after `trace` raised `recorder.refused`."""
        return self.recorder.program(self.params, None, self.inputs.twins)


class _Record(TorchDispatchMode):
    def __init__(self, tracer: Tracer, functions: _Functions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracer, self.functions = tracer, functions
        self.last: tuple[Any, object] = (None, None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if str(func) in _LIFTS:
            out = func(*args)
            if not self.tracer.recorder.knows(out):
                self.tracer.recorder.constant(out)
            return out
        # Factories and dtype views detach what they have just made, because the recorder holds it too. That is no call
        # of the user's, and without it what a program prints traces to the same program.
        running = self.functions.running
        if func is torch.ops.aten.detach.default and self.last[0] is args[0] and self.last[1] is running is not None:
            return args[0]
        out = self.tracer.record(func, args, kwargs or {})
        self.last = out, running
        return out


class _Functions(TorchFunctionMode):
    """Knows which call of a torch function runs; refuses the methods that read memory without a dispatched call.

    Assigning to `Tensor.data` is no dispatched call either, and is recorded here.
    """

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer
        self.running: object = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _HIDDEN_READS:
            raise DataDependentError(
                f"Tensor.{_HIDDEN_READS[func]} reads a tensor's contents at {_at(_source())}; "
                "a program cannot depend on data"
            )
        if func == _SET_DATA:  # each access makes a wrapper of its own
            return self.tracer.record(resolve(SET_DATA), args, {})
        before, self.running = self.running, object()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.running = before


def refuse(op: torch._ops.OpOverload, args: Sequence[Any], source: Source | None) -> None:
    """Raises `TraceError` if calls of this operator cannot be part of a program, naming it and the line."""
    name = op_name(op)
    if name == "aten._local_scalar_dense.default":
        raise DataDependentError(
            f".item(), or a condition on a tensor, at {_at(source)} ({name}): a program cannot "
            "depend on data; use torch.where or keep the number in a tensor"
        )
    masked = name == "aten.index.Tensor" and any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    )
    if masked or (not _DATA_TAGS.isdisjoint(op.tags) and name != "aten.index.Tensor"):
        raise DataDependentError(
            f"{name} at {_at(source)} has a result whose shape or value depends on data, which a "
            "program cannot; use torch.where or a masked write"
        )
    if torch.Tag.nondeterministic_seeded in op.tags:
        raise TraceError(
            f"{name} at {_at(source)} draws random numbers, which is not supported; pass them as an argument"
        )
    if name.startswith("aten.set_.source_Storage"):
        raise TraceError(f"{name} at {_at(source)} takes a storage, which is not supported; use set_ with a tensor")


def parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    """Names for the first `count` positional arguments of `fn`."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "x")
    return names + [f"{rest}{i}" for i in range(count - len(names))]


def _inputs(tensors: Sequence[torch.Tensor], *, contents: bool) -> Inputs:
    inputs = describe(tensors, fill=False)
    first: dict[int, torch.Tensor] = {}
    for tensor, value in zip(tensors, inputs.values, strict=True):
        first.setdefault(value.storage, tensor)
    filled = [
        msgspec.structs.replace(storage, fill=_fill(first[i], storage.nbytes, contents=contents))
        for i, storage in enumerate(inputs.storages)
    ]
    return Inputs(tuple(filled), inputs.values, inputs.twins)


def _fill(tensor: torch.Tensor, nbytes: int, *, contents: bool) -> Literal | Iota:
    if contents and nbytes <= LITERAL_LIMIT * tensor.itemsize:
        return literal(tensor)
    return Iota(dtype_name(tensor.dtype))


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
