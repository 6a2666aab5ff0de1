"""What a function does to a program's inputs, as data that can be compared: calls, results, memory, sharing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from executor.args import Ref, refs, rename
from executor.interpreter import flatten
from executor.memory import allocate, to_bytes, value_of
from executor.program import Program, Value
from executor.tracing import trace


def dispatched(fn: Callable[..., Any], program: Program) -> list[Any]:
    """What `fn` hands to torch's dispatcher on the program's inputs; see `calls_of`."""
    return calls_of(trace(fn, *allocate(program.entry).tensors))


def calls_of(program: Program) -> list[Any]:
    """Operators with their arguments and the geometry of operands and results, whatever the numbers of the values.

    Public factories say that their result isn't pinned; the operators themselves need not say so.
    """
    names: dict[int, int] = {}
    storages: dict[int, int] = {}

    def name(index: int) -> Ref:
        return Ref(names.setdefault(index, len(names)))

    def place(index: int) -> tuple[Ref, Value]:
        value = program.values[index]
        home = storages.setdefault(value.storage, len(storages))
        return name(index), msgspec.structs.replace(value, storage=home)

    found: list[Any] = []
    for call in program.calls:
        kwargs = [(key, rename(arg, name)) for key, arg in call.kwargs if (key, arg) != ("pin_memory", False)]
        args = [rename(arg, name) for arg in call.args]
        found.append((call.op, args, kwargs, [place(i) for i in (*call.operands, *call.results)]))
    return [*found, rename(program.outputs, name), [place(i) for i in refs(program.outputs)]]


def outcome(fn: Callable[..., Any], program: Program) -> tuple[list[Any], list[bytes]]:
    """Each output's place and elements, and every byte of the inputs' storages, after `fn` ran on fresh inputs."""
    memory = allocate(program.entry)
    outputs = flatten(fn(*memory.tensors))
    homes = {tensor.untyped_storage()._cdata: -k for k, tensor in enumerate(memory.bases)}
    found = []
    for tensor in outputs:
        home = homes.setdefault(tensor.untyped_storage()._cdata, 1 + len(homes))
        same = next((k for k, other in enumerate(memory.tensors) if other is tensor), None)
        found.append((value_of(tensor, home), to_bytes(tensor), same))
    return found, [memory.contents(k).tobytes() for k in range(len(memory.bases))]


def written_views() -> Program:
    """A program that writes through two views of one storage."""
    x = torch.arange(12.0).view(3, 4)

    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        c = a.view(12)
        c.mul_(2)
        d = b[:, 1:4:2]
        d.add_(a[0, 1], alpha=3)
        return a, d

    return trace(fn, x, x.view(3, 4))
