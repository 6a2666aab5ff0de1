"""The strategy `programs()`: valid by construction, exact, and shrinking to a few lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample, UnsatisfiedAssumption

from executor import interpreter, memory
from executor.limits import Limits
from executor.program import Program
from executor.validate import validate, validate_geometry
from fuzz.hazards import hazards, inputs_relation
from fuzz.reducer import reduce
from strategies.dtypes import EXACT
from strategies.programs import programs

QUICK = settings(max_examples=300, deadline=None, database=None, phases=(Phase.generate,))


@QUICK
@given(programs())
def test_every_program_is_valid_and_lies_as_eager_lays_it_out(program: Program) -> None:
    validate(program)
    validate_geometry(program)


@QUICK
@given(programs())
def test_every_element_is_an_integer_that_its_dtype_holds_exactly(program: Program) -> None:
    held = memory.allocate(program.entry)
    out = interpreter.run(program, held.tensors)
    tensors = [out] if isinstance(out, torch.Tensor) else list(out)
    for tensor in (*tensors, *held.bases):
        wide = tensor.to(torch.float64)
        assert torch.equal(wide, wide.round())
        assert not tensor.numel() or float(wide.abs().max()) <= EXACT[tensor.dtype]


def test_nothing_is_rejected() -> None:
    rejected = drawn = 0

    @st.composite
    def counted(draw: Callable[[st.SearchStrategy[Program]], Program]) -> Program:
        nonlocal rejected, drawn
        try:
            program = draw(programs())
        except UnsatisfiedAssumption:
            rejected += 1
            raise
        drawn += 1
        return program

    @settings(QUICK, max_examples=500)
    @given(counted())
    def draw_all(program: Program) -> None:
        assert program.values

    draw_all()
    assert drawn >= 500
    assert rejected == 0


@QUICK
@given(programs(Limits(aliased_inputs=False)))
def test_without_aliases_each_input_has_a_storage_of_its_own(program: Program) -> None:
    homes = [program.values[i].storage for i in program.inputs]
    assert len(set(homes)) == len(homes)


@QUICK
@given(programs(Limits(banned_ops=frozenset({"aten.add_.Tensor", "aten.select.int"}), dtypes=frozenset({"int64"}))))
def test_bans_and_dtypes_are_kept(program: Program) -> None:
    assert {call.op for call in program.calls}.isdisjoint({"aten.add_.Tensor", "aten.select.int"})
    assert {program.values[i].dtype for i in program.inputs} <= {"int64"}


FUNCTIONALIZE = Limits(overlapping_inputs=False, written_inputs_returned=False)


@QUICK
@given(programs(FUNCTIONALIZE))
def test_programs_lie_within_the_limits(program: Program) -> None:
    assert FUNCTIONALIZE.refuse(program) is None


RELATIONS = ["must", "contained", "partial", "disjoint"]


@pytest.mark.parametrize("relation", RELATIONS)
def test_inputs_that_lie_so_are_found_and_shrink_to_two(relation: str) -> None:
    program = reduce(_smallest(lambda p: inputs_relation(p) == relation), lambda p: inputs_relation(p) == relation)
    assert len(program.inputs) == 2
    assert not program.calls
    assert sum(storage.nbytes for storage in program.entry.storages) <= 32


@pytest.mark.parametrize("kind", ["read-after-write", "write-after-read", "write-after-write"])
@pytest.mark.parametrize("relation", ["contained", "partial", "disjoint", "must"])
def test_hazards_are_found_and_shrink_to_three_statements(kind: str, relation: str) -> None:
    program = _smallest(lambda p: any((h.kind, h.relation) == (kind, relation) for h in hazards(p)))
    reduced = reduce(program, lambda p: any((h.kind, h.relation) == (kind, relation) for h in hazards(p)))
    validate(reduced)
    assert len(reduced.calls) <= 3
    assert len(reduced.inputs) <= 2


def _smallest(condition: Callable[[Program], bool]) -> Program:
    try:
        return find(
            programs(),
            condition,
            settings=settings(
                max_examples=4000, deadline=None, database=None, suppress_health_check=list[HealthCheck]()
            ),
        )
    except NoSuchExample:
        pytest.fail("not found in 4,000 programs")
