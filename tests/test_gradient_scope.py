"""What a scope whose inputs require grad lets a statement do: nothing that eager refuses."""

from __future__ import annotations

import pytest
import torch

from executor.limits import EVERYTHING
from executor.program import Iota
from strategies.dtypes import Range
from strategies.gradients import GradScope


def scope_of(*tensors: torch.Tensor) -> GradScope:
    scope = GradScope(EVERYTHING, careless=False)
    for tensor in tensors:
        scope.add_input(tensor, Iota(str(tensor.dtype).removeprefix("torch."), 1, 0))
    return scope


@pytest.mark.parametrize("op", ["aten.contiguous.default", "aten.clone.default"])
def test_a_late_view_is_written_only_after_autograd_was_asked_for_it(op: str) -> None:
    scope = scope_of(torch.arange(1.0, 4, requires_grad=True), torch.arange(1.0, 4))
    leaf, plain = map(scope.tensor, scope.inputs)
    part = scope.emit("aten.slice.Tensor", plain, 0, 0, 1)[0]
    scope.emit("aten.add_.Tensor", plain, leaf, range=Range(2, 6))
    same = scope.emit(op, scope.tensor(part))[0] == part  # `contiguous` gives the view itself, and asks for nothing
    calls = len(scope.recorder.calls)
    scope.emit("aten.neg_.default", scope.tensor(part), range=Range(-6, -2))
    assert (len(scope.recorder.calls) == calls) is same
    assert (part in scope.writable()) is not same


@pytest.mark.parametrize("op", ["aten.select_scatter.default", "aten.slice_scatter.default"])
def test_what_has_no_derivative_for_complex_numbers_is_not_done_with_them(op: str) -> None:
    scope = scope_of(torch.ones(2, 2, dtype=torch.complex64), torch.arange(1.0, 3, requires_grad=True))
    whole, leaf = map(scope.tensor, scope.inputs)
    carried = scope.tensor(scope.emit("aten.add.Tensor", whole, leaf, range=Range(-3, 3))[0])
    place, source = ((1, 1), whole[0]) if op.startswith("aten.select") else ((1, 0, 2), whole)
    scope.recorder.ref(source)
    calls = len(scope.recorder.calls)
    scope.emit(op, carried, source, *place, range=Range(-3, 3))
    assert len(scope.recorder.calls) == calls
