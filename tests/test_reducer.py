"""The reducer: leaves out what can be left out, and only that."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import torch
from hypothesis import Phase, given, settings

from executor.args import Ref, refs
from executor.program import Iota, Param, Program, Storage
from executor.recorder import Recorder
from executor.tracing import trace
from executor.validate import validate, validate_geometry
from fuzz.hazards import hazards
from fuzz.reducer import reduce
from fuzz.rewriting import compact, without
from fuzz.simpler_calls import fewer_writes
from strategies.programs import programs


def test_statements_inputs_and_outputs_that_do_not_matter_go() -> None:
    def long(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        d = a + 1
        e = b.view(-1)
        e.mul_(2)
        f = d * 2
        c.neg_()
        return f, b, c

    program = trace(long, torch.ones(4), torch.ones(2, 2), torch.ones(3))
    reduced = reduce(program, lambda p: any(call.op == "aten.mul_.Tensor" for call in p.calls))
    validate(reduced)
    assert [call.op for call in reduced.calls] == ["aten.mul_.Tensor"]
    assert len(reduced.inputs) == 1
    assert len(list(refs(reduced.outputs))) == 1
    assert len(reduced.storages) == 1


def test_a_statement_goes_with_all_that_needs_it() -> None:
    program = trace(lambda a: (a.add_(1), (a * 2).neg().relu())[1], torch.ones(4))
    left = without(program, {1})
    validate(left)
    assert [call.op for call in left.calls] == ["aten.add_.Tensor"]
    assert list(refs(left.outputs)) == list(left.inputs)


def test_sizes_layouts_dtypes_and_operators_become_plain() -> None:
    def long(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(b).neg_()
        return b.t().square()

    x = torch.arange(80, dtype=torch.int64).reshape(8, 10)
    program = msgspec.structs.replace(trace(long, x[::2, 1:4], x[1:4, :4].t()))
    storages = (msgspec.structs.replace(program.storages[0], fill=Iota("int64")), *program.storages[1:])
    program = msgspec.structs.replace(program, storages=storages)
    reduced = reduce(program, lambda p: any(call.op == "aten.add_.Tensor" and len(call.operands) == 2
                                            for call in p.calls) or p == program)  # fmt: skip
    validate(reduced)
    validate_geometry(reduced)
    assert [call.op for call in reduced.calls] == ["aten.add_.Tensor"]
    assert sum(value.numel for value in reduced.entry.values) == 1
    assert {value.dtype for value in reduced.values} == {"float32"}


def test_what_eager_refuses_in_the_end_is_reduced_like_any_other() -> None:
    recorder = Recorder()
    whole = torch.ones(6, dtype=torch.bool)
    recorder.input(whole, Storage(6, Iota("bool")))
    left = recorder.call(torch.ops.aten.slice.Tensor, whole, 0, 0, 4)
    right = recorder.call(torch.ops.aten.slice.Tensor, whole, 0, 1, 5)
    recorder.call(torch.ops.aten.logical_not_.default, whole)
    with pytest.raises(RuntimeError, match="unsupported operation"):
        recorder.call(torch.ops.aten.copy_.default, left, right)
    program = recorder.program([Param("a", Ref(0))])
    reduced = reduce(program, lambda candidate: candidate.raises is not None)
    validate(reduced)
    assert [call.op for call in reduced.calls] == ["aten.slice.Tensor", "aten.copy_.default"]
    assert {value.dtype for value in reduced.values} == {"float32"}
    assert max(value.numel for value in reduced.values) < 6


def test_a_call_on_a_list_becomes_an_addition_to_one_of_it() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        torch._foreach_mul_([a, b], 2)
        return b

    program = trace(fn, torch.ones(2), torch.ones(2))
    (call,) = reduce(program, lambda p: any(call.op.startswith("aten._foreach_") for call in p.calls)).calls
    assert (call.op, len(call.operands)) == ("aten._foreach_add_.Scalar", 1)


def test_a_write_that_needs_none_becomes_a_tensor_of_its_own() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        b = a.t()
        a.add_(1)
        return a.mul_(2) + b

    program = trace(fn, torch.ones(2, 2))
    for candidate in fewer_writes(program):
        validate(candidate)
        validate_geometry(candidate)
        assert [call.op for call in candidate.calls][1] == "aten.add.Tensor"
        assert candidate.calls[2].operands == candidate.calls[1].results
        assert candidate.calls[3].operands == (*candidate.calls[1].results, candidate.calls[0].results[0])
    assert len(list(fewer_writes(program))) == 1
    assert list(fewer_writes(trace(lambda a: a.mul_(2), torch.ones(2)))) == []


def test_a_program_without_the_call_that_raises_does_not_raise() -> None:
    recorder = Recorder()
    whole = torch.ones(6)
    recorder.input(whole, Storage(24, Iota("float32")))
    recorder.call(torch.ops.aten._foreach_neg_.default, [whole])
    wide = recorder.call(torch.ops.aten.expand.default, whole, [2, 6])
    with pytest.raises(RuntimeError, match="unsupported operation"):
        recorder.call(torch.ops.aten.copy_.default, wide, whole)
    program = recorder.program([Param("a", Ref(0))])
    left = without(program, {1})
    assert left.raises is None
    validate_geometry(left)
    assert without(program, {0}).raises == program.raises


@settings(max_examples=30, deadline=None, database=None, phases=(Phase.generate,))
@given(programs())
def test_every_step_leaves_a_valid_program(program: Program) -> None:
    seen: list[Program] = []

    def fails(candidate: Program) -> bool:
        seen.append(candidate)
        return len(seen) % 2 == 0

    reduce(program, fails)
    for candidate in seen:
        validate(candidate)
        validate_geometry(candidate)


def test_a_program_from_which_nothing_can_go_stays() -> None:
    program = trace(lambda a: a.add_(1), torch.ones(2))
    assert reduce(program, lambda p: p == program) == program


def test_compact_renumbers() -> None:
    program = trace(lambda a, b: b.add_(1), torch.ones(2), torch.ones(3))
    assert compact(program) == program


def ends(program: Program, *ops: str) -> Program:
    """What is left of a program as long as it calls these operators."""
    return reduce(program, lambda p: set(ops) <= {call.op for call in p.calls})


def test_inputs_that_look_alike_become_one() -> None:
    left = ends(trace(lambda a, b: a.neg_() + b, torch.ones(2), torch.ones(2)), "aten.add.Tensor")
    assert len(left.inputs) == 1


def test_contents_written_out_become_a_ramp() -> None:
    left = ends(trace(lambda a: a.neg(), torch.tensor([5.0, 7.0, 2.0])), "aten.neg.default")
    assert left.storages[0].fill == Iota("float32")
    assert left.storages[0].nbytes == 4


def test_arguments_of_views_become_plain() -> None:
    left = ends(trace(lambda a: a[2:9:3], torch.ones(12)), "aten.slice.Tensor")
    assert left.calls[0].args[1:] == (0, 0, 0, 1)  # dimension, start, end, step


def test_offsets_become_small() -> None:
    x = torch.ones(40)
    program = trace(lambda a, b: a.add_(b), x[30:32], x[33:35])
    left = reduce(program, lambda p: len(p.inputs) == 2 and len({v.storage for v in p.entry.values}) == 1)
    assert max(value.offset for value in left.entry.values) <= 1


def test_parameters_are_named_in_order() -> None:
    def fn(x: torch.Tensor, unused: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y.t()

    left = ends(trace(fn, torch.ones(2, 3), torch.ones(2), torch.ones(3, 2)), "aten.add.Tensor", "aten.t.default")
    assert [param.name for param in left.params] == ["a", "b"][: len(left.params)]


def test_a_skeleton_is_taken_once() -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        x[0].copy_(x[1])
        y = x.clone()
        return y.sum() * x

    def writes_and_reads_part(program: Program) -> bool:
        return any(hazard.relation == "partial" and hazard.kind == "read-after-write" for hazard in hazards(program))

    left = reduce(trace(long, torch.ones(2, 2)), writes_and_reads_part)
    assert [call.op for call in left.calls] == ["aten.add_.Tensor"]
    assert len(left.inputs) == 2


ASPECTS: dict[str, Callable[[Program], object]] = {
    "statements": lambda p: len(p.calls),
    "inputs": lambda p: len(p.inputs),
    "sizes": lambda p: [value.numel for value in p.entry.values],
    "dtypes": lambda p: {value.dtype for value in p.values},
    "operators": lambda p: [call.op for call in p.calls],
}
# What changes with an aspect: without a statement there are other operators.
IMPLIED = {"statements": {"sizes", "operators"}, "inputs": {"sizes"}}


@pytest.mark.parametrize("first", ASPECTS)
def test_statements_go_before_inputs_before_sizes_before_dtypes_before_operators(first: str) -> None:
    """Where only one of them may become less, and those before may not, it is the next one that does."""

    def fn(a: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
        del unused
        return a.mul_(3).sub_(2)

    program = trace(fn, torch.arange(6), torch.arange(4))
    kept = [*ASPECTS][: [*ASPECTS].index(first)]
    changed = [set[str]()]

    def fails(candidate: Program) -> bool:
        different = {name for name, aspect in ASPECTS.items() if aspect(candidate) != aspect(program)}
        alone = different <= {first, *IMPLIED.get(first, ())} if first in different else len(different) <= 1
        if not alone or not different.isdisjoint(kept):
            return False
        changed.append(different)
        return True

    assert reduce(program, fails) != program
    assert first in next(filter(None, changed))
