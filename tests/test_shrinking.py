"""Hypothesis's own shrinking of `programs()`: fewer statements, then fewer inputs, then smaller sizes, then plainer dtypes and ops.

Where a condition can be met in two ways, and the program that it begins from meets it in both, the smallest one says which
way counts for less. What a user of `@given(programs())` gets is this; the reducer has tests of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, Verbosity

from executor.args import refs
from executor.program import Program, itemsize
from executor.schema import accesses
from fuzz.uniform import BACKEND
from strategies.draws import Draw, either_end
from strategies.layouts import draw_places
from strategies.programs import programs

Condition = Callable[[Program], bool]


class _Found(Exception):
    """A program meets the condition."""


def shrunk(condition: Condition, seed: int) -> list[Program]:
    """The programs that met the condition, drawn from a seed and shrunk: the first one, and at last the smallest."""
    met: list[Program] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=500,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        print_blob=False,
        backend=BACKEND,  # which begins with programs of all sizes
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(programs())
    def property_(program: Program) -> None:
        if condition(program):
            met.append(program)
            raise _Found

    with pytest.raises(_Found):
        property_()
    return met


def minima(condition: Condition, begins: Condition = lambda program: True, seeds: int = 8) -> list[Program]:
    """What is left of so many first programs that also are what `begins` says."""

    def found() -> Iterator[Program]:
        for seed in count():
            met = shrunk(condition, seed)
            if begins(met[0]):
                yield met[-1]

    return list(islice(found(), seeds))


def elements(program: Program) -> int:
    """Elements of all input storages, in the dtypes that fill them."""
    fills = [(storage.nbytes, storage.fill) for storage in program.entry.storages]
    return sum(nbytes // itemsize(fill.dtype) for nbytes, fill in fills if fill is not None)


def sizes(program: Program) -> tuple[int, int, int]:
    """What shrinking makes smaller, in the order in which it counts: statements, inputs, elements."""
    return len(program.calls), len(program.inputs), elements(program)


def test_any_program_becomes_one_plain_statement_on_one_element() -> None:
    for program in minima(lambda program: True, seeds=3):
        assert sizes(program) == (1, 1, 1)
        assert [call.op for call in program.calls] == ["aten.add_.Tensor"]
        assert {value.dtype for value in program.values} == {"float32"}


def test_fewer_statements_count_for_more_than_fewer_inputs() -> None:
    def many(program: Program) -> int:
        return (len(program.inputs) >= 3) + (len(program.calls) >= 3)

    found = minima(lambda program: many(program) > 0, lambda program: many(program) == 2)
    assert {sizes(program)[:2] for program in found} == {(1, 3)}


def test_smaller_sizes_count_for_more_than_plainer_dtypes() -> None:
    def large(program: Program) -> bool:
        return any(value.numel >= 4 for value in program.entry.values)

    def other(program: Program) -> bool:
        return any(value.dtype != "float32" for value in program.entry.values)

    found = minima(lambda p: large(p) or other(p), lambda p: large(p) and other(p))
    small = [program for program in found if sizes(program) == (1, 1, 1)]
    assert len(small) >= len(found) - 1
    assert all(map(other, small))


def _writes_a_view(program: Program) -> bool:
    inputs = [program.values[i] for i in program.inputs]
    homes = {value.storage for value in inputs}
    written = [program.values[i] for call in program.calls for i in accesses(program, call)[1]]
    return any(value.storage in homes and value not in inputs for value in written)


def _returns_what_it_wrote(program: Program) -> bool:
    homes = {program.values[i].storage for i in program.inputs}
    written = {program.values[i].storage for call in program.calls for i in accesses(program, call)[1]}
    return any(program.values[i].storage in homes & written for i in refs(program.outputs))


def _shares(program: Program) -> bool:
    return len({program.values[i].storage for i in program.inputs}) < len(program.inputs)


@pytest.mark.parametrize(("condition", "smallest"), [
    (_writes_a_view, (2, 1, 2)),
    (_returns_what_it_wrote, (1, 1, 1)),
    (_shares, (1, 2, 1)),
    (lambda program: len(program.calls) > 1, (2, 1, 1)),
    (lambda program: any(value.numel >= 4 for value in program.entry.values), (1, 1, 4)),
    (lambda program: any(value.dtype == "int64" for value in program.entry.values), (1, 1, 1)),
], ids=["view", "returned", "shared", "two", "four", "int64"])  # fmt: skip
def test_nothing_is_left_that_does_not_matter(condition: Condition, smallest: tuple[int, int, int]) -> None:
    found = sorted(sizes(program) for program in minima(condition))
    assert found[len(found) * 3 // 4 - 1] <= smallest
    assert found[-1][0] <= smallest[0] + 1


class _Scripted(Draw):
    """Gives these numbers, and 0 behind them."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(lambda _: bytes(numbers))


@pytest.mark.parametrize("many", range(1, 7))
def test_either_end_gives_each_option_and_keeps_the_ends(many: int) -> None:
    options = range(many)
    drawn = [either_end(_Scripted(number), options) for number in range(many)]
    assert sorted(drawn) == list(options)
    assert drawn[:2] == [0, many - 1][:many]


def test_each_place_of_an_input_is_given_up_alone() -> None:
    assert draw_places(_Scripted(9, 9, 9, 9, 255)) == [True] * 4
    assert draw_places(_Scripted(9, 9, 9, 9, 0)) == [True]
    assert draw_places(_Scripted(9, 9, 0, 9, 255)) == [True, False, True, True]
    assert draw_places(_Scripted(0, 0, 0, 0, 255)) == [True]
