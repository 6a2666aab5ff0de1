"""What nvFuser broadcasts in a region.

It refuses to store a value of which a dimension is broadcast over a tensor of which none is. And a value that it computes
from what it broadcast is stored by another kernel, which copies it, so that all is read before that (its pass
`segment_inplace_update`; the one on what the target is broadcast to has no part here, since the memory model refuses that).
The host does as well then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.backends.nvfuser.operators import OPERATORS, REDUCTIONS

if TYPE_CHECKING:
    from executor.memory_ssa import MemorySSA
    from executor.program import Call, Value


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
    operands = call.operands
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


def is_after_a_broadcast(memory: MemorySSA, region: set[int], v: int) -> bool:
    """Whether the region computes a value from what it broadcasts. True if in doubt."""
    values, after = memory.program.values, set[int]()  # the storages of such results
    for i in sorted(region):
        call = memory.program.calls[i]
        if any(values[v].storage in after or _is_spread(memory, call, v) for v in call.operands):
            after.update(values[r].storage for r in call.results)
    return values[v].storage in after


def _is_spread(memory: MemorySSA, call: Call, v: int) -> bool:
    """Whether an operand is broadcast for the call, or was when a view of what the region computes was taken."""
    values, maker = memory.program.values, memory.owner.get(memory.program.values[v].storage)
    if call.op in OPERATORS:
        return call.op not in REDUCTIONS
    if maker is not None and values[v].numel > max(values[r].numel for r in memory.program.calls[maker].results):
        return True
    shape, wanted = values[v].shape, values[call.results[0]].shape
    full = (1,) * (len(wanted) - len(shape)) + shape
    return any(n == 1 < m for n, m in zip(full, wanted, strict=False))
