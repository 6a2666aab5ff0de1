"""What a compiler under test takes, so that programs are drawn within it and none fails only for being unsupported.

Only what a compiler's documentation or its own error message refuses belongs here. Wrong numbers and crashes are what
this project looks for, so they never become limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import msgspec

from executor.args import refs
from executor.facts import CONSTANT_WRITES
from executor.geometry import Overlap, overlap
from executor.program import Call, Program, Value
from executor.schema import accesses, changes_metadata
from executor.schema_fixes import SET_DATA


class Switches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a compiler takes or not, by default all of it.

    `aliased_inputs`: two inputs may lie on one storage. `overlapping_inputs`: they may also have bytes in common; the
    same tensor passed twice has. `displaced_inputs`: two on one storage may be other elements of it, or take them in another
    order; without it they differ in shape at most. `reread_inputs`: they may differ in dtype, or be conjugates of each other.
    `written_inputs_returned`: an output may lie on an input's storage that the program writes, or be an input whose metadata
    it changes. `overlapping_as_strided`: `as_strided` may give two indices of its result the same element.
    `overlapping_fills`: a number may be written to a tensor of which several indices have the same element.
    `empty_inputs`: an input may have no elements. `numbers`: a parameter may be a number. `later_calls`: a compiled
    function may be called again, on data that are laid out in another way too. `raising`: eager may refuse the last call,
    and so must the compiler. `metadata_mutation`: calls may change a tensor's shape, strides, offset or storage in place,
    as `transpose_` does; `metadata_of_inputs`: also those of an input, other than by assigning to its `data`. `gradients`:
    inputs may require grad. `rooted_inputs`: also such as are no leaves, but views of what the caller computed. `retained_graphs`:
    the caller may go backward several times. `written_results`: it may write to inputs and outputs before it goes backward, and
    what eager refuses because the backward pass needs what was written is refused.
    `none_gradients`: the gradient of a leaf that nothing flows to is None, and not zeros.
    """

    aliased_inputs: bool = True
    overlapping_inputs: bool = True
    displaced_inputs: bool = True
    reread_inputs: bool = True
    written_inputs_returned: bool = True
    overlapping_as_strided: bool = True
    overlapping_fills: bool = True
    empty_inputs: bool = True
    numbers: bool = True
    later_calls: bool = True
    raising: bool = True
    metadata_mutation: bool = True
    metadata_of_inputs: bool = True
    gradients: bool = True
    rooted_inputs: bool = True
    retained_graphs: bool = True
    written_results: bool = True
    none_gradients: bool = True


class Limits(Switches, frozen=True, kw_only=True):
    """What a compiler takes; by default everything.

    `dtypes`: names of the dtypes that inputs and results may have, but for `banned_dtypes`; None for all. `banned_ops`:
    overloads ("aten.fill_.Scalar") that it does not know. `side`: of the large squares that are drawn now and then; races on
    a GPU show only where there are more elements than it has threads at once.
    """

    dtypes: frozenset[str] | None = None
    banned_dtypes: frozenset[str] = frozenset()
    banned_ops: frozenset[str] = frozenset()
    side: int = 96

    @property
    def narrow(self) -> bool:
        """Whether some operators or dtypes are not taken."""
        return bool(self.banned_ops or self.banned_dtypes) or self.dtypes is not None

    def takes_dtype(self, name: str) -> bool:
        """Whether inputs and results may have the dtype of this name."""
        return name not in self.banned_dtypes and (self.dtypes is None or name in self.dtypes)

    def meet(self, other: Limits) -> Limits:
        """What both take."""
        switches = {name: getattr(self, name) and getattr(other, name) for name in Switches.__struct_fields__}
        known = [limits.dtypes for limits in (self, other) if limits.dtypes is not None]
        return Limits(
            **switches,
            dtypes=frozenset.intersection(*known) if known else None,
            banned_dtypes=self.banned_dtypes | other.banned_dtypes,
            banned_ops=self.banned_ops | other.banned_ops,
            side=max(self.side, other.side),
        )

    def refuse(self, program: Program) -> str | None:
        """Why the compiler does not take `program`, in words; None if it does."""
        return next(self._reasons(program), None)

    def _reasons(self, program: Program) -> Iterator[str]:
        names = dict(zip(program.inputs, _input_names(program), strict=True))
        yield from self._of_inputs(program, names)
        yield from self._of_gradients(program, names)
        if program.raises is not None and not self.raising:
            yield f"eager refuses {program.calls[-1].op}"
        if not self.written_inputs_returned:
            yield from _returned_and_written(program, names)
        yield from self._of_calls(program)
        unknown = sorted(name for name in {value.dtype for value in program.values} if not self.takes_dtype(name))
        yield from (f"dtype {name} is not supported" for name in unknown)

    def _of_calls(self, program: Program) -> Iterator[str]:
        objects = _objects(program)
        for call in program.calls:
            if call.op in self.banned_ops:
                yield f"{call.op} is not supported"
            if (
                not self.overlapping_as_strided
                and call.op in ("aten.as_strided.default", "aten.as_strided_.default")
                and _overlaps_itself(program, call)
            ):
                yield f"a result of {call.op} overlaps itself"
            if not self.overlapping_fills and call.op in CONSTANT_WRITES and _overlaps_itself(program, call):
                yield f"{call.op} fills a tensor that overlaps itself"
            if changes_metadata(call.op):
                if not self.metadata_mutation:
                    yield f"{call.op} changes a tensor's shape or storage in place"
                if not self.metadata_of_inputs and call.operands[0] in objects and call.op != SET_DATA:
                    yield f"{call.op} changes an input's shape in place"

    def _of_inputs(self, program: Program, names: dict[int, str]) -> Iterator[str]:
        for a, b in combinations(program.inputs, 2):
            first, second = program.values[a], program.values[b]
            if first.storage != second.storage:
                continue
            if not self.aliased_inputs:
                yield f"inputs {names[a]} and {names[b]} lie on one storage"
            if not self.overlapping_inputs and _overlap(first, second):
                yield f"inputs {names[a]} and {names[b]} overlap"
            if not self.displaced_inputs and displaced(first, second):
                yield f"inputs {names[a]} and {names[b]} lie in different ways on one storage"
            if not self.reread_inputs and reread(first, second):
                yield f"inputs {names[a]} and {names[b]} read one storage as different numbers"
        if not self.empty_inputs:
            yield from (f"input {names[i]} is empty" for i in program.inputs if not program.values[i].numel)
        if not self.numbers:
            numbers = [param.name for param in program.params if isinstance(param.value, int | float)]
            yield from (f"parameter {name} is a number" for name in numbers)

    def _of_gradients(self, program: Program, names: dict[int, str]) -> Iterator[str]:
        if not self.gradients:
            yield from (f"input {names[program.inputs[k]]} requires grad" for k in (*program.leaves, *program.rooted))
        if not self.rooted_inputs:
            yield from (f"input {names[program.inputs[k]]} is no leaf" for k in program.rooted)
        backward = program.backward
        if backward is not None and not self.retained_graphs and (backward.passes > 1 or backward.apart):
            yield "the caller goes backward several times"
        if backward is not None and not self.written_results and backward.written is not None:
            yield "the caller writes before it goes backward"


def _overlaps_itself(program: Program, call: Call) -> bool:
    return any(program.values[i].footprint.self_overlaps for i in call.results)


def displaced(a: Value, b: Value) -> bool:
    """Whether two values on one storage are other elements of it, or take them in another order. Shapes may differ."""
    if not (a.numel or b.numel):
        return False
    if a.itemsize == b.itemsize:
        b = msgspec.structs.replace(b, dtype=a.dtype, conj=a.conj, neg=a.neg)
    return overlap(a.footprint, b.footprint) is not Overlap.MUST_ALIAS


def reread(a: Value, b: Value) -> bool:
    """Whether two values on one storage read equal bytes as different numbers: dtypes or lazy bits differ."""
    return (a.dtype, a.conj, a.neg) != (b.dtype, b.conj, b.neg)


def _input_names(program: Program) -> Iterator[str]:
    """For each input the parameter that holds it."""
    for param in program.params:
        yield from (param.name for _ in refs(param.value))


def _overlap(a: Value, b: Value) -> bool:
    return overlap(a.footprint, b.footprint) is not Overlap.NO_ALIAS


def _objects(program: Program) -> dict[int, int]:
    """The values that are an input's tensor object, some of them under changed metadata, each with that input."""
    found = {i: i for i in program.inputs}
    for call in program.calls:
        if changes_metadata(call.op) and call.operands[0] in found:
            found.update(dict.fromkeys(call.results, found[call.operands[0]]))
    return found


def _returned_and_written(program: Program, names: dict[int, str]) -> Iterator[str]:
    written = {program.values[i].storage for call in program.calls for i in accesses(program, call).writes}
    objects = _objects(program)
    for index in refs(program.outputs):
        storage = program.values[index].storage
        if objects.get(index, index) != index:
            yield f"an output is input {names[objects[index]]}, whose metadata changes"
        if storage in written:
            owners = [name for i, name in names.items() if program.values[i].storage == storage]
            if owners:
                yield f"an output lies on the storage of input {owners[0]}, which is written"


EVERYTHING = Limits()
