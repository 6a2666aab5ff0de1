"""A compiled program that runs: each step made ready, every value that is no longer needed let go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from executor.args import refs, to_python
from executor.calls import prepare
from executor.facts import operand_list
from executor.memory import literal_tensor
from executor.regions import Barrier, Region

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from executor.backends.base import Backend, Kernel
    from executor.memory_ssa import MemorySSA
    from executor.program import Program, Value
    from executor.regions import Step


class Executable:
    """Runs the steps of a program on input tensors that are laid out as its inputs are."""

    def __init__(self, program: Program, steps: list[Step], memory: MemorySSA, backend: Backend) -> None:
        self.program, self.steps = program, steps
        stores = {program.calls[i] for i in range(len(program.calls)) if memory.stored(i) is not None}
        self.copies = sum(step in stores for step in steps if not isinstance(step, Region | Barrier))
        self._runners: list[tuple[Callable[[list[Any]], None], tuple[int, ...]]] = []
        last = _last_uses(program, steps)
        for number, step in enumerate(steps):
            if not isinstance(step, Barrier):
                run = _region(step, backend.compile(step)) if isinstance(step, Region) else prepare(step)
                self._runners.append((run, last.get(number, ())))

    def run(self, inputs: Sequence[torch.Tensor]) -> Any:
        """The program's outputs; its inputs are changed as the program says."""
        program = self.program
        env: list[Any] = [None] * len(program.values)
        for index, tensor in zip(program.inputs, inputs, strict=True):
            env[index] = tensor
        for index in program.constants:
            env[index] = literal_tensor(program.storages[program.values[index].storage], program.values[index])
        for run, gone in self._runners:
            run(env)
            for index in gone:
                env[index] = None
        return to_python(program.outputs, env)


def _last_uses(program: Program, steps: list[Step]) -> dict[int, tuple[int, ...]]:
    """For each step the values that nobody uses after it."""
    kept = set(refs(program.outputs))
    seen: set[int] = set()
    found: dict[int, tuple[int, ...]] = {}
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        if isinstance(step, Barrier):
            continue
        used = {*step.inputs, *step.outputs} if isinstance(step, Region) else {*operand_list(step), *step.results}
        gone = used - seen - kept
        seen |= used
        if gone:
            found[number] = tuple(gone)
    return found


def _region(region: Region, kernel: Kernel) -> Callable[[list[Any]], None]:
    """Runs a region's kernel, and lays its outputs out as eager would."""
    inputs = region.inputs
    outputs = [(v, region.program.values[v], v in region.detached) for v in region.outputs]

    def run(env: list[Any]) -> None:
        tensors = [env[v] for v in inputs]
        for (v, value, detached), made in zip(outputs, kernel(tensors), strict=True):
            moved = made.stride() != value.strides or made.storage_offset() != value.offset
            env[v] = _laid_out(made, value) if moved or (detached and _shares(made, tensors)) else made

    return run


def _shares(tensor: torch.Tensor, inputs: list[torch.Tensor]) -> bool:
    home = tensor.untyped_storage()._cdata
    return any(other.untyped_storage()._cdata == home for other in inputs)


def _laid_out(tensor: torch.Tensor, value: Value) -> torch.Tensor:
    """A copy with the strides and offset that eager's tensor has, on memory of its own."""
    count = value.end // value.itemsize
    base = torch.empty(max(count, value.offset), dtype=tensor.dtype, device=tensor.device)
    return base.as_strided(value.shape, value.strides, value.offset).copy_(tensor)
