"""Where a wrong element comes from, and which accesses are accused of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from executor.program import Program, Value
from executor.tracing import trace
from fuzz.oracle import Mismatch
from fuzz.provenance import RELATIONS, accused, makers, wrong_place


def base() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4)


def wrong(where: str, symptom: str = "value") -> Mismatch:
    return Mismatch(symptom, where, "1", "2")


def pair(x: torch.Tensor) -> Any:
    return x.t(), [x[1], 3]


PLACES = [
    (wrong("output 0[2, 1]"), Value(0, "float32", (), (), 6)),
    (wrong("output 1[3]"), Value(0, "float32", (), (), 7)),
    (wrong("output 1", "shape"), Value(0, "float32", (4,), (1,), 4)),
    (wrong("output 2"), None),
    (wrong("storage 0[5]", "memory"), Value(0, "uint8", (4,), (1,), 20)),
    (wrong("storage 0", "guard"), Value(0, "uint8", (48,), (1,), 0)),
    (wrong("the run", "exception"), None),
]


@pytest.mark.parametrize(("mismatch", "place"), PLACES)
def test_the_place_that_a_mismatch_names(mismatch: Mismatch, place: Value | None) -> None:
    assert wrong_place(trace(pair, base()), mismatch) == place


def test_a_single_output_has_no_number() -> None:
    program = trace(lambda x: x.t(), base())
    assert wrong_place(program, wrong("output[1, 2]")) == Value(0, "float32", (), (), 9)


def test_a_storage_with_elements_of_two_dtypes_is_counted_in_bytes() -> None:
    program = trace(lambda x: x.view(torch.int32).add_(1), base())
    assert wrong_place(program, wrong("storage 0[5]", "memory")) == Value(0, "uint8", (1,), (1,), 5)


def test_makers_are_the_calls_that_reach_an_element() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)  # calls 0 and 1
        x[1].mul_(2)  # 2 and 3
        y = x[0] * 3  # 4 and 5
        x[2].copy_(y)  # 6 and 7
        x[1].zero_()  # 8 and 9
        return x

    program = trace(fn, base())
    assert makers(program, wrong_place(program, wrong("output[2, 0]"))) == [7, 5, 1]  # type: ignore[arg-type]
    assert makers(program, wrong_place(program, wrong("output[1, 0]"))) == [9]  # type: ignore[arg-type]
    assert makers(program, wrong_place(program, wrong("output[0, 0]"))) == [1]  # type: ignore[arg-type]


def row_then_whole(x: torch.Tensor) -> torch.Tensor:
    x[0].add_(1)
    return x.sum()


def whole_then_row(x: torch.Tensor) -> torch.Tensor:
    x.copy_(x + 1)
    return x[0] * 2


def rows(x: torch.Tensor) -> torch.Tensor:
    x[0].add_(1)
    return x[1] * 2


def row_and_element(x: torch.Tensor) -> torch.Tensor:
    x[0].add_(1)
    return x[1, 0] * 2


def columns(x: torch.Tensor) -> torch.Tensor:
    x[:, 0].add_(1)
    return x * 2


def read_first(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    x.add_(1)
    return y


def two_rows_then_whole(x: torch.Tensor) -> torch.Tensor:
    x[0].add_(1)
    x[1].index_fill_(0, torch.tensor([0]), 1.0)
    return x + 1


ACCUSED: list[tuple[Callable[[torch.Tensor], torch.Tensor], tuple[str, ...], str]] = [
    (row_then_whole, ("in-place", "reduction"), "overlapping"),
    (whole_then_row, ("copy", "pointwise"), "overlapping"),
    (rows, ("in-place", "pointwise"), "disjoint of one shape"),
    (row_and_element, ("in-place", "pointwise"), "disjoint"),
    (columns, ("in-place", "pointwise"), "overlapping with strides"),
    (read_first, ("pointwise", "in-place"), "identical"),
    (two_rows_then_whole, ("in-place", "indexed write", "pointwise"), "overlapping"),
]


@pytest.mark.parametrize(("fn", "classes", "relation"), ACCUSED)
def test_the_hardest_hazard_that_concerns_the_element(
    fn: Callable[[torch.Tensor], torch.Tensor], classes: tuple[str, ...], relation: str
) -> None:
    program = trace(fn, base())
    index = ", ".join("0" for _ in program.values[program.calls[-1].results[0]].shape)
    found = accused(program, wrong(f"output[{index}]" if index and fn is not read_first else "output"))
    assert (found.accesses, found.relation) == (classes, relation)
    assert found.relation in RELATIONS
    assert list(found.statements) == sorted(found.statements)


def test_a_hazard_elsewhere_is_not_accused() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        x[0].add_(1)
        a = x * 2
        y.add_(1)
        return a, y

    program = trace(fn, base(), base())
    assert accused(program, wrong("output 1[0, 0]")).relation == "identical"
    assert accused(program, wrong("output 0[0, 0]")).relation == "overlapping"
    assert accused(program, None).relation == "overlapping"


def test_without_a_hazard_it_is_the_last_write_and_the_caller() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y

    program = trace(fn, base(), base())
    found = accused(program, wrong("storage 0[0]", "memory"))
    assert (found.accesses, found.relation, found.statements) == (("in-place", "caller"), "identical", (0,))
    assert accused(program, wrong("output", "alias")).accesses == ()
    assert accused(Program((), (), (), (), None), wrong("the run", "exception")).accesses == ()
