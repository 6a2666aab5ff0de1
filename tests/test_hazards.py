"""Hazards between accesses, and the signature that is made of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from executor.program import Program
from executor.tracing import trace
from fuzz.hazards import hazards, inputs_relation, operators, sign, trail, worst


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
    assert worst(traced(fn, base())) == (kind, relation)


def test_a_write_that_overwrites_does_not_read() -> None:
    program = traced(lambda x: (x.zero_(), None)[1], base())
    assert [(access.value, access.writes) for access in trail(program)] == [(0, True)]
    assert not list(hazards(program))


def test_outputs_are_read_at_the_end() -> None:
    program = traced(lambda x: (x[0].zero_(), x)[1], base())
    assert [(h.kind, h.relation, h.earlier.call, h.later.call) for h in hazards(program)] == [
        ("read-after-write", "partial", 1, 2)
    ]


INPUTS = [
    ("none", lambda x: (x, x.clone())),
    ("disjoint", lambda x: (x[0], x[1])),
    ("must", lambda x: (x, x.view(3, 4))),
    ("twins", lambda x: (x, x)),
    ("contained", lambda x: (x, x.t())),
    ("partial", lambda x: (x[:2], x[1:])),
]


@pytest.mark.parametrize(("relation", "lay"), INPUTS)
def test_how_inputs_lie(relation: str, lay: Any) -> None:
    assert inputs_relation(traced(lambda a, b: a.sum() + b.sum(), *lay(base()))) == relation


def test_a_part_of_an_input_counts_as_the_harder_way_round() -> None:
    assert inputs_relation(traced(lambda a, b: a.sum() + b.sum(), base(), base())) == "none"
    x = base()
    assert inputs_relation(traced(lambda a, b: a.sum() + b.sum(), x, x[0])) == "partial"


def test_the_signature_has_all_of_it_and_a_stable_digest() -> None:
    signature = sign(traced(lambda x: (x[0].add_(1), x * 2)[1], base()), "thunder", "value")
    assert (signature.target, signature.symptom, signature.dependence, signature.relation, signature.inputs) == (
        "thunder",
        "value",
        "read-after-write",
        "partial",
        "none",
    )
    assert signature.ops == ("add_", "mul", "select")
    assert signature.digest == "2fee56e794be"
    assert sign(None, "thunder", "value").ops == ()


def test_operators_are_named_once_and_sorted() -> None:
    assert operators(traced(lambda x: x.add_(1).add_(x).neg(), base())) == ("add_", "neg")
