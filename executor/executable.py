"""A compiled program that runs: each step made ready, every value that is no longer needed let go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from executor.args import refs, to_python
from executor.calls import prepare
from executor.memory import literal_tensor
from executor.program import Call
from executor.regions import Barrier, Region
from executor.straight import WORTH_IT, Straight

if TYPE_CHECKING:
    from executor.backends.base import Backend, Kernel
    from executor.memory_ssa import MemorySSA
    from executor.program import Program, Value
    from executor.regions import Step


class Executable:
    """Runs the steps of a program on input tensors that are laid out as its inputs are."""

    def __init__(self, program: Program, steps: list[Step], memory: MemorySSA, backend: Backend) -> None:
        self.program, self.steps = program, steps
        stores = {program.calls[i].args[0] for i in range(len(program.calls)) if memory.stored(i) is not None}
        self.copies = sum(
            isinstance(step, Call) and step.op == "aten.copy_.default" and step.args[0] in stores for step in steps
        )
        last = _last_uses(program, steps)
        self._steps: list[_Ready] = []
        self.kernels: list[tuple[Region, Kernel]] = []
        for number, step in enumerate(steps):
            if isinstance(step, Region):
                kernel = backend.compile(step)
                self.kernels.append((step, kernel))
                self._steps.append(_Ready(step, _region(step, kernel), last.get(number, ())))
            elif not isinstance(step, Barrier):
                self._steps.append(_Ready(step, prepare(step), last.get(number, ())))
        self._runs = 0
        self._straight: Callable[[Sequence[torch.Tensor]], Any] | None = None

    def run(self, inputs: Sequence[torch.Tensor]) -> Any:
        """The program's outputs; its inputs are changed as the program says."""
        if self._straight is not None:
            return self._straight(inputs)
        self._runs += 1
        if self._runs == WORTH_IT:
            self._straight = self._written_out()
        return self._interpret(inputs)

    def _interpret(self, inputs: Sequence[torch.Tensor]) -> Any:
        program = self.program
        env: list[Any] = [None] * len(program.values)
        for index, tensor in zip(program.inputs, inputs, strict=True):
            env[index] = tensor
        for index in program.constants:
            env[index] = _constant(program, index)
        for step, run, gone in self._steps:
            if isinstance(step, Region):
                for index, tensor in zip(step.outputs, run([env[v] for v in step.inputs]), strict=True):
                    env[index] = tensor
            else:
                run(env)
            for index in gone:
                env[index] = None
        return to_python(program.outputs, env)

    def _written_out(self) -> Callable[[Sequence[torch.Tensor]], Any]:
        text = Straight(self.program.inputs)
        for index in self.program.constants:
            text.value(index, partial(_constant, self.program, index))
        for step, run, gone in self._steps:
            if isinstance(step, Region):
                text.function(run, step.inputs, step.outputs)
            else:
                text.call(step)
            if gone:
                text.free(gone)
        return text.finish(self.program.outputs)


class _Ready(NamedTuple):
    """A step, what runs it (a region: from inputs to outputs; a call: on the environment), and what to let go then."""

    step: Region | Call
    run: Callable[[Any], Any]
    gone: tuple[int, ...]


def _constant(program: Program, index: int) -> torch.Tensor:
    return literal_tensor(program.storages[program.values[index].storage], program.values[index])


def _last_uses(program: Program, steps: list[Step]) -> dict[int, tuple[int, ...]]:
    """For each step the values that nobody uses after it."""
    kept = set(refs(program.outputs))
    seen: set[int] = set()
    found: dict[int, tuple[int, ...]] = {}
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        if isinstance(step, Barrier):
            continue
        used = {*step.inputs, *step.outputs} if isinstance(step, Region) else {*step.operands, *step.results}
        gone = used - seen - kept
        seen |= used
        if gone:
            found[number] = tuple(gone)
    return found


def _region(region: Region, kernel: Kernel) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """Runs a region's kernel, and lays its outputs out as eager would."""
    wanted = [(region.program.values[v], v in region.detached) for v in region.outputs]

    def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        made = kernel(inputs)
        for i, (value, detached) in enumerate(wanted):
            tensor = made[i]
            moved = tensor.stride() != value.strides or tensor.storage_offset() != value.offset
            if moved or (detached and _shares(tensor, inputs)):
                made[i] = _laid_out(tensor, value)
        return made

    return run


def _shares(tensor: torch.Tensor, inputs: list[torch.Tensor]) -> bool:
    home = tensor.untyped_storage()._cdata
    return any(other.untyped_storage()._cdata == home for other in inputs)


def _laid_out(tensor: torch.Tensor, value: Value) -> torch.Tensor:
    """A copy with the strides and offset that eager's tensor has, on memory of its own."""
    count = value.end // value.itemsize
    base = torch.empty(max(count, value.offset), dtype=tensor.dtype, device=tensor.device)
    return base.as_strided(value.shape, value.strides, value.offset).copy_(tensor)
