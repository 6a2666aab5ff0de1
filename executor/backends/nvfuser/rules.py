"""What nvFuser may be sent: rules on operators, dtypes, layouts and ranks, and on the stores that a kernel makes itself.

Each rule comes from a measured fact (see docs/nvfuser.md). What they refuse runs eagerly between the regions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.backends.nvfuser.definition import common_dtype
from executor.backends.nvfuser.dtypes import COMPLEX, NAMES, is_integral
from executor.backends.nvfuser.iteration import is_after_a_broadcast, is_iterated
from executor.backends.nvfuser.operators import OPERATORS, REDUCTIONS, arguments
from executor.backends.nvfuser.pointwise import POINTWISE, SELECTIONS
from executor.backends.nvfuser.views import is_part, squeezed, view_refusal
from executor.elements import crosses
from executor.memory_ssa import MemorySSA
from executor.program import contiguous_strides

if TYPE_CHECKING:
    from executor.partition import Partition
    from executor.program import Call, Program, Value

HIGHEST_RANK = 8
_MOVES = frozenset({"aten.clone.default", "aten.contiguous.default", "aten._to_copy.default"})


def refusal(program: Program, call: Call, device: str = "cuda") -> str | None:
    """Why nvFuser is not sent this call, which writes nothing; None if it is."""
    if call.op not in POINTWISE and call.op not in SELECTIONS and call.op not in OPERATORS:
        return f"nvFuser has nothing for {call.op}"
    memory = MemorySSA.of(program)
    operands = call.operands
    return next(
        (
            why
            for why in (
                *(_value(program, v, device) for v in (*operands, *call.results)),
                *(_operand(memory, v) for v in operands),
                _call(call, program.values),
                _idle(memory, call),
                _mixed(program, call),
            )
            if why is not None
        ),
        None,
    )


def _value(program: Program, v: int, device: str) -> str | None:
    value = program.values[v]
    home = program.storages[value.storage].device
    if home.split(":")[0] != device:
        return f"a tensor lies on {home}"
    if value.dtype not in NAMES:
        return f"nvFuser has no {value.dtype}"
    if value.conj or value.neg:
        return "a tensor is lazily conjugated or negated"
    if not value.numel:
        return "a tensor has no elements"
    return f"a tensor has {len(value.shape)} dimensions" if len(value.shape) > HIGHEST_RANK else None


def _operand(memory: MemorySSA, v: int) -> str | None:
    """Views of what calls compute are made in the region, if it is theirs."""
    program = memory.program
    owner = memory.owner.get(program.values[v].storage)
    if owner is None or memory.accesses[owner].address:
        return None
    if v in program.calls[owner].results:
        return None
    everywhere = {i for i, what in enumerate(memory.accesses) if not what.address}
    while v not in program.calls[owner].results:
        maker = program.calls[memory.maker[v]]
        operand = maker.operands[0]
        why = view_refusal(maker, program.values[operand], program.values[v])
        if why is not None:
            return why
        part = is_part(program.values[operand], program.values[v])
        if part and program.calls[owner].operands and not is_iterated(memory, everywhere, operand):
            return f"{maker.op} is a part of what nvFuser may take for broadcast, and then for another output"
        v = operand
    return None


def _call(call: Call, values: tuple[Value, ...]) -> str | None:
    if call.op in OPERATORS:
        return OPERATORS[call.op].refusal(call, arguments(call), values)
    dtypes = {values[v].dtype for v in (*call.operands, *call.results)}
    if values[call.results[0]].numel == 1:
        return f"{call.op} gives one element, which the host computes as fast"
    if call.op in _MOVES:
        return f"{call.op} between {' and '.join(sorted(dtypes))}" if len(dtypes) > 1 and dtypes & COMPLEX else None
    if call.op in SELECTIONS:
        return f"{call.op} casts to complex" if dtypes & COMPLEX and len(dtypes - {"bool"}) > 1 else None
    entry, common = POINTWISE[call.op], common_dtype(call, values)
    if _kind(common) not in entry.dtypes:
        return f"{call.op} is not taken for {common}"
    if dtypes & COMPLEX and not dtypes <= COMPLEX:
        return f"{call.op} casts to complex"
    return None


def _idle(memory: MemorySSA, call: Call) -> str | None:
    """A copy of memory that no other call of a region reads: nvFuser makes none, but hands out the memory itself."""
    values, calls = memory.program.values, memory.program.calls
    if call.op not in _MOVES or values[call.results[0]].dtype != values[call.operands[0]].dtype:
        return None
    home = values[call.results[0]].storage
    readers = [
        other
        for other, what in zip(calls, memory.accesses, strict=True)
        if other is not call and not (what.address or what.writes)
        if any(values[v].storage == home for v in other.operands)
    ]
    return None if readers else f"{call.op} is a copy, which the host makes as fast"


def _mixed(program: Program, call: Call) -> str | None:
    """NvFuser's compiler fails on reductions of one tensor that begin with different values, a sum and a maximum, say."""
    if call.op not in REDUCTIONS:
        return None
    first = next(REDUCTIONS[other.op] for other in program.calls if other.op in REDUCTIONS)
    if REDUCTIONS[call.op] == first:
        return None
    return f"{call.op} is another kind of reduction than the first one, a {first}"


def _kind(dtype: str) -> str:
    if dtype in COMPLEX:
        return "c"
    return "b" if dtype == "bool" else "i" if is_integral(dtype) else "f"


def early_refusal(found: Partition, memory: MemorySSA, store: int) -> str | None:
    """Why nvFuser's kernel may not make this write-back, which the memory model allows; None if it may."""
    values = memory.program.values
    target = memory.accesses[store].writes[0]
    geometry = values[target]
    value = memory.stored(store)
    if value is None or values[value].dtype != geometry.dtype or values[value].shape != geometry.shape:
        return "the value has another dtype or shape than its target"
    about_target = _target_refusal(geometry)
    if about_target is not None:
        return about_target
    region = {i for i, fused in enumerate(found.fused) if fused and found.levels[i] == found.levels[store]}
    if not is_iterated(memory, region, value):
        return "nvFuser may take a dimension of its value for broadcast"
    if _moves_an_input(memory, region, value):
        return "its value is an input's elements moved, which nvFuser may take for the input itself"
    if is_after_a_broadcast(memory, region, value):
        return "its value comes after a broadcast, so that nvFuser copies it by a kernel of its own"
    reads = {v for i in region for v in memory.accesses[i].reads}
    if any(v != target and values[v] != geometry and values[v].meets(geometry) for v in reads):
        return "another input of the region overlaps its target"
    return None


def _target_refusal(target: Value) -> str | None:
    if target.dtype not in NAMES or len(target.shape) > HIGHEST_RANK:
        return "nvFuser does not know its target"
    if target.numel < 2:
        return "its target has less than two elements"
    if not is_dense(squeezed(target)):
        return "its target is not dense, and nvFuser would write it as if it were"
    return None


def _moves_an_input(memory: MemorySSA, region: set[int], v: int) -> bool:
    """Whether views, copies, and reductions over dimensions of size 1 alone lead to a value from an input of the region."""
    values = memory.program.values
    while memory.owner.get(values[v].storage) in region:
        number = memory.maker[v]
        call = memory.program.calls[number]
        operands = call.operands
        moves = memory.accesses[number].address or call.op in _MOVES or call.op in REDUCTIONS
        if not operands or not moves or crosses(call, values) or values[operands[0]].dtype != values[v].dtype:
            return False
        v = operands[0]
    return True


def is_dense(value: Value) -> bool:
    """Whether its elements, in dimensions larger than 1, fill a stretch of memory in whatever order."""
    order = sorted(range(len(value.shape)), key=lambda d: -value.strides[d])
    return tuple(value.strides[d] for d in order) == contiguous_strides(tuple(value.shape[d] for d in order))
