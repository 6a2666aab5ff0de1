"""Forms that a program may have, each a question to it: how its inputs lie, what it does in which order, what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, permutations

from executor.args import Ref, refs, to_python
from executor.facts import CONSTANT_WRITES, access, facts
from executor.geometry import Overlap, overlap
from executor.program import Call, Iota, Program, Value
from executor.schema import accesses


def _pairs(program: Program) -> Iterator[tuple[Value, Value]]:
    """Pairs of inputs on one storage."""
    values = [program.values[i] for i in program.inputs]
    return ((a, b) for a, b in combinations(values, 2) if a.storage == b.storage)


def _one_element(a: Value, b: Value) -> bool:
    return a.itemsize == b.itemsize and min(a.numel, b.numel) > 1 and _common(a, b) == a.itemsize


def _common(a: Value, b: Value) -> int:
    """Bytes that both have."""
    return len(set(a.footprint.byte_set().tolist()) & set(b.footprint.byte_set().tolist()))


def _interleaved(a: Value, b: Value) -> bool:
    apart = overlap(a.footprint, b.footprint) is Overlap.NO_ALIAS
    return apart and bool(a.numel and b.numel) and a.offset < b.end // b.itemsize and b.offset < a.end // a.itemsize


def _transposed(a: Value, b: Value) -> bool:
    return a != b and a.offset == b.offset and a.shape == b.shape[::-1] and a.strides == b.strides[::-1]


def _inputs(holds: Callable[[Value], bool]) -> Callable[[Program], bool]:
    return lambda program: any(holds(program.values[i]) for i in program.inputs)


def _two(holds: Callable[[Value, Value], bool]) -> Callable[[Program], bool]:
    return lambda program: any(holds(a, b) or holds(b, a) for a, b in _pairs(program))


def _how(*found: Overlap) -> Callable[[Program], bool]:
    return _two(lambda a, b: bool(a.numel and b.numel) and overlap(a.footprint, b.footprint) in found)


def _hidden_base(program: Program) -> bool:
    """Whether a storage begins with elements that no input has."""
    firsts: dict[int, int] = {}
    for i in program.inputs:
        value = program.values[i]
        start = value.offset * value.itemsize
        firsts[value.storage] = min(firsts.get(value.storage, start), start)
    return any(firsts.values())


def _written(program: Program) -> dict[int, list[int]]:
    """For each storage the calls that write it."""
    found: dict[int, list[int]] = {}
    for k, call in enumerate(program.calls):
        for v in accesses(program, call).writes:
            found.setdefault(program.values[v].storage, []).append(k)
    return found


def _returned(program: Program) -> list[int]:
    return list(refs(program.outputs))


def _view_used_after_write(program: Program) -> bool:
    """Whether a view is taken, its storage written by other means, and the view read or written then."""
    written = _written(program)
    for k, call in enumerate(program.calls):
        if not access(program.values, call).address:
            continue
        for v in call.results:
            home = program.values[v].storage
            for w in (
                w for w in written.get(home, ()) if w > k and v not in accesses(program, program.calls[w]).writes
            ):
                if any(v in later.operands for later in program.calls[w + 1 :]) or v in _returned(program):
                    return True
    return False


def _read_then_source_written(program: Program) -> bool:
    """Whether something is computed of memory, or copied, that is written then."""
    written = _written(program)
    for k, call in enumerate(program.calls):
        what = access(program.values, call)
        if not what.address and not what.writes:
            homes = {program.values[v].storage for v in what.reads}
            if any(w > k for home in homes for w in written.get(home, ())):
                return True
    return False


def _clone_between_writes(program: Program) -> bool:
    written = _written(program)
    for k, call in enumerate(program.calls):
        if call.op == "aten.clone.default":
            calls = written.get(program.values[call.operands[0]].storage, ())
            if any(w < k for w in calls) and any(w > k for w in calls):
                return True
    return False


def _write_through_view_of_view(program: Program) -> bool:
    depth: dict[int, int] = {}
    for call in program.calls:
        what = access(program.values, call)
        if what.address and call.operands:
            for v in call.results:
                depth[v] = depth.get(call.operands[0], 0) + 1
        elif any(depth.get(v, 0) > 1 for v in what.writes):
            return True
    return False


def _write_to_intermediate_view(program: Program) -> bool:
    given = {program.values[i].storage for i in program.inputs}
    views = {v for call in program.calls if access(program.values, call).address for v in call.results}
    return any(
        v in views and program.values[v].storage not in given
        for call in program.calls
        for v in accesses(program, call).writes
    )


def _dead_write(program: Program) -> bool:
    """Whether memory of the program's own is written last, and neither read afterwards nor returned."""
    homes = {program.values[i].storage for i in (*program.inputs, *_returned(program))}
    return any(home not in homes and _unread(program, calls[-1], home) for home, calls in _written(program).items())


def _unread(program: Program, last: int, home: int) -> bool:
    later = program.calls[last + 1 :]
    return not any(program.values[v].storage == home for call in later for v in call.operands)


def _unused_result(program: Program) -> bool:
    used = {v for call in program.calls for v in call.operands} | set(_returned(program))
    return any(
        not used.intersection(call.results) for call in program.calls if call.results and not facts(call.op).written
    )


def _written_unreturned_input(program: Program) -> bool:
    returned = {program.values[v].storage for v in _returned(program)}
    return any(program.values[i].storage in _written(program).keys() - returned for i in program.inputs)


def _returns_view_of_written_input(program: Program) -> bool:
    given, written = {program.values[i].storage for i in program.inputs}, _written(program)
    return any(
        v not in program.inputs and program.values[v].storage in given and program.values[v].storage in written
        for v in _returned(program)
    )


def _unfolds(holds: Callable[[int, int], bool]) -> Callable[[Program], bool]:
    """Whether windows of a size are taken at a step of which this holds."""
    return lambda program: any(
        holds(*(to_python(arg, ()) for arg in call.args[2:4]))
        for call in program.calls
        if call.op == "aten.unfold.default"
    )


def _nested(program: Program) -> bool:
    items = getattr(program.outputs, "items", ())
    return any(not isinstance(item, Ref) for item in items)


def _copied_across(program: Program) -> bool:
    return any(
        call.op == "aten.copy_.default" and len({program.values[v].dtype for v in call.operands}) > 1
        for call in program.calls
    )


def _broadcast(program: Program) -> bool:
    return any(
        call.op == "aten.copy_.default" and len({program.values[v].shape for v in call.operands}) > 1
        for call in program.calls
    )


def _lists(program: Program) -> Iterator[list[Value]]:
    """The members of lists that are written."""
    lists = (call for call in program.calls if call.op.startswith("aten._foreach_"))
    return ([program.values[v] for v in accesses(program, call).writes] for call in lists)


def _written_through(holds: Callable[[Program, Call], bool]) -> Callable[[Program], bool]:
    """Whether a call that leaves its operand as it is stands before a write to that or to its result, and a use of the other."""

    def found(program: Program) -> bool:
        written = _written(program)
        return any(
            _used_after_write(program, written, k, one, other)
            for k, call in enumerate(program.calls)
            if call.operands and call.results and holds(program, call)
            for one, other in permutations((call.operands[0], call.results[0]), 2)
        )

    return found


def _used_after_write(program: Program, written: dict[int, list[int]], number: int, one: int, other: int) -> bool:
    """Whether memory of one value is written behind a call, and the other value is used behind that."""
    first = next((w for w in written.get(program.values[one].storage, ()) if w > number), None)
    if first is None:
        return False
    return other in _returned(program) or any(other in later.operands for later in program.calls[first + 1 :])


def _same_dtype(program: Program, call: Call) -> bool:
    return program.values[call.operands[0]].dtype == program.values[call.results[0]].dtype


def _of_one(call: Call) -> bool:
    return len(call.operands) == len(call.results) == 1


_NO_OPS: Mapping[str, Callable[[Program, Call], bool]] = {
    "contiguous": lambda program, call: call.op == "aten.contiguous.default",
    "to the same dtype": lambda program, call: call.op == "aten.to.dtype" and _same_dtype(program, call),
    "dropout in evaluation": lambda program, call: call.op == "aten.dropout.default",
    "pad by 0": lambda program, call: (
        call.op == "aten.constant_pad_nd.default" and not any(to_python(call.args[1], ()))
    ),
    "stack of one": lambda program, call: call.op == "aten.stack.default" and _of_one(call),
    "cat of one": lambda program, call: call.op == "aten.cat.default" and _of_one(call),
    "split of one": lambda program, call: call.op.startswith("aten.split.") and _of_one(call),
}


def _filled_expanded(program: Program) -> bool:
    return any(
        call.op in CONSTANT_WRITES and program.values[call.operands[0]].footprint.self_overlaps
        for call in program.calls
    )


def _puts(*, accumulate: bool) -> Callable[[Program], bool]:
    return lambda program: any(
        call.op == "aten.index_put_.default" and (len(call.args) > 3 and call.args[3] is True) is accumulate
        for call in program.calls
    )


def _repeated_places(program: Program) -> bool:
    """Whether what says where values are written begins anew after some elements."""
    fills = {i: program.storages[program.values[i].storage].fill for i in program.inputs}
    repeated = {i for i, fill in fills.items() if isinstance(fill, Iota) and 0 < fill.period < program.values[i].numel}
    for call in program.calls:
        if call.op == "aten.remainder.Scalar" and to_python(call.args[1], ()) < program.values[call.results[0]].numel:
            repeated.update(call.results)
        indexed = call.op.split(".")[1].startswith(("index_", "scatter_", "put_"))
        if indexed and accesses(program, call).writes and not repeated.isdisjoint(call.operands[1:]):
            return True
    return False


def _scattered_back(program: Program) -> bool:
    """Whether a copy in which a part was replaced is copied to where it comes from."""
    made: dict[int, int] = {}
    for call in program.calls:
        homes = [program.values[v].storage for v in call.operands]
        if call.op.split(".")[1] in ("slice_scatter", "select_scatter", "diagonal_scatter"):
            made[call.results[0]] = homes[0]
        elif call.op == "aten.copy_.default" and made.get(call.operands[1]) == homes[0]:
            return True
    return False


FORMS: Mapping[str, Callable[[Program], bool]] = {
    "inputs: identical": _how(Overlap.MUST_ALIAS),
    "inputs: disjoint on one storage": _how(Overlap.NO_ALIAS),
    "inputs: nested": _how(Overlap.CONTAINED),
    "inputs: overlapping in part": _how(Overlap.PARTIAL),
    "inputs: overlapping by one element": _two(_one_element),
    "inputs: interleaved": _two(_interleaved),
    "inputs: transposed": _two(_transposed),
    "inputs: another dtype on the same bytes": _two(
        lambda a, b: a.torch_dtype.to_real() is not b.torch_dtype.to_real()
    ),
    "inputs: conjugates": _two(lambda a, b: a.conj != b.conj),
    "inputs: parts of complex numbers": _two(lambda a, b: a.torch_dtype.is_complex and not b.torch_dtype.is_complex),
    "inputs: expanded": _inputs(lambda a: any(n > 1 and not s for n, s in zip(a.shape, a.strides, strict=True))),
    "inputs: windows that overlap": _inputs(lambda a: a.footprint.self_overlaps and 0 not in a.strides),
    "inputs: empty": _inputs(lambda a: not a.numel),
    "inputs: misaligned": _inputs(lambda a: bool(a.offset * a.itemsize % 16)),
    "inputs: hidden base": _hidden_base,
    "inputs: base that begins with them": lambda program: bool(program.inputs) and not _hidden_base(program),
    "inputs: one tensor twice": lambda program: bool(program.twins),
    "a number among the parameters": lambda program: any(not isinstance(p.value, Ref) for p in program.params),
    "a view taken before a write and used after": _view_used_after_write,
    "a read, then the source is written": _read_then_source_written,
    "a clone between two writes": _clone_between_writes,
    "a write through a view of a view": _write_through_view_of_view,
    "a write to a view of what was computed": _write_to_intermediate_view,
    "a dead write": _dead_write,
    "an unused result": _unused_result,
    "a written input that is not returned": _written_unreturned_input,
    "a view of a written input is returned": _returns_view_of_written_input,
    "the same output twice": lambda program: len(set(_returned(program))) < len(_returned(program)),
    "nested outputs": _nested,
    "unfold with a step below the size": _unfolds(lambda size, step: step < size),
    "unfold with a step of the size": _unfolds(lambda size, step: step == size),
    "unfold with a step above the size": _unfolds(lambda size, step: step > size),
    "a copy with another dtype": _copied_across,
    "a copy that broadcasts": _broadcast,
    "a number written to a tensor that overlaps itself": _filled_expanded,
    "values put to distinct places": _puts(accumulate=False),
    "values added at places": _puts(accumulate=True),
    "places of which one index names one several times": _repeated_places,
    "a copy with other elements in a part of it is copied back": _scattered_back,
    "a list with members on one storage": lambda program: any(
        len({v.storage for v in members}) < len(members) for members in _lists(program)
    ),
    **{f"written through: {name}": _written_through(holds) for name, holds in _NO_OPS.items()},
    "eager refuses": lambda program: program.raises is not None,
}
