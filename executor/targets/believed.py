"""Memory SSA taken at its word: a program run in eager, where each read sees what the analysis says that it sees.

If the analysis is right, nothing changes. If it misses a write, finds one too many, or takes two places for one, the
result differs, whatever the passes would have made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from executor import memory_ssa
from executor.args import to_python
from executor.geometry import Overlap, index_map
from executor.interpreter import step
from executor.memory import literal_tensor, on_base
from executor.memory_ssa import MemorySSA

if TYPE_CHECKING:
    from executor.memory_ssa import Reach
    from executor.program import Program


def believed(program: Program, inputs: Sequence[torch.Tensor]) -> Any:
    """The program's outputs on these inputs, which are laid out as its own and are mutated as it says."""
    memory = MemorySSA.of(program)
    reaching = memory.reaching_writes()
    env: list[Any] = [None] * len(program.values)
    for index, tensor in zip(program.inputs, inputs, strict=True):
        env[index] = tensor
    for index in program.constants:
        env[index] = literal_tensor(program.storages[program.values[index].storage], program.values[index])
    past = _Past(program, env)
    for number, call in enumerate(program.calls):
        seen = list(env)
        for value in memory.accesses[number].reads if not memory.accesses[number].writes else ():
            if memory.is_memory(value):
                seen[value] = past.read(value, reaching.get((number, value), []))
        step(call, seen)
        for result in call.results:
            env[result] = seen[result]
        past.remember(number, memory.accesses[number].writes)
    return to_python(program.outputs, env)


class _Past:
    """The contents of storages at entry, or when they were made, and of each value when it was written."""

    def __init__(self, program: Program, env: list[Any]) -> None:
        self._program, self._env = program, env
        self._entry: dict[int, torch.Tensor] = {}
        self._written: dict[tuple[int, int], torch.Tensor] = {}
        for index in (*program.inputs, *program.constants):
            self._see(index)

    def _see(self, index: int) -> None:
        home = self._program.values[index].storage
        if home not in self._entry:
            self._entry[home] = storage_bytes(self._env[index]).clone()

    def remember(self, number: int, writes: Sequence[int]) -> None:
        """Takes note of what a call wrote, and of the storages that it made."""
        for index in self._program.calls[number].results:
            self._see(index)
        for index in writes:
            self._written[number, index] = self._env[index].clone()

    def read(self, index: int, reach: Sequence[Reach]) -> torch.Tensor:
        """What a read of a value sees if just these writes reach it."""
        values = self._program.values
        value, base = values[index], self._entry[values[index].storage].clone()
        for how, write in ((found.overlap, found.write) for found in reversed(reach)):
            written = self._written[write.call, write.value]
            if how is Overlap.PARTIAL:
                on_base(base, values[write.value]).copy_(written)
            else:  # every element that is read is one of those that were written, at these places
                places = index_map(memory_ssa.footprint(value), write.footprint)
                _fill(on_base(base, value), written.reshape(-1)[torch.from_numpy(places)])
        return on_base(base, value)


def _fill(target: torch.Tensor, elements: torch.Tensor) -> None:
    """Sets the elements of a tensor one dimension at a time where it overlaps itself: there, equal ones meet."""
    if not target.dim() or not target.numel():
        target.copy_(elements.reshape(target.shape))
        return
    for part, own in zip(target.unbind(0), elements.reshape(target.shape).unbind(0), strict=True):
        _fill(part, own.reshape(-1))


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the storage on which the tensor lies."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))
