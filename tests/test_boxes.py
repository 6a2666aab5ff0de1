"""Boxes of values: which views are some, and what element-wise calls make of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from executor import interpreter
from executor.args import Ref
from executor.builder import Builder
from executor.memory import value_of
from executor.passes.boxes import Box, box_of, element_wise, restricted, shown, total, turned
from executor.tracing import trace


@pytest.mark.parametrize(
    ("view", "box"),
    [
        (lambda x: x, Box((0, 0), (1, 1), (4, 6))),
        (lambda x: x[1], Box((1, 0), (1, 1), (1, 6))),
        (lambda x: x[2, 3], Box((2, 3), (1, 1), (1, 1))),
        (lambda x: x[1:, 1::3], Box((1, 1), (1, 3), (3, 2))),
        (lambda x: x.t()[1:3], Box((0, 1), (1, 1), (4, 2))),
        (lambda x: x[0].expand(3, 6), Box((0, 0), (1, 1), (1, 6))),
        (lambda x: x.diagonal(), None),
        (lambda x: x.view(-1)[4:8], None),
        (lambda x: x[:0], None),
        (lambda x: x.view(torch.int32), None),
    ],
)
def test_which_views_are_boxes(view: Callable[[torch.Tensor], torch.Tensor], box: Box | None) -> None:
    x = torch.ones(4, 6)
    assert box_of(value_of(view(x), 0), value_of(x, 0)) == box


def test_a_box_of_a_permuted_value_counts_along_its_dimensions() -> None:
    x = torch.ones(4, 6).t()
    assert box_of(value_of(x[1], 0), value_of(x, 0)) == Box((1, 0), (1, 1), (1, 4))


def test_a_box_has_a_place_and_meets_others() -> None:
    whole, box = value_of(torch.ones(4, 6), 0), Box((1, 1), (1, 2), (2, 3))
    place = box.within(whole)
    assert (place.shape, place.strides, place.offset) == ((2, 3), (6, 2), 7)
    assert box.ends == (3, 6)
    assert box.meets(Box((2, 5), (1, 1), (1, 1)))
    assert not box.meets(Box((3, 1), (1, 1), (1, 1)))
    assert not box.meets(Box((1, 0), (1, 1), (1, 1)))
    assert box.under((6,)) == Box((1,), (2,), (3,))
    assert box.under((4, 1)) == Box((1, 0), (1, 1), (2, 1))
    assert box.under(()) == Box((), (), ())


@pytest.mark.parametrize("view", [lambda x: x[1:, 2], lambda x: x.t()[1:3, ::2], lambda x: x[3, 5], lambda x: x[:1]])
def test_views_show_a_box_and_what_was_stored_there(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A value, its part in the part's own order, and in the box's again."""
    x = torch.arange(24.0).reshape(4, 6)
    program = trace(lambda x: x * 1, x)
    builder, part, whole = Builder(program), value_of(view(x), 0), value_of(x, 0)
    box = box_of(part, whole)
    assert box is not None
    builder.calls = list(program.calls)
    cut = restricted(builder, program.calls[0].results[0], box, None)
    seen = shown(builder, cut, part, whole, None)
    back = turned(builder, seen, box.within(whole), part, None)
    assert back is not None
    for value, expected in (
        (seen, view(x)),
        (cut, x.as_strided(*_layout(box, x))),
        (back, x.as_strided(*_layout(box, x))),
    ):
        assert torch.equal(interpreter.run(builder.finish(Ref(value)), [x]), expected)


def _layout(box: Box, x: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    place = box.within(value_of(x, 0))
    return place.shape, place.strides, place.offset


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: x.sin(), True),
        (lambda x: torch.where(x > 0, x, 1.0), True),
        (lambda x: x.clone(), True),
        (lambda x: x.to(torch.int64), True),
        (lambda x: x.cumsum(0), False),
        (lambda x: x.sum(), False),
        (lambda x: torch.frexp(x)[0], False),
    ],
)
def test_what_is_element_wise(fn: Callable[[torch.Tensor], torch.Tensor], expected: bool) -> None:  # noqa: FBT001 - a parameter of the case
    program = trace(fn, torch.ones(3))
    assert element_wise(program.calls[-1], program.values) is expected


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, True), (torch.int64, False)])
def test_division_has_no_result_for_some_integers(dtype: torch.dtype, expected: bool) -> None:  # noqa: FBT001 - a parameter of the case
    program = trace(lambda x, y: x // y, torch.ones(3, dtype=dtype), torch.ones(3, dtype=dtype))
    assert total(program.calls[-1], program.values) is expected
