"""`jit`: compiles a Python function over tensors that may alias, once for each layout and alias pattern it is called with.

The function is traced to a `Program`, which the pipeline compiles for a backend. A compiled function reads the globals
and closures of the Python function when it traces, not at each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch

from executor.autograd.joint import Joint, Template
from executor.autograd.node import run as differentiable
from executor.autograd.pair import Pair
from executor.autograd.relations import Relations
from executor.backends.base import Backend
from executor.backends.weak_memory import WeakMemory
from executor.errors import ArgumentError
from executor.guards import guard
from executor.pipeline import Aliases, Compilation, compile_program, uncompiled
from executor.program import Program
from executor.tracing import Tracer

Name = Literal["weak_memory", "eager", "nvfuser"]

_SCHEDULE = 3  # a seed: of the write-backs that may be early the first is and the second is not, so that small programs have both


class CacheInfo(NamedTuple):
    """How many calls found their program in the cache, and how many had to compile."""

    hits: int
    misses: int


class Compiled:
    """A compiled function: call it like the original.

    `last` is the compilation that served the last call, of its forward part where inputs require grad.
    """

    def __init__(self, fn: Callable[..., Any], backend: Name | Backend, aliases: Aliases) -> None:
        functools.update_wrapper(self, fn)
        self.backend, self.aliases = backend, aliases
        self.last: Compilation | None = None
        self._pair: Pair | None = None  # what served the last call, if its inputs required grad
        self._fn = fn
        self._cache: dict[Hashable, Compilation] = {}
        self._pairs: dict[Hashable, Pair] = {}
        self._hits = self._misses = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, its inputs mutated as it does.

        Raises what eager raises, `ArgumentError` for an argument that cannot be compiled for, and `TraceError` for a
        function that cannot become a program.
        """
        key, tensors = guard(args, kwargs)
        self._pair = None
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return self._differentiably(key, tensors, args, kwargs)
        compilation = self._cache.get(key)
        if compilation is None:
            self._misses += 1
            compilation = self._compile(self._trace(args, kwargs))
            # Whether eager refuses may depend on data (an index out of range), which is not in the key.
            if compilation.program.raises is None:
                self._cache[key] = compilation
        else:
            self._hits += 1
        self.last = compilation
        return compilation.run(tensors)

    def _differentiably(
        self, key: Hashable, tensors: Sequence[torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        relations, joint = Relations(tensors), None
        key = key, relations.key()
        pair = self._pairs.get(key)
        if pair is None:
            self._misses += 1
            joint = Joint(Template.of(self._fn, args, kwargs, relations), relations)
            try:
                joint.run()
            except Exception as error:
                if error is not joint.recorder.refused:
                    raise
                self.last = uncompiled(joint.refused())
                return self.last.run(relations.tensors)
            pair = self._pairs[key] = Pair(joint, self._compile)
        else:
            self._hits += 1
        self.last, self._pair = pair.forward, pair
        return differentiable(pair, relations, joint)

    @property
    def last_backward(self) -> Compilation | None:
        """How the last call's function goes backward: from what it went last, or else from all that it returned.

        None if no input required grad, or if going backward from all raises.
        """
        return self._pair.last if self._pair is not None else None

    def cache_info(self) -> CacheInfo:
        """Hits and misses since this function was compiled."""
        return CacheInfo(self._hits, self._misses)

    def _compile(self, program: Program) -> Compilation:
        if program.raises is not None or self.backend == "eager":
            return uncompiled(program)
        # A backend of its own for each compilation, so that its schedules don't depend on what was compiled before.
        backend = WeakMemory(_SCHEDULE) if isinstance(self.backend, str) else self.backend
        compilation = compile_program(program, backend, self.aliases)
        return backend.settled(compilation, program) if self.aliases == "auto" else compilation

    def _trace(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Program:
        tracer = Tracer(self._fn, args, kwargs, contents=False, metadata=False)
        try:
            return tracer.trace()
        except Exception as error:
            if error is not tracer.recorder.refused:
                raise
            return tracer.refused()  # it runs up to the refused call, so that the same writes precede the exception


def jit(fn: Callable[..., Any], *, backend: Name | Backend = "weak_memory", aliases: Aliases = "auto") -> Compiled:
    """Compiles `fn`, a function over trees of tensors that may share memory, numbers and None.

    `backend` is what runs the program, by name or as an object: "weak_memory" runs the compiled program under hostile
    schedules, "eager" interprets the trace, "nvfuser" makes CUDA kernels of what lies on a GPU. `aliases` says how reads of partly overwritten memory are lowered: end the
    region ("barrier"), compute them by selecting elements ("blend"), or what costs less ("auto").
    Raises `ArgumentError` for an unknown backend or mode, `TargetError` where nvFuser or a GPU is missing.
    """
    if not isinstance(backend, Backend):
        _choose("backend", backend, get_args(Name))
    _choose("aliases", aliases, get_args(Aliases))
    if backend == "nvfuser":
        from executor.backends.nvfuser import NvFuser

        backend = NvFuser()
    return Compiled(fn, backend, aliases)


def _choose(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{name} is {value!r}; it can be {' or '.join(map(repr, choices))}")
