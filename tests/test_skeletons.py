"""The plainest programs with a program's accesses: valid, of the same relation, in one order."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from executor.program import Program, Value
from executor.tracing import trace
from executor.validate import validate, validate_geometry
from fuzz.hazards import RELATIONS, relation, worst
from fuzz.skeletons import _OWN, _PLAIN, FORMS, LAYOUTS, skeletons
from tests.alias_programs import random_program


def window(x: torch.Tensor) -> torch.Tensor:
    y = x[1:].neg_().sum()
    return x[:-1] * y


def forms(program: Program) -> list[list[str]]:
    return [[call.op.split(".")[1] for call in one.calls] for _, one in skeletons(program)]


def test_the_forms_for_a_hazard_come_plainest_first() -> None:
    found = forms(trace(window, torch.ones(4)))
    assert list(dict.fromkeys(map(tuple, found))) == [
        ("add_",), ("add_", "add"), ("add", "add_"), ("add_", "add_"), ("gt_", "add"), ("gt_", "neg"),
        ("add_", "add_", "add"),
    ]  # fmt: skip
    ranks = [rank for rank, _ in skeletons(trace(window, torch.ones(4)))]
    assert all(one <= other for one, other in pairwise(ranks))
    assert ranks[-1][0] < len(FORMS)


def test_they_are_valid_programs_on_random_programs() -> None:
    for seed in range(40):
        for _, one in skeletons(random_program(seed, 6)):
            validate(one)
            validate_geometry(one)
            assert len(one.inputs) <= 3


@pytest.mark.parametrize("name", LAYOUTS)
def test_plain_layouts_lie_as_they_are_named(name: str) -> None:
    for layout in LAYOUTS[name]:
        write, read = (Value(0, "float32", *place) for place in (layout[0], layout[-1]))
        assert write == read if name == "same" else relation(read, write) == name


def test_without_accesses_there_are_none() -> None:
    assert forms(trace(torch.t, torch.ones(2, 2))) == []
    assert forms(trace(torch.neg, torch.ones(2))) == []


def test_plain_layouts_of_another_relation_are_tried_too_easier_ones_first() -> None:
    alone = trace(lambda x: x.add_(1), torch.ones(2))

    def relations(other: str) -> list[str]:
        laid = [worst(one) for _, one in skeletons(alone, {other})]
        return list(dict.fromkeys(hazard.relation for hazard in laid if hazard is not None))

    assert relations("none") == relations("same") == ["same"]
    assert relations("partial") == ["same", "partial"]
    both = [(rank, hazard.relation) for rank, one in skeletons(trace(window, torch.ones(4)), {"disjoint"})
            for hazard in [worst(one)] if hazard is not None and _PLAIN <= rank[1] < _OWN]  # fmt: skip
    assert {relation for _, relation in both} >= {"disjoint", "partial"}
    read = [relation for rank, relation in both if rank[0] == 1]
    assert read == sorted(read, key=RELATIONS.index)


def test_accesses_that_lie_apart_are_of_two_shapes_first() -> None:
    first, *_ = LAYOUTS["disjoint"]
    assert first[0][0] != first[1][0]
