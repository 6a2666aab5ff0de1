"""Operators that are not exact, for programs that are judged against float64: all of them continuous where they are used."""

from __future__ import annotations

import math

import msgspec

from executor.limits import Limits
from strategies.dtypes import ANYTHING, Range
from strategies.fitting import Pointwise, Ranged, Table

_FLOATS = ("float32", "float64", "float16", "bfloat16")
# Steps, of which a small error makes a large one, and casts by name, which a run in double precision could not widen.
_STEPS = frozenset({
    "aten.sign.default", "aten.sign_.default", "aten.round.default", "aten.round_.default", "aten.remainder.Scalar",
    "aten.remainder_.Scalar", "aten.gt_.Scalar", "aten.eq_.Tensor", "aten.logical_not_.default",
    "aten.logical_or_.default", "aten.to.dtype", "aten._foreach_ceil_.default", "aten._foreach_floor_.default",
    "aten._foreach_round_.default", "aten._foreach_trunc_.default", "aten._foreach_frac_.default",
    "aten._foreach_sign_.default",
})  # fmt: skip


def _grown(a: Range, _: Range) -> Range:
    return Range(0, math.exp(a.high)) if a.high <= 16 else ANYTHING


def _root(a: Range, _: Range) -> Range:
    return Range(0, math.sqrt(a.high)) if a.low >= 0 else ANYTHING


def _logarithm(a: Range, _: Range) -> Range:
    return Range(0, math.log1p(a.high)) if a.low >= 0 else ANYTHING


def _inverse(a: Range, _: Range) -> Range:
    return Range(0, 1) if a.low >= 1 else ANYTHING


def _bounded(_: Range, __: Range) -> Range:
    return Range(-1, 1)


def _third(a: Range, _: Range) -> Range:
    return Range(a.low / 3, a.high / 3)


def _op(name: str, ranged: Ranged, overload: str = "default", *scalars: int) -> Pointwise:
    return Pointwise(f"aten.{name}_.{overload}", f"aten.{name}.{overload}", "f", ranged, scalars)


OPERATORS = Table(
    (
        _op("sin", _bounded),
        _op("tanh", _bounded),
        _op("exp", _grown),
        _op("sigmoid", _bounded),
        _op("cos", _bounded),
        _op("div", _third, "Tensor", 3),
        _op("sqrt", _root),
        _op("log1p", _logarithm),
        _op("reciprocal", _inverse),
    )
)


def within(limits: Limits) -> Limits:
    """The limits of programs that are judged against float64."""
    return msgspec.structs.replace(
        limits,
        dtypes=frozenset(filter(limits.takes_dtype, _FLOATS)),
        banned_ops=limits.banned_ops | _STEPS,
    )
