"""Drawn changes of metadata change no element, also of tensors that are conjugated or negated as they are read."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import torch

from executor.memory import fill_tensor
from executor.program import Iota
from strategies.draws import Draw
from strategies.metadata import CHANGES, Change
from strategies.scope import Scope

READINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor.view(tensor.shape),
    "conjugated": torch.Tensor.conj,
    "negated": torch._neg_view,
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.op)
def test_no_element_changes(change: Change, reading: str) -> None:
    for number in range(3 if _drawn(change, reading, 0) or reading == "plain" else 0):
        assert _drawn(change, reading, number)


def _drawn(change: Change, reading: str, number: int) -> bool:
    """Whether arguments are drawn for a column of a matrix; if so, the change is made with those of this number, counted round."""
    fill = Iota("complex64")
    base = fill_tensor(fill, 8)
    scope = Scope()
    column = scope.add_input(READINGS[reading](base.view(4, 2)[:, :1]), fill)
    scope.add_input(base[:2], fill)
    before = base.clone()
    options = change.arguments(Draw.uniform(Random(0)), scope, column)
    if options:
        scope.emit(change.op, scope.tensor(column), *options[number % len(options)])
        assert torch.equal(base, before)
    return bool(options)
