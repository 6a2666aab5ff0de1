"""Turns a Python function over tensors into a `Program`, by running it once under a dispatch mode.

The function runs on guarded clones of the real inputs, laid out and aliased as they are, so views, in-place ops, offsets
and eager's own refusals are eager's. (Tracing on meta tensors would skip eager's overlap checks, and is no faster here.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from executor.accepted import check_containers, plain
from executor.args import Arg, Ref, to_arg
from executor.errors import TraceError
from executor.memory import clone, describe, dtype_name, literal
from executor.program import Inputs, Iota, Literal, Param, Program
from executor.recorder import LITERAL_LIMIT
from executor.recording import Recording


def trace(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Program:
    """The program that `fn` runs on these arguments, which are left as they are.

    Arguments are trees (lists, tuples, string-keyed dicts) of dense tensors that may share memory, numbers and None.
    Storages of up to 4096 elements keep their contents in the program, larger ones get a ramp.
    Raises `TraceError` for what cannot become a program, `DataDependentError` for `.item()` and control flow on data,
    each naming the call and the source line; `ArgumentError` for an argument that is no such tree; and whatever eager
    raises.
    """
    return Tracer(fn, args, kwargs).trace()


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


class Tracer(Recording):
    """One function, and clones of its arguments."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        contents: bool = True,
        metadata: bool = True,
    ) -> None:
        super().__init__(fn, metadata=metadata)
        self.args, self.kwargs, self._contents = args, kwargs, contents
        tensors: list[torch.Tensor] = []

        def ref(tensor: torch.Tensor) -> Ref:
            tensors.append(plain(tensor))
            return Ref(len(tensors) - 1)

        check_containers((args, kwargs))
        names = parameter_names(fn, len(args))
        self.params = [Param(name, to_arg(arg, ref)) for name, arg in zip(names, args, strict=True)]
        self.params += [Param(name, to_arg(arg, ref)) for name, arg in kwargs.items()]
        self.inputs = _inputs(tensors, contents=contents)
        # A twin becomes a tensor object of its own, so that each parameter's uses are told apart.
        memory = clone(tensors, self.inputs, twins=False)
        for tensor, value in zip(memory.tensors, self.inputs.values, strict=True):
            self.recorder.input(tensor, self.inputs.storages[value.storage])
        self.clones, self.given = memory.tensors, len(memory.tensors)

    def trace(self) -> Program:
        """Runs the function and returns its program. Raises as the module's `trace` does."""
        clones = iter(self.clones)
        args = tuple([_filled(arg, clones) for arg in self.args])
        kwargs = {name: _filled(arg, clones) for name, arg in self.kwargs.items()}
        out = self.watching(args, kwargs)
        self._check_twins()
        return self._program(self.returned(out))

    def instead(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """See `Recording.instead`. A custom function of ours is one call, unless a compiler asks: it wants what that calls."""
        custom = super().instead(func, args, kwargs)
        if custom is None or not self._contents:
            return custom
        return None if self.over else partial(self._at_once, func)

    def _at_once(self, op: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Records a call, and none of those that it makes."""
        self.over = True
        try:
            return self.record(op, args, kwargs)
        finally:
            self.over = False

    def _check_twins(self) -> None:
        """A tensor that is passed twice is two tensor objects here, of which a change would show in one."""
        for position in sorted(position for pair in self.inputs.twins for position in pair):
            if self.recorder.current(position) != position:
                raise TraceError("a tensor that is passed twice changes its shape or storage, which is not supported")

    def refused(self) -> Program:
        """The program up to and including the call that eager refused, after `trace` raised `recorder.refused`."""
        return self._program(None)

    def _program(self, outputs: Arg) -> Program:
        inputs = self.inputs
        return self.recorder.program(self.params, outputs, inputs.twins, leaves=inputs.leaves, rooted=inputs.rooted)


def parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    """Names for the first `count` positional arguments of `fn`."""
    parameters = _CALL if isinstance(fn, Program) else _parameters(fn)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "x")
    return names + [f"{rest}{i}" for i in range(count - len(names))]


def _filled(arg: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """An argument with these tensors in the place of its own, in the caller's containers: a named tuple keeps its names."""
    if isinstance(arg, torch.Tensor):
        return next(tensors)
    return (
        pytree.tree_map_only(torch.Tensor, lambda _: next(tensors), arg)
        if isinstance(arg, list | tuple | dict)
        else arg
    )


def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []


_CALL = list(inspect.signature(Program.__call__).parameters.values())[1:]  # of any program


def _inputs(tensors: Sequence[torch.Tensor], *, contents: bool) -> Inputs:
    inputs = describe(tensors, fill=False)
    first: dict[int, torch.Tensor] = {}
    for tensor, value in zip(tensors, inputs.values, strict=True):
        first.setdefault(value.storage, tensor)
    filled = [
        msgspec.structs.replace(storage, fill=_fill(first[i], storage.nbytes, contents=contents))
        for i, storage in enumerate(inputs.storages)
    ]
    return msgspec.structs.replace(inputs, storages=tuple(filled))


def _fill(tensor: torch.Tensor, nbytes: int, *, contents: bool) -> Literal | Iota:
    if contents and nbytes <= LITERAL_LIMIT * tensor.itemsize:
        return literal(tensor)
    return Iota(dtype_name(tensor.dtype))
