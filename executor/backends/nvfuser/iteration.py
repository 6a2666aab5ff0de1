"""Which dimensions of a value nvFuser takes for broadcast: it refuses to store such a value over a tensor that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.backends.nvfuser.operators import OPERATORS
from executor.facts import operand_list

if TYPE_CHECKING:
    from executor.memory_ssa import MemorySSA
    from executor.program import Value


def is_iterated(memory: MemorySSA, region: set[int], v: int) -> bool:
    """Whether all dimensions of a value of the region are iterated over. False if in doubt."""
    return all(_dims(memory, region, v, {}))


def _dims(memory: MemorySSA, region: set[int], v: int, known: dict[int, tuple[bool, ...]]) -> tuple[bool, ...]:
    """For each dimension whether it surely is."""
    if v not in known:
        value = memory.program.values[v]
        if memory.owner.get(value.storage) in region:
            known[v] = _computed(memory, region, v, known)
        else:
            known[v] = _moving(value)
    return known[v]


def _moving(value: Value) -> tuple[bool, ...]:
    return tuple(n == 1 or step != 0 for n, step in zip(value.shape, value.strides, strict=True))


def _computed(memory: MemorySSA, region: set[int], v: int, known: dict[int, tuple[bool, ...]]) -> tuple[bool, ...]:
    number = memory.maker[v]
    call, value = memory.program.calls[number], memory.program.values[v]
    operands = operand_list(call)
    found = [_dims(memory, region, operand, known) for operand in operands]
    if memory.accesses[number].address:
        return _moving(value) if all(found[0]) else (False,) * len(value.shape)
    if call.op in OPERATORS:
        return (False,) * len(value.shape)
    rank, values = len(value.shape), memory.program.values
    full = [
        (False,) * (rank - len(dims)) + tuple(one and n > 1 for one, n in zip(dims, values[v].shape, strict=True))
        for v, dims in zip(operands, found, strict=True)
    ]
    return tuple(n == 1 or any(dims[d] for dims in full) for d, n in enumerate(value.shape))
