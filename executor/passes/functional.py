"""Out-of-place form: every in-place call becomes the computation of a new value and an `aten.copy_` into memory.

After this pass a value is never changed; memory is, and only by `copy_` and by calls that have no out-of-place form (or
whose outcome depends on the order in which elements are visited): those stay as they are and will run eagerly. What is
copied has the dtype and shape of its target already, since that is what a later read of the target sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from executor.args import Ref, refs
from executor.builder import CONTIGUOUS, Builder
from executor.facts import access, facts
from executor.geometry import Overlap, WriteKind, overlap, write_kind
from executor.memory_ssa import MemorySSA, footprint
from executor.program import Call, contiguous_strides

if TYPE_CHECKING:
    from executor.program import Program


# Memory without contents, laid out by what an operand is like: made of numbers, so that it does not wait for the operand.
_LIKE_ANOTHER = frozenset({"aten.empty_like.default", "aten.new_empty.default", "aten.new_empty_strided.default"})


def out_of_place(program: Program) -> Program:
    """The same program whose writes are copies."""
    memory = MemorySSA.of(program)
    builder = Builder(program)
    for i, call in enumerate(program.calls):
        if memory.accesses[i].writes:
            _write(builder, call, memory)
        elif call.op in _LIKE_ANOTHER:
            builder.empty(call.results[0], call.source)
        elif memory.accesses[i].address:
            builder.calls.append(call)
        elif call.op == "aten.reshape.default":
            _reshape(builder, call, changed=program.values[call.results[0]].storage in memory.memory)
        else:
            _allocate(builder, call, _changed_later(call, i, memory))
    return builder.finish()


def _changed_later(call: Call, number: int, memory: MemorySSA) -> list[int]:
    """The call's results that are fresh tensors, alone on their storage, to which the program writes later."""
    homes = [memory.program.values[r].storage for r in call.results]
    return [
        r
        for r, home in zip(call.results, homes, strict=True)
        if home in memory.memory and memory.owner.get(home) == number and homes.count(home) == 1
    ]


def _allocate(builder: Builder, call: Call, changed: list[int]) -> None:
    """Fresh tensors that are changed later: computed as values, then copied into memory of their own."""
    fresh = {r: builder.twin(r) for r in changed}
    builder.calls.append(msgspec.structs.replace(call, results=tuple(fresh.get(r, r) for r in call.results)))
    for result, value in fresh.items():
        builder.empty(result, call.source)
        builder.copy(result, value, call.source)


def _reshape(builder: Builder, call: Call, *, changed: bool) -> None:
    """A reshape that has to copy: the copy, and a view of it."""
    (operand,), (result,) = call.operands, call.results
    geometry = builder.values[operand]
    dense = msgspec.structs.replace(
        geometry, storage=builder.values[result].storage, offset=0, strides=contiguous_strides(geometry.shape)
    )
    builder.values.append(dense)
    copy = len(builder.values) - 1
    clone = Call("aten.clone.default", (Ref(operand),), CONTIGUOUS, (copy,), call.source)
    _allocate(builder, clone, [copy] if changed else [])
    builder.calls.append(Call("aten.view.default", (Ref(copy), *call.args[1:]), (), (result,), call.source))


def _write(builder: Builder, call: Call, memory: MemorySSA) -> None:
    if call.op == "aten.copy_.default" and _onto_itself(builder, call):
        return
    value = _written_value(builder, call, memory)
    if value is None:
        builder.calls.append(call)
        return
    target = access(builder.values, call).writes[0]
    geometry = builder.values[target]
    value = builder.cast(value, geometry.dtype, call.source)
    builder.copy(target, builder.expand(value, geometry.shape, call.source), call.source)


def _onto_itself(builder: Builder, call: Call) -> bool:
    """Whether a copy's source is its target, element by element: it changes nothing."""
    operands = call.operands
    target, source = (builder.values[i] for i in operands[:2])
    same = target.storage == source.storage and overlap(footprint(source), footprint(target)) is Overlap.MUST_ALIAS
    return same and call.results in ((), (operands[0],))


def _written_value(builder: Builder, call: Call, memory: MemorySSA) -> int | None:
    """Appends what computes the value that the call writes; None if that cannot be done out of place."""
    what = access(builder.values, call)
    if len(what.writes) != 1 or call.results != what.writes or _order_matters(builder, what.reads, what.writes[0]):
        return None
    target, dtype = what.writes[0], builder.values[what.writes[0]]
    if call.op == "aten.fill_.Scalar":
        return builder.full(dtype, (), call.args[1], call.source)
    if call.op == "aten.zero_.default":
        return builder.full(dtype, (), 0, call.source)
    if call.op in ("aten.copy_.default", "aten.fill_.Tensor"):
        return _loaded(builder, call, memory)
    functional = facts(call.op).functional
    if functional is None:
        return None
    out = next((name for name in facts(call.op).written if name in dict(call.kwargs)), None)
    kwargs = tuple((name, arg) for name, arg in call.kwargs if name != out)
    value = builder.emit(functional, *call.args, kwargs=kwargs, source=call.source)
    return value if _fits(builder.values[value].shape, builder.values[target].shape) else None


def _loaded(builder: Builder, call: Call, memory: MemorySSA) -> int:
    """What `copy_` reads: memory is read now, a value that never changes needs no copy."""
    source = next(i for i in refs(call.args[1]))
    geometry, target = builder.values[source], builder.values[access(builder.values, call).writes[0]]
    if geometry.dtype != target.dtype:
        return builder.cast(source, target.dtype, call.source)
    if geometry.storage in memory.memory or geometry.conj or geometry.neg:
        return builder.emit("aten.clone.default", Ref(source), source=call.source)
    return source


def _order_matters(builder: Builder, reads: tuple[int, ...], target: int) -> bool:
    """Whether eager's outcome depends on its loop order, so that only eager can say what it is."""
    values = builder.values
    home = values[target].storage
    near = [footprint(values[i]) for i in reads if values[i].storage == home and values[i] != values[target]]
    where = footprint(values[target])
    if not near and where.dense:
        return False
    return write_kind(where, near) is not WriteKind.DEFINED


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    missing = len(target) - len(shape)
    return missing >= 0 and all(n in (1, m) for n, m in zip(shape, target[missing:], strict=True))
