"""The strategy `programs()`: valid by construction, exact, and shrinking to a few lines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample, UnsatisfiedAssumption
from hypothesis.statistics import collector, describe_statistics
from torch.utils import _pytree as pytree

from executor import interpreter, memory
from executor.limits import Limits
from executor.program import Program
from executor.validate import validate, validate_geometry
from fuzz import precision
from fuzz.hazards import RELATIONS, hazards, relation
from fuzz.reducer import reduce
from fuzz.subjects import mixed_storages
from fuzz.uniform import BACKEND
from strategies.draws import Draw
from strategies.dtypes import ANYTHING
from strategies.layouts import draw_inputs
from strategies.programs import programs
from strategies.scope import Scope

QUICK = settings(max_examples=300, deadline=None, database=None, phases=(Phase.generate,))


@QUICK
@given(programs())
def test_every_program_is_valid_and_lies_as_eager_lays_it_out(program: Program) -> None:
    validate(program)
    validate_geometry(program)


@QUICK
@given(programs())
def test_every_element_is_an_integer(program: Program) -> None:
    held = memory.allocate(program.entry)
    if program.raises or _reinterprets(program):
        return  # bytes read as another dtype may be anything
    for tensor in (*_leaves(interpreter.run(program, held.tensors)), *held.bases):
        wide = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        assert torch.equal(wide.double(), wide.double().round())


@QUICK
@given(programs())
def test_arithmetic_is_exact(program: Program) -> None:
    """In double precision all numbers are the same."""
    held = memory.allocate(program.entry)
    if program.raises or _reinterprets(program) or "aten.to.dtype" in {call.op for call in program.calls}:
        return
    wide = precision.widen(held)
    exact = [interpreter.run(program, wide.tensors), interpreter.run(program, held.tensors)]
    for golden, tensor in zip(*map(_leaves, exact), strict=True):
        rounded = _HALF & {value.dtype for value in program.values}
        if tensor.is_floating_point() and not rounded:
            assert torch.equal(golden.double(), tensor.double())


def _reinterprets(program: Program) -> bool:
    """Whether bytes are read as another dtype: they may be anything then."""
    entry = program.entry
    fills = [storage.fill.dtype if storage.fill else "" for storage in entry.storages]
    if "aten.view.dtype" in {call.op for call in program.calls}:
        return True
    return any(fills[value.storage] != value.dtype for value in entry.values) or bool(mixed_storages(program, entry))


_HALF = {"float16", "bfloat16"}  # stores to these may round


def _leaves(out: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]


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


CONGRUENT = Limits(displaced_inputs=False)
SAME_NUMBERS = Limits(displaced_inputs=False, reread_inputs=False, empty_inputs=False)


@pytest.mark.parametrize("limits", [CONGRUENT, SAME_NUMBERS, Limits(reread_inputs=False)])
def test_inputs_lie_within_the_limits(limits: Limits) -> None:
    shared = 0

    @QUICK
    @given(programs(limits))
    def draw_all(program: Program) -> None:
        nonlocal shared
        assert limits.refuse(program) is None
        homes = [program.values[i].storage for i in program.inputs]
        shared += len(set(homes)) < len(homes)

    draw_all()
    assert shared > 100


def test_inputs_read_the_same_elements_as_other_numbers() -> None:
    found = {"dtype": 0, "conj": 0}

    @settings(QUICK, max_examples=500, backend=BACKEND)
    @given(st.data())
    def draw_all(data: st.DataObject) -> None:
        scope = Scope(Limits(dtypes=frozenset({"complex64", "float32", "int32"})))
        values = [scope.value(i) for i in draw_inputs(Draw(data.draw), scope, [True] * 4, rare=True).indices]
        for a, b in combinations(values, 2):
            for difference in found if a.storage == b.storage else ():
                found[difference] += getattr(a, difference) != getattr(b, difference)

    draw_all()
    assert min(found.values()) > 5, found


def _inputs_lie(program: Program, how: str) -> bool:
    """Whether this is the hardest relation between two of the inputs."""
    pairs = permutations([program.values[i] for i in program.inputs], 2)
    return max((relation(a, b) for a, b in pairs), key=RELATIONS.index, default="none") == how


@pytest.mark.parametrize("how", ["must", "contained", "partial", "disjoint"])
def test_inputs_that_lie_so_are_found_and_shrink_to_two(how: str) -> None:
    program = reduce(_smallest(lambda p: _inputs_lie(p, how)), lambda p: _inputs_lie(p, how))
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


NARROW = Limits(
    aliased_inputs=False, empty_inputs=False, numbers=False, banned_dtypes=frozenset({"bool", "int64", "float32"})
)


@QUICK
@given(programs(NARROW))
def test_programs_lie_within_narrow_limits(program: Program) -> None:
    assert NARROW.refuse(program) is None


def test_elements_lie_in_the_ranges_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    emit, looked_at = Scope.emit, 0

    def watched(scope: Scope, op: str, *args: object, **kwargs: Any) -> list[int]:
        nonlocal looked_at
        results = emit(scope, op, *args, **kwargs)
        for index in results:
            tensor, kept = scope.tensor(index), scope.range(index)
            if tensor.numel() and kept != ANYTHING:
                parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.resolve_neg()
                assert kept.low <= parts.double().min(), op
                assert parts.double().max() <= kept.high, op
                looked_at += 1
        return results

    monkeypatch.setattr(Scope, "emit", watched)

    @settings(QUICK, max_examples=1000)
    @given(programs())
    def draw_all(program: Program) -> None:
        assert program.values

    draw_all()
    assert looked_at > 2000


def test_statistics_tell_the_families_of_statements() -> None:
    @settings(max_examples=60, deadline=None, database=None, phases=(Phase.generate,))
    @given(programs())
    def drawn_often(_: Program) -> None:
        return

    found: list[str] = []
    with collector.with_value(lambda stats: found.append(describe_statistics(stats))):  # type: ignore[arg-type]
        drawn_often()
    assert "statement: crossing" in found[0]
    assert "statement: view" in found[0]
