"""Hazards between accesses, and the classes of the calls that make them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from executor.program import Program
from executor.tracing import trace
from fuzz.hazards import hazards, operator_class, trail, worst


def base() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4)


def traced(fn: Any, *args: torch.Tensor) -> Program:
    return trace(fn, *args)


CASES = [
    ("none", "none", lambda x: x + 1),
    ("read-after-write", "same", lambda x: x.add_(1) * 2),
    ("read-after-write", "must", lambda x: (x.add_(1), x.view(12) * 2)[1]),
    ("read-after-write", "contained", lambda x: (x.add_(1), x[0] * 2)[1]),
    ("read-after-write", "partial", lambda x: (x[0].add_(1), x * 2)[1]),
    ("write-after-read", "partial", lambda x: (x * 2, x[0].add_(1))[0]),
    ("write-after-write", "disjoint", lambda x: (x[0].zero_(), x[1].zero_(), None)[2]),
]


@pytest.mark.parametrize(("kind", "relation", "fn"), CASES)
def test_the_worst_hazard(kind: str, relation: str, fn: Any) -> None:
    found = worst(traced(fn, base()))
    assert ((found.kind, found.relation) if found else ("none", "none")) == (kind, relation)


def test_a_write_that_overwrites_does_not_read() -> None:
    program = traced(lambda x: (x.zero_(), None)[1], base())
    assert [(access.value, access.writes) for access in trail(program)] == [(0, True)]
    assert not list(hazards(program))


def test_outputs_are_read_at_the_end() -> None:
    program = traced(lambda x: (x[0].zero_(), x)[1], base())
    assert [(h.kind, h.relation, h.earlier.call, h.later.call) for h in hazards(program)] == [
        ("read-after-write", "partial", 1, 2)
    ]


def test_only_hazards_that_are_concerned_count() -> None:
    program = traced(lambda x: (x[0].add_(1), x[1].mul_(2), x * 2)[2], base())
    found = worst(program, lambda hazard: hazard.later.writes)
    assert found is not None
    assert found.relation == "disjoint"
    assert worst(program, lambda hazard: False) is None


CLASSES = [
    ("in-place", lambda x: x.add_(1)),
    ("in-place", lambda x: x.zero_()),
    ("copy", lambda x: x.copy_(x + 1)),
    ("copy", lambda x: x.clone()),
    ("indexed write", lambda x: x.index_fill_(0, torch.tensor([1]), 2.0)),
    ("indexed write", lambda x: x.masked_fill_(x > 1, 2.0)),
    ("view", lambda x: x.t()),
    ("copy", lambda x: x.t().contiguous()),
    ("pointwise", lambda x: x + 1),
    ("reduction", lambda x: x.sum()),
    ("reduction", lambda x: x.amax(0)),
    ("factory", torch.zeros_like),
    ("factory", lambda x: torch.zeros(3)),
    ("other", lambda x: x @ x.t()),
]


@pytest.mark.parametrize(("wanted", "fn"), CLASSES)
def test_the_class_of_a_call(wanted: str, fn: Any) -> None:
    program = traced(fn, base())
    assert operator_class(program, len(program.calls) - 1) == wanted
    assert operator_class(program, len(program.calls)) == "output"
