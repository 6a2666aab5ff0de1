"""Inputs that lie elsewhere: apart from each other, or further back on a longer storage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import msgspec

from executor.args import Arg
from executor.geometry import Overlap, overlap
from executor.memory import fill_tensor
from executor.program import Call, Inputs, Literal, Program, Storage, itemsize
from executor.schema import accesses, effects
from fuzz.relations.base import Relation
from fuzz.rewriting import rerecord

_UNIT = 16  # bytes of the largest element, so that offsets stay whole
_LONGEST = 1 << 14  # bytes of a storage that is written out
_MOST_UNITS = 8
_PLACE = "storage_offset"  # the argument that names a place in a storage


class InputsApart(Relation):
    """Inputs that share a storage, but no element of it, get a copy of the storage each.

    Who shares memory with whom is not as before.
    """

    name = "inputs-apart"
    aliases = False

    def places(self, program: Program) -> Iterator[tuple[int, ...]]:
        """For a storage with inputs that are strangers there: for each input of the program, its group on that storage, or 0."""
        for storage in {program.values[i].storage for i in program.inputs}:
            groups = _groups(program, storage)
            if len(set(groups.values())) > 1 and _strangers(program, storage, groups):
                yield tuple(groups.get(i, 0) for i in program.inputs)

    def at(self, program: Program, place: tuple[int, ...], draw: random.Random) -> Program | None:  # noqa: ARG002 - no choice is left
        """See `Relation.at`."""
        entry = program.entry
        storages, homes, values = list(entry.storages), dict[int, int](), []
        for value, group in zip(entry.values, place, strict=True):
            if group and group not in homes:
                homes[group] = len(storages)
                storages.append(entry.storages[value.storage])
            values.append(msgspec.structs.replace(value, storage=homes[group]) if group else value)
        return rerecord(program, Inputs(tuple(storages), tuple(values), entry.twins))


def _groups(program: Program, storage: int) -> dict[int, int]:
    """For each input on the storage the number of its group, from 0: inputs that overlap or are one object have the same."""
    inputs = [i for i in program.inputs if program.values[i].storage == storage]
    group = {i: k for k, i in enumerate(inputs)}
    together = [(program.inputs[a], program.inputs[b]) for a, b in program.twins]
    together += [pair for pair in combinations(inputs, 2) if _meet(program, *pair)]
    for a, b in together:
        if a in group:
            ends = {group[a], group[b]}
            group = {i: min(ends) if k in ends else k for i, k in group.items()}
    return group


def _meet(program: Program, a: int, b: int) -> bool:
    return overlap(program.values[a].footprint, program.values[b].footprint) is not Overlap.NO_ALIAS


def _strangers(program: Program, storage: int, groups: dict[int, int]) -> bool:
    """Whether nothing that is reached from one group is written through another: `as_strided` reaches anything."""
    group, written = dict(groups), set[int]()
    for call in program.calls:
        near = [i for i in call.operands if i in group]
        group |= {i: group[near[0]] for i in call.results if program.values[i].storage == storage and i not in group}
        written.update(i for i in accesses(program, call).writes if i in group)
    return all(group[i] == group[w] or not _meet(program, i, w) for w in written for i in group)


class PaddedBase(Relation):
    """A storage of inputs is longer on both sides, and all that lies on it lies further back."""

    name = "padded-base"

    def places(self, program: Program) -> Iterator[int]:
        """The storages of inputs that are short enough to be written out."""
        if _keeps_offsets(program):
            return
        for k, storage in enumerate(program.entry.storages):
            fill = storage.fill
            if fill is not None and 0 < storage.nbytes <= _LONGEST and not storage.nbytes % itemsize(fill.dtype):
                yield k

    def at(self, program: Program, place: int, draw: random.Random) -> Program | None:
        """See `Relation.at`."""
        entry = program.entry
        before, after = (_UNIT * draw.randint(1, _MOST_UNITS) for _ in range(2))
        storages = list(entry.storages)
        storages[place] = _padded(storages[place], before, after)
        values = [
            msgspec.structs.replace(v, offset=v.offset + before // v.itemsize) if v.storage == place else v
            for v in entry.values
        ]
        (home,) = {program.values[i].storage for i, v in zip(program.inputs, values, strict=True) if v.storage == place}
        calls = tuple(_moved(program, call, home, before) for call in program.calls)
        moved = msgspec.structs.replace(program, calls=calls)
        return rerecord(moved, Inputs(tuple(storages), tuple(values), entry.twins))


def _padded(storage: Storage, before: int, after: int) -> Storage:
    """The storage between copies of its first element."""
    assert storage.fill is not None, "storages of inputs have contents"
    dtype = storage.fill.dtype
    size = itemsize(dtype)
    flat = fill_tensor(storage.fill, storage.nbytes // size).tolist()
    values = [flat[0]] * (before // size) + flat + [flat[0]] * (after // size)
    text = tuple(repr(v) if isinstance(v, complex) else v for v in values)
    return msgspec.structs.replace(storage, nbytes=storage.nbytes + before + after, fill=Literal(dtype, text))


def _moved(program: Program, call: Call, home: int, before: int) -> Call:
    """The call with the place in the storage that it names, if it names one, so many bytes further back."""
    operand = _placed(call)
    if operand is None or program.values[operand].storage != home:
        return call
    step = before // program.values[operand].itemsize
    at = effects(call.op).names.index(_PLACE)

    def further(arg: Arg) -> Arg:
        return arg + step if isinstance(arg, int) else arg

    args = tuple(further(arg) if k == at else arg for k, arg in enumerate(call.args))
    kwargs = tuple((name, further(arg) if name == _PLACE else arg) for name, arg in call.kwargs)
    return msgspec.structs.replace(call, args=args, kwargs=kwargs)


def _placed(call: Call) -> int | None:
    """The value in whose storage the call names a place, as `as_strided` does; None if it names none."""
    return call.operands[0] if _PLACE in effects(call.op).names else None


def _keeps_offsets(program: Program) -> bool:
    """Whether a fresh tensor may begin where its operand does, and a place in its storage is named: that moves unseen."""
    made = {program.values[i].storage for call in program.calls if "_scatter" in call.op for i in call.results}
    named = {program.values[i].storage for call in program.calls if (i := _placed(call)) is not None}
    return not made.isdisjoint(named)
