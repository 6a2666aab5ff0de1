"""What is put under test: a function or program, and the ways in which it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from executor import interpreter, memory, printing
from executor.accepted import plain
from executor.args import to_python
from executor.memory import Memory
from executor.program import Backward, Inputs, Program
from executor.schema import accesses, changes_metadata
from executor.tracing import Tracer
from fuzz.runs import attempt


@dataclass(frozen=True)
class Way:
    """One way to call a function: `build` makes fresh memory and the arguments that lie in it.

    `mixed` are the storages that hold elements of several dtypes, so that only their bytes can be compared.
    """

    build: Callable[[], tuple[Memory, list[Any]]]
    mixed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Subject:
    """A function to compile, the same for eager to run, its program if it has one, and the calls to make in order.

    `backward` is how the caller goes backward after each call, if inputs require grad.
    """

    fn: Callable[..., Any]
    reference: Callable[..., Any]
    program: Program | None
    ways: tuple[Way, ...]
    backward: Backward | None = None


def partly_written(program: Program | None) -> bool:
    """Whether eager refuses the program for a write to a tensor that overlaps itself: memory may hold part of it."""
    if program is None or program.raises is None:
        return False
    return any(program.values[i].footprint.self_overlaps for i in accesses(program, program.calls[-1]).writes)


def of_program(program: Program, calls: Sequence[Inputs] = (), *, source: bool = True) -> Subject:
    """A program under test; with `source`, as a Python function that has source text of its own."""
    fn = printing.load(program) if source else program
    ways = tuple(_way(program, inputs) for inputs in (program.entry, *calls))
    return Subject(fn, lambda *args: interpreter.call(program, args, {}), program, ways, program.backward)


def _way(program: Program, inputs: Inputs) -> Way:
    guarded = not _resizes(program)

    def build() -> tuple[Memory, list[Any]]:
        held = memory.allocate(inputs, guarded=guarded)
        env: list[Any] = [None] * len(program.values)
        for index, tensor in zip(program.inputs, held.tensors, strict=True):
            env[index] = tensor
        return held, [to_python(param.value, env) for param in program.params]

    return Way(build, mixed_storages(program, inputs))


def _resizes(program: Program) -> bool:
    """Whether tensors may be resized: then storages must be such as torch can resize."""
    return any(changes_metadata(call.op) for call in program.calls)


def mixed_storages(program: Program, inputs: Inputs) -> frozenset[int]:
    """The storages of `inputs` on which the program has values of several dtypes: only their bytes can be compared.

    Complex numbers and their parts are of one: then 0.0 equals -0.0, which eager makes of a complex 0 or not as it likes.
    """
    found = set()
    for k in range(len(inputs.storages)):
        held = [index for index, value in zip(program.inputs, inputs.values, strict=True) if value.storage == k]
        homes = {program.values[index].storage for index in held}
        if len({value.torch_dtype.to_real() for value in program.values if value.storage in homes}) > 1:
            found.add(k)
    return frozenset(found)


def of_function(fn: Callable[..., Any], args: Sequence[Any]) -> Subject:
    """A Python function under test, with arguments that are cloned by storage for each run.

    Raises `TraceError` for a tensor that cannot be cloned so: one that requires grad, or is not dense.
    """
    leaves, structure = pytree.tree_flatten(list(args))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    originals = [plain(leaves[k]) for k in places]

    program = _traced(fn, args)
    guarded = program is None or not _resizes(program)

    def build() -> tuple[Memory, list[Any]]:
        held = memory.clone(originals, guarded=guarded)
        filled = list(leaves)
        for k, tensor in zip(places, held.tensors, strict=True):
            filled[k] = tensor
        return held, pytree.tree_unflatten(filled, structure)

    return Subject(fn, fn, program, (Way(build),))


def _traced(fn: Callable[..., Any], args: Sequence[Any]) -> Program | None:
    """The function's program, also if eager refuses its last call; None if no program can hold it."""
    tracer = attempt(Tracer, (fn, args, {})).value
    if tracer is None:
        return None
    program: Program | None
    program, error, _ = attempt(tracer.trace, ())
    return tracer.refused() if error is not None and error is tracer.recorder.refused else program
