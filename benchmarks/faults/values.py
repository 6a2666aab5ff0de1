"""Faults in what makes values of reads of memory: out-of-place form, forwarding, and the merging of equal calls."""

from __future__ import annotations

import msgspec

from benchmarks.faults.base import Fault
from executor.args import Arg
from executor.builder import Builder, renamed
from executor.memory_ssa import MemorySSA
from executor.passes import blend, cleanup, forward, functional, index_maps
from executor.passes.index_maps import Alignment
from executor.program import Call, Program, Value

_align, _out_of_place = index_maps.align, functional.out_of_place


def _stored_as_any_dtype(memory: MemorySSA, number: int) -> int | None:
    """`MemorySSA.stored` without its look at the dtype."""
    return _stored(memory, number, same_shape=True)


def _stored_in_any_shape(memory: MemorySSA, number: int) -> int | None:
    """`MemorySSA.stored` without its look at the shape."""
    found = _stored(memory, number, same_shape=False)
    values = memory.program.values
    return found if found is None or values[found].dtype == values[memory.accesses[number].writes[0]].dtype else None


def _stored(memory: MemorySSA, number: int, *, same_shape: bool) -> int | None:
    call, values = memory.program.calls[number], memory.program.values
    if call.op != "aten.copy_.default":
        return None
    target, source = call.operands
    plain = values[source].storage not in memory.memory
    return source if plain and (not same_shape or values[source].shape == values[target].shape) else None


def _stale_stores(program: Program) -> Program:
    """Of two stores to one value, the second stores what the first did."""
    lowered, calls = _out_of_place(program), list[Call]()
    first: dict[tuple[int, ...], Arg] = {}
    for call in lowered.calls:
        if call.op == "aten.copy_.default":
            stale = first.setdefault(call.results, call.args[1])
            calls.append(msgspec.structs.replace(call, args=(call.args[0], stale)))
        else:
            calls.append(call)
    return msgspec.structs.replace(lowered, calls=tuple(calls))


def _from_the_start(read: Value, write: Value) -> Alignment | None:
    found = _align(read, write)
    return found._replace(starts=[0] * len(found.starts)) if found is not None else None


def _step_by_step(read: Value, write: Value) -> Alignment | None:
    found = _align(read, write)
    return found._replace(axes=[axis and (axis[0], 1) for axis in found.axes]) if found is not None else None


def _same_storage(builder: Builder, call: Call) -> bool:
    target, source = (builder.values[i] for i in call.operands[:2])
    return target.storage == source.storage


def _replaced_operands(builder: Builder, call: Call, new: dict[int, int]) -> None:
    builder.calls.append(renamed(call, new))


def _direct_homes(memory: MemorySSA, new: dict[int, int]) -> tuple[Value, ...]:
    values = memory.program.values
    homes = {values[a].storage: values[b].storage for a, b in new.items() if values[a].storage != values[b].storage}
    return tuple(msgspec.structs.replace(v, storage=homes[v.storage]) if v.storage in homes else v for v in values)


FAULTS: dict[str, Fault] = {
    "forwarding without the cast": Fault(
        "A stored value is forwarded as it was before it took its target's dtype.",
        ((Builder, "cast", lambda _self, value, *_: value), (MemorySSA, "stored", _stored_as_any_dtype)),
    ),
    "forwarding without the broadcast": Fault(
        "A stored value is forwarded as it was before it took its target's shape.",
        ((Builder, "expand", lambda _self, value, *_: value), (MemorySSA, "stored", _stored_in_any_shape)),
    ),
    "offset within a written value ignored": Fault(
        "A read of a part of what was written gets the first elements of the value.",
        ((index_maps, "align", _from_the_start),),
    ),
    "step within a written value ignored": Fault(
        "A read of every second element of what was written gets neighbours.",
        ((index_maps, "align", _step_by_step),),
    ),
    "order of dimensions ignored in forwarding": Fault(
        "A read that has the shape and the first element of a write gets its value, transposed or not.",
        ((index_maps, "_same_places", lambda a, b: a.offset == b.offset),),
    ),
    "conjugation lost in forwarding": Fault(
        "A read through a conjugated or negated view gets the value as it was stored.",
        ((forward, "project", index_maps._elements), (blend, "project", index_maps._elements)),
    ),
    "results laid out like what was forwarded": Fault(
        "A call gets the forwarded operand, and its result that operand's strides instead of eager's.",
        ((Builder, "replace_operands", _replaced_operands),),
    ),
    "a copy within one storage dropped": Fault(
        "`copy_` from the storage that it writes to is taken for a copy onto itself.",
        ((functional, "_onto_itself", _same_storage),),
    ),
    "homes merged crosswise": Fault(
        "Views of copies that were merged lie on the copy that is gone, if the views were merged the other way round. "
        "This was a fault of ours.",
        ((cleanup, "_rehomed", _direct_homes),),
    ),
    "equal reads merged across a write": Fault(
        "Two calls that read the same memory are merged, though it was written in between.",
        ((cleanup, "_versions", lambda *_: ()),),
    ),
    "fresh tensors merged": Fault(
        "Two equal calls become one also where both results are returned, or one is written later.",
        ((cleanup, "_kept_apart", lambda *_: False),),
    ),
}
