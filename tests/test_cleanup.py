"""What may be computed once, and what looks as if it might."""

from __future__ import annotations

import torch

from executor.passes.cleanup import common_subexpressions
from executor.tracing import trace


def test_equal_writes_are_all_made() -> None:
    def fn(x: torch.Tensor) -> None:
        row = x[0]
        row.zero_()
        x.add_(1)
        row.zero_()

    program = trace(fn, torch.ones(2, 2))
    assert common_subexpressions(program) == program


def test_equal_results_stay_apart_where_one_is_written_later() -> None:
    def first_written(x: torch.Tensor) -> torch.Tensor:
        first, second = x.neg(), x.neg()
        first.add_(1)
        return second * 2

    def second_written(x: torch.Tensor) -> torch.Tensor:
        first, second = x.neg(), x.neg()
        second.add_(1)
        return first * 2

    for fn in (first_written, second_written):
        program = trace(fn, torch.ones(3))
        assert common_subexpressions(program) == program


def test_views_of_merged_copies_lie_on_the_copy_that_is_left() -> None:
    """The later view is of the first copy, and the earlier one of the second."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = x.neg(), x.neg()
        return second.expand(3, 2) + 1, first.expand(3, 2) * 2

    merged = common_subexpressions(trace(fn, torch.ones(2)))
    assert [call.op for call in merged.calls[:2]] == ["aten.neg.default", "aten.expand.default"]
    (copy,), (view,) = (call.results for call in merged.calls[:2])
    assert merged.calls[1].operands == (copy,)
    assert merged.values[view].storage == merged.values[copy].storage


def test_numbers_in_lists_are_told_apart() -> None:
    """1 and 1.0, and 0.0 and -0.0, are equal in Python."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole, point = torch._foreach_add([x], [1]), torch._foreach_add([x], [1.0])
        plus, minus = torch._foreach_mul([y], [0.0]), torch._foreach_mul([y], [-0.0])
        return whole[0] * 1, point[0] * 1, plus[0] * 1, minus[0] * 1

    program = trace(fn, torch.arange(3), torch.ones(3))
    assert common_subexpressions(program) == program
