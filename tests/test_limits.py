"""`Limits`: each field refuses what it says, in words, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from executor.limits import EVERYTHING, Limits
from executor.program import Program
from executor.tracing import trace
from tests.alias_programs import random_program


def whole() -> torch.Tensor:
    return torch.arange(12.0)


def traced(fn: Callable[..., Any], *slices: slice) -> Program:
    """`fn` on views of one storage."""
    x = whole()
    return trace(fn, *[x[s] for s in slices])


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b


APART = slice(4), slice(8, 12)
OVERLAPPING = slice(4), slice(3, 7)


def test_the_default_takes_everything() -> None:
    assert [EVERYTHING.refuse(random_program(seed, 10)) for seed in range(50)] == [None] * 50
    assert Limits() == EVERYTHING


def test_limits_are_hashable_so_that_strategies_may_be_cached_by_them() -> None:
    assert len({Limits(), Limits(dtypes=frozenset({"bool"})), Limits(banned_ops=frozenset({"aten.t.default"}))}) == 3


def test_aliased_inputs() -> None:
    limits = Limits(aliased_inputs=False)
    assert limits.refuse(traced(add, *APART)) == "inputs a and b lie on one storage"
    assert limits.refuse(trace(add, whole(), whole())) is None


def test_overlapping_inputs() -> None:
    limits = Limits(overlapping_inputs=False)
    assert limits.refuse(traced(add, *OVERLAPPING)) == "inputs a and b overlap"
    assert limits.refuse(traced(add, *APART)) is None
    assert limits.refuse(traced(add, slice(0, 0), slice(0, 0))) is None
    x = whole()
    assert limits.refuse(trace(add, x, x)) == "inputs a and b overlap"
    assert limits.refuse(trace(add, x[::2], x[1::2])) is None


def test_displaced_inputs() -> None:
    limits = Limits(displaced_inputs=False)
    wrong = "inputs a and b lie in different ways on one storage"
    assert limits.refuse(traced(add, *APART)) == wrong
    assert limits.refuse(traced(add, *OVERLAPPING)) == wrong
    x, z = whole().view(3, 4), torch.ones(3, dtype=torch.complex64)
    assert limits.refuse(trace(lambda a, b: a.t() + b, x, x.t())) == wrong
    assert limits.refuse(trace(lambda a, b: a.sum() + b.sum(), z, torch.view_as_real(z))) == wrong
    for a, b in ((x, x), (x, x.view(-1)), (x[0], x[0]), (x[:, 0], x[:, 0]), (x, x.view(torch.int32)), (z, z.conj())):
        assert limits.refuse(trace(lambda a, b: a.sum() + b.sum(), a, b)) is None
    assert limits.refuse(trace(add, x, x.clone())) is None
    assert limits.refuse(traced(add, slice(0, 0), slice(2, 2))) is None


def test_reread_inputs() -> None:
    limits = Limits(reread_inputs=False)
    x, z = whole(), torch.ones(3, dtype=torch.complex64)
    for a, b in ((x, x[2:].view(torch.int32)), (z, z.conj()), (z, z.real), (z.imag, z.conj().imag)):
        refused = limits.refuse(trace(lambda a, b: a.sum() + b.sum(), a, b))
        assert refused == "inputs a and b read one storage as different numbers"
    assert limits.refuse(traced(add, *OVERLAPPING)) is None
    assert limits.refuse(trace(add, x, x.view(torch.int32).clone())) is None


def test_inputs_inside_a_tree_go_by_their_parameter() -> None:
    x = whole()
    program = trace(lambda pair, c: pair[0] + pair[1] + c, [x[:4], x[4:8]], x[2:6])
    assert Limits(overlapping_inputs=False).refuse(program) == "inputs pair and c overlap"


def test_written_inputs_returned() -> None:
    limits = Limits(written_inputs_returned=False)

    def write_one(a: torch.Tensor, b: torch.Tensor, *, view: bool, which: int) -> torch.Tensor:
        a[1:].neg_()
        chosen = (a, b)[which]
        return chosen[:2] if view else chosen

    for view in (False, True):
        returned = trace(lambda a, b, v=view: write_one(a, b, view=v, which=0), whole(), whole())
        assert limits.refuse(returned) == "an output lies on the storage of input a, which is written"
        other = trace(lambda a, b, v=view: write_one(a, b, view=v, which=1), whole(), whole())
        assert limits.refuse(other) is None
    assert limits.refuse(trace(lambda a: a.neg_() + 1, whole())) is None
    assert limits.refuse(trace(lambda a: (a + 1).neg_(), whole())) is None


def test_overlapping_as_strided() -> None:
    limits = Limits(overlapping_as_strided=False)
    overlapping = trace(lambda a: a.as_strided((3, 2), (1, 1)) + 0, whole())
    assert limits.refuse(overlapping) == "a result of aten.as_strided.default overlaps itself"
    assert limits.refuse(trace(lambda a: a.as_strided((3, 2), (2, 1)) + 0, whole())) is None
    assert limits.refuse(trace(lambda a: a[:1].expand(3) + 0, whole())) is None


def test_overlapping_fills() -> None:
    limits = Limits(overlapping_fills=False)
    filled = trace(lambda a: (a[:1].expand(3).fill_(1), a)[1], whole())
    assert limits.refuse(filled) == "aten.fill_.Scalar fills a tensor that overlaps itself"
    assert limits.refuse(trace(lambda a: (a[:1].expand(3), a.zero_())[1], whole())) is None


@pytest.mark.parametrize("fn", [lambda a: a.view(torch.int32) + 1, lambda a: a.to(torch.int32)], ids=["view", "cast"])
def test_dtypes_count_wherever_they_occur(fn: Callable[..., Any]) -> None:
    program = trace(fn, whole())
    assert Limits(dtypes=frozenset({"float32"})).refuse(program) == "dtype int32 is not supported"
    assert Limits(dtypes=frozenset({"float32", "int32"})).refuse(program) is None


def test_banned_ops() -> None:
    limits = Limits(banned_ops=frozenset({"aten.fill_.Scalar"}))
    assert limits.refuse(trace(lambda a: a.fill_(3), whole())) == "aten.fill_.Scalar is not supported"
    assert limits.refuse(trace(lambda a: a.zero_(), whole())) is None


def test_the_first_reason_is_given() -> None:
    limits = Limits(aliased_inputs=False, dtypes=frozenset())
    assert limits.refuse(traced(add, *OVERLAPPING)) == "inputs a and b lie on one storage"
