"""Faults beside the passes: in the cache and its key, in how long values live, and in what is returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

import executor.guards
import executor.jit
from benchmarks.faults.base import Fault, Patches
from executor import executable
from executor.args import refs, to_python
from executor.executable import Executable
from executor.program import Call, Program
from executor.regions import Barrier, Region, Step
from executor.straight import Straight

_guard, _run, _call = executor.guards.guard, Executable.run, Straight.call
_HOME, _OBJECT, _STRIDES, _OFFSET = 0, 1, 3, 4  # places in a tensor's part of the key


def _key_without(*places: int) -> Patches:
    def guard(args: tuple[Any, ...], kwargs: Any) -> tuple[Any, list[torch.Tensor]]:
        key, tensors = _guard(args, kwargs)
        assert isinstance(key, tuple)
        return tuple(_less(part, places) for part in key), tensors

    return ((executor.jit, "guard", guard),)


def _less(part: Any, places: tuple[int, ...]) -> Any:
    if not isinstance(part, tuple) or len(part) != 10:
        return part
    return tuple(item for k, item in enumerate(part) if k not in places)


def _first_uses(program: Program, steps: list[Step]) -> dict[int, tuple[int, ...]]:
    """For each step the values that nobody has used before it, and that are not returned."""
    seen = set(refs(program.outputs))
    found: dict[int, tuple[int, ...]] = {}
    for number, step in enumerate(steps):
        if not isinstance(step, Barrier):
            used = set(step.inputs if isinstance(step, Region) else step.operands) - seen
            seen |= used
            found[number] = tuple(used)
    return found


def _reusing(self: Executable, inputs: Sequence[torch.Tensor]) -> Any:
    """Runs the steps; memory whose own value is no longer needed holds something else from then on."""
    env: list[Any] = [None] * len(self.program.values)
    for index, tensor in zip(self.program.inputs, inputs, strict=True):
        env[index] = tensor
    for index in self.program.constants:
        env[index] = executable._constant(self.program, index)
    given = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    for step, run, gone in self._steps:
        if isinstance(step, Region):
            for index, tensor in zip(step.outputs, run([env[v] for v in step.inputs]), strict=True):
                env[index] = tensor
        else:
            run(env)
        for tensor in [env[index] for index in gone]:
            if tensor._base is None and tensor.untyped_storage().data_ptr() not in given:
                tensor.fill_(1)
        for index in gone:
            env[index] = None
    return to_python(self.program.outputs, env)


def _returning(change: Callable[[torch.Tensor, bool], torch.Tensor]) -> Patches:
    """Changes each tensor that is returned, told whether it lies in an input's memory."""

    def run(self: Executable, inputs: Sequence[torch.Tensor]) -> Any:
        homes = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        return pytree.tree_map_only(
            torch.Tensor, lambda t: change(t, t.untyped_storage().data_ptr() in homes), _run(self, inputs)
        )

    return ((Executable, "run", run),)


def _views_as_copies(self: Executable, inputs: Sequence[torch.Tensor]) -> Any:
    out = _run(self, inputs)
    given = {id(tensor) for tensor in inputs}
    return pytree.tree_map_only(torch.Tensor, lambda t: t if id(t) in given else t.clone(), out)


def _rebuilt(tensor: torch.Tensor, inside: bool) -> torch.Tensor:  # noqa: FBT001 (of a pair that is passed on)
    return tensor.as_strided(tensor.shape, tensor.stride(), 0) if inside and tensor.storage_offset() else tensor


def _without_stores(text: Straight, call: Call) -> None:
    if call.op != "aten.copy_.default":
        _call(text, call)


FAULTS: dict[str, Fault] = {
    "cache key without the alias pattern": Fault(
        "Code is used again for inputs of the same shapes and strides, whoever shares a storage with whom.",
        _key_without(_HOME, _OBJECT, _OFFSET),
    ),
    "cache key without offsets": Fault(
        "The cache knows which inputs share a storage, but not where they lie on it. So does Thunder's.",
        _key_without(_OFFSET),
    ),
    "cache key without strides": Fault(
        "Code is used again for inputs with other strides.",
        _key_without(_STRIDES),
    ),
    "write-backs left out from the fourth call on": Fault(
        "The straight-line code that a program becomes when it runs often does not write back.",
        ((Straight, "call", _without_stores),),
    ),
    "a value let go after its first use": Fault(
        "What a step uses first is gone for the steps behind it.",
        ((executable, "_last_uses", _first_uses),),
    ),
    "memory reused while a view of it is needed": Fault(
        "Memory is given to somebody else when the value that lies on it has its last use, views of it or not.",
        ((Executable, "run", _reusing),),
    ),
    "alias returned as a copy": Fault(
        "An output that lies in an input's memory, or another output's, is a tensor of its own.",
        ((Executable, "run", _views_as_copies),),
    ),
    "results made contiguous": Fault(
        "Fresh outputs are row-major, whatever strides eager gives them.",
        _returning(lambda tensor, inside: tensor if inside else tensor.contiguous()),
    ),
    "an output is always a new object": Fault(
        "An output that is an input, or stands there twice, is a view of that tensor instead of that tensor.",
        _returning(lambda tensor, _: tensor.view_as(tensor)),
    ),
    "views returned without their offset": Fault(
        "An output that is a view of an input is made anew from its shape and strides.",
        _returning(_rebuilt),
    ),
}
