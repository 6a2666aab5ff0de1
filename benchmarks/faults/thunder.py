"""The assumptions of Thunder's alias pass, one fault each, in our pipeline.

Its compiler knows which arguments share a storage, renames one into the other where they have as many elements, and
orders the rest by barriers between names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from benchmarks.faults.base import UNVERIFIED, Fault, at_first
from executor import partition, pipeline
from executor.args import Ref, refs, rename
from executor.builder import Builder, renamed, sizes
from executor.memory_ssa import MemorySSA, State
from executor.passes.coalesce import coalesce
from executor.program import Param, Program, Value, contiguous_strides

_dependences, _touching, _reaching = partition.dependences, State.touching, State.reaching


def _with(program: Program, new: dict[int, int]) -> Program:
    """The program with some values replaced by others, also where calls write them."""
    calls = tuple(
        msgspec.structs.replace(renamed(call, new), results=tuple(new.get(r, r) for r in call.results))
        for call in program.calls
    )
    return msgspec.structs.replace(program, calls=calls, outputs=rename(program.outputs, lambda i: Ref(new.get(i, i))))


def _renamed_inputs(alike: Callable[[Value, Value], bool]) -> Callable[[Program], Program]:
    """Replaces each input by a reshape of the first that is like it."""

    def rewrite(program: Program) -> Program:
        builder, new = Builder(program), dict[int, int]()
        for k, later in enumerate(program.inputs):
            one = program.values[later]
            for first in program.inputs[:k]:
                other = program.values[first]
                if first not in new and later not in new and other != one and alike(other, one):
                    same = other.shape == one.shape
                    new[later] = first if same else builder.view("aten.reshape.default", first, sizes(one.shape))
        found = _with(program, new)
        builder.calls += found.calls
        return builder.finish(found.outputs) if new else program

    return rewrite


def _one_size(a: Value, b: Value) -> bool:
    return a.storage == b.storage and a.dtype == b.dtype and a.numel == b.numel


def _other_dtype(a: Value, b: Value) -> bool:
    return a.storage == b.storage and a.dtype != b.dtype and a.numel == b.numel


def _empty(a: Value, b: Value) -> bool:
    return a.numel == b.numel == 0


def _shifted(program: Program) -> Program:
    """Identical inputs become one, found by their places among all parameters, numbers included."""
    inputs, values = program.inputs, program.values
    places = [k for k, param in enumerate(program.params) for _ in refs(param.value)]
    places = places if len(places) == len(inputs) and all(_plain(param) for param in program.params) else []
    new = {
        inputs[places[b]]: inputs[places[a]]
        for b in range(len(places))
        for a in range(b)
        if values[inputs[a]] == values[inputs[b]] and places[b] < len(inputs)
    }
    return _with(program, new)


def _plain(param: Param) -> bool:
    return isinstance(param.value, Ref | int)


def _copies_are_aliases(program: Program) -> Program:
    """Uses of a copy become uses of what it is a copy of."""
    new: dict[int, int] = {}
    for call in program.calls:
        if call.op == "aten.clone.default":
            (source,) = call.operands
            if program.values[source].strides == program.values[call.results[0]].strides:
                new[call.results[0]] = new.get(source, source)
    calls = tuple(call for call in program.calls if call.op != "aten.clone.default" or call.results[0] not in new)
    return _with(msgspec.structs.replace(program, calls=calls), new)


def _broadcasts_refused(program: Program) -> Program:
    for call in program.calls:
        if call.op == "aten.copy_.default":
            target, source = (program.values[v] for v in call.operands[:2])
            if target.shape != source.shape:
                raise RuntimeError(f"copy_ of shape {source.shape} to shape {target.shape}")
    return program


def _packed(program: Program) -> Program:
    """Each store goes to as many elements in a row, from where its target begins."""
    program = coalesce(program)
    builder = Builder(program)
    for call in program.calls:
        target = program.values[call.operands[0]] if call.op == "aten.copy_.default" else None
        if target is None or target.strides == contiguous_strides(target.shape):
            builder.calls.append(call)
            continue
        flat = msgspec.structs.replace(target, strides=contiguous_strides(target.shape))
        place = builder.as_strided(call.operands[0], flat, target.offset)
        builder.copy(place, call.operands[1])
    return builder.finish()


def _known_so_far(memory: MemorySSA) -> Iterator[set[int]]:
    """A read waits for writes only through names that were used before."""
    seen: set[int] = set()
    for call, what, needed in zip(memory.program.calls, memory.accesses, _dependences(memory), strict=True):
        fresh = not what.writes and seen.isdisjoint(what.reads)
        yield {j for j in needed if not (fresh and memory.accesses[j].writes)}
        seen.update(call.operands)


FAULTS: dict[str, Fault] = {
    "inputs of one size on one storage taken for one": Fault(
        "Of two inputs that share a storage and have as many elements, the second is replaced by the first.",
        at_first(_renamed_inputs(_one_size)),
    ),
    "inputs of two dtypes taken for one": Fault(
        "Also where the second reads the bytes as another dtype.",
        at_first(_renamed_inputs(_other_dtype)),
    ),
    "empty inputs taken for one": Fault(
        "Inputs without elements have no address, and so the same one.",
        at_first(_renamed_inputs(_empty)),
    ),
    "positions of inputs shifted by a number": Fault(
        "Which inputs are one is found by position among all arguments, and applied among the tensors.",
        at_first(_shifted),
    ),
    "writes known by name": Fault(
        "A write changes the tensor that it names; what other views of its memory hold stays as it was.",
        (
            (State, "touching", lambda state, value: [w for w in _touching(state, value) if w.value == value]),
            (State, "reaching", lambda state, value: [r for r in _reaching(state, value) if r.write.value == value]),
        ),
    ),
    "names that come up later are not ordered": Fault(
        "Before a write, a barrier orders the aliases that were used so far; a view used for the first time afterwards "
        "is free to be read before the write.",
        ((partition, "dependences", _known_so_far), *UNVERIFIED),
        "barrier",
    ),
    "a copy taken for its source": Fault(
        "`clone` is left out: writes to the copy change the original, and the other way round.",
        at_first(_copies_are_aliases),
    ),
    "a write-back packs its target": Fault(
        "A store to a strided view goes to as many elements in a row, over the neighbours.",
        ((pipeline, "coalesce", _packed),),
    ),
    "a broadcasting copy refused": Fault(
        "`copy_` from another shape raises, where eager broadcasts.",
        at_first(_broadcasts_refused),
    ),
}
