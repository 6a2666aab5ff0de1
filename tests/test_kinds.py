"""Kinds of failures: which may become which while they shrink."""

from __future__ import annotations

import pytest
import torch

from executor.tracing import trace
from fuzz.check import check
from fuzz.findings import Kind, failure_class, kind_of, size
from tests.planted import Severed

START = Kind("thunder", "value", "", "read-after-write", "contained")

BECOME = [
    ({}, True),
    ({"symptom": "memory"}, True),
    ({"symptom": "exception"}, False),
    ({"symptom": "memory-limit"}, False),
    ({"symptom": "value in a later call"}, False),
    ({"target": "inductor"}, False),
    ({"detail": "KeyError"}, False),
    ({"relation": "must"}, True),
    ({"relation": "partial"}, False),
    ({"dependence": "write-after-read"}, True),
    ({"relation": "same", "dependence": "read-after-write"}, True),
    ({"relation": "none", "dependence": "none"}, True),
]


@pytest.mark.parametrize(("change", "may"), BECOME)
def test_which_failures_may_become_which(change: dict[str, str], *, may: bool) -> None:
    assert START.may_become(START._replace(**change)) == may


def test_right_numbers_that_lie_elsewhere_are_one_kind() -> None:
    start = START._replace(symptom="alias in a later call")
    assert start.may_become(start._replace(symptom="strides in a later call"))
    assert not start.may_become(start._replace(symptom="strides"))


def test_one_tensor_is_no_hazard_to_mind() -> None:
    easiest = START._replace(relation="none", dependence="none")
    assert easiest.may_become(START._replace(relation="same"))
    assert not easiest.may_become(START._replace(relation="disjoint"))


def test_either_word_for_what_an_operator_does_not_do_is_one_kind() -> None:
    start = START._replace(symptom="exception", detail="RuntimeError")
    assert start.may_become(start._replace(detail="NotImplementedError"))


def test_each_kind_has_one_class() -> None:
    assert failure_class(START) is failure_class(START._replace())
    assert failure_class(START) is not failure_class(START._replace(relation="must"))
    assert failure_class(START).__name__ == "ValueReadAfterWriteContainedFailure"


def test_the_kind_of_a_verdict_and_the_size_of_its_program() -> None:
    x = torch.arange(4.0)
    program = trace(lambda a, b: (a.add_(1), b * 2)[1], x[:3], x[1:])
    assert kind_of(check(program, target=Severed())) == Kind("severed", "value", "", "read-after-write", "partial")
    assert size(program)[:3] == (2, 2, 16)
    assert size(trace(lambda a: a.neg(), x)) < size(program)
