"""Pointwise operators as formulas over `fd.ops`: from the schema's argument names to one nvFuser value.

Operands come cast to the dtype in which eager computes, and the result is cast to eager's dtype afterwards, so a formula
thinks of one dtype only. Where nvFuser's own operator treats NaN or bool differently, the formula says what eager does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

# An nvFuser tensor, or a Python number.
Item = Any
Formula = Callable[..., Item]


class Pointwise(NamedTuple):
    """A formula, called as `formula(ops, dtype, **arguments)`, where `dtype` is the one that it computes in.

    `operands`: which dtype that is: the result's ("result"), the operands' common one ("common"), or bool ("truth").
    `dtypes`: what the common dtype may be: "float", "int", "bool", "complex", one letter each, as in "fibc".
    """

    formula: Formula
    operands: str = "result"
    dtypes: str = "fi"


def _op(name: str) -> Formula:
    return lambda ops, dtype, **args: getattr(ops, name)(*args.values())


def _scaled(ops: Any, dtype: str, other: Item, alpha: Item) -> Item:
    return other if alpha == 1 else _times(ops, dtype, other, alpha)


def _plus(ops: Any, dtype: str, a: Item, b: Item) -> Item:
    return ops.logical_or(a, b) if dtype == "bool" else ops.add(a, b)


def _times(ops: Any, dtype: str, self: Item, other: Item) -> Item:
    return ops.logical_and(self, other) if dtype == "bool" else ops.mul(self, other)


def _add(ops: Any, dtype: str, self: Item, other: Item, alpha: Item = 1) -> Item:
    return _plus(ops, dtype, self, _scaled(ops, dtype, other, alpha))


def _abs(ops: Any, dtype: str, self: Item) -> Item:
    """With 0 added to floats: nvFuser's own `abs` of 0 is -0."""
    return ops.add(ops.abs(self), 0.0) if dtype.startswith("float") else ops.abs(self)


def _sub(ops: Any, dtype: str, self: Item, other: Item, alpha: Item = 1) -> Item:
    return ops.sub(self, _scaled(ops, dtype, other, alpha))


def _rsub(ops: Any, dtype: str, self: Item, other: Item, alpha: Item = 1) -> Item:
    return ops.sub(other, _scaled(ops, dtype, self, alpha))


def _is_nan(ops: Any, value: Item) -> Item:
    return ops.ne(value, value)


def _larger(ops: Any, dtype: str, self: Item, other: Item) -> Item:
    """NaN if either is."""
    if dtype == "bool":
        return ops.logical_or(self, other)
    first = ops.gt(self, other)
    return ops.where(first if dtype.startswith("int") else ops.logical_or(first, _is_nan(ops, self)), self, other)


def _smaller(ops: Any, dtype: str, self: Item, other: Item) -> Item:
    if dtype == "bool":
        return ops.logical_and(self, other)
    first = ops.lt(self, other)
    return ops.where(first if dtype.startswith("int") else ops.logical_or(first, _is_nan(ops, self)), self, other)


def _clamp(ops: Any, dtype: str, self: Item, min: Item = None, max: Item = None) -> Item:  # noqa: A002 (schema names)
    low = self if min is None else ops.where(ops.lt(self, min), min, self)
    return low if max is None else ops.where(ops.gt(low, max), max, low)


def _relu(ops: Any, dtype: str, self: Item) -> Item:
    return _clamp(ops, dtype, self, min=_zero(dtype))


def _zero(dtype: str) -> int | float:
    return 0 if dtype.startswith("int") else 0.0


def _sign(ops: Any, dtype: str, self: Item) -> Item:
    zero = _zero(dtype)
    one = type(zero)(1)
    return ops.where(ops.gt(self, zero), one, ops.where(ops.lt(self, zero), -one, zero))


def _pow(ops: Any, dtype: str, self: Item, exponent: Item) -> Item:
    if exponent == 2:
        return ops.mul(self, self)
    return ops.mul(ops.mul(self, self), self) if exponent == 3 else ops.pow(self, exponent)


def _addcmul(ops: Any, dtype: str, self: Item, tensor1: Item, tensor2: Item, value: Item = 1) -> Item:
    return ops.add(self, ops.mul(_scaled(ops, dtype, tensor1, value), tensor2))


def _addcdiv(ops: Any, dtype: str, self: Item, tensor1: Item, tensor2: Item, value: Item = 1) -> Item:
    return ops.add(self, _scaled(ops, dtype, ops.div(tensor1, tensor2), value))


def _lerp(ops: Any, dtype: str, self: Item, end: Item, weight: Item) -> Item:
    way = ops.sub(end, self)
    if isinstance(weight, int | float):
        if abs(weight) < 0.5:
            return ops.add(self, ops.mul(way, weight))
        return ops.sub(end, ops.mul(way, 1.0 - weight))
    near = ops.lt(ops.abs(weight), 0.5)
    return ops.where(near, ops.add(self, ops.mul(way, weight)), ops.sub(end, ops.mul(way, ops.sub(1.0, weight))))


def _gelu(ops: Any, dtype: str, self: Item, approximate: str = "none") -> Item:
    if approximate == "tanh":
        inner = ops.mul(ops.add(self, ops.mul(ops.mul(ops.mul(self, self), self), 0.044715)), math.sqrt(2 / math.pi))
        return ops.mul(ops.mul(self, 0.5), ops.add(ops.tanh(inner), 1.0))
    return ops.mul(ops.mul(self, 0.5), ops.add(ops.erf(ops.mul(self, math.sqrt(0.5))), 1.0))


def _bits(name: str) -> Formula:
    def formula(ops: Any, dtype: str, self: Item, other: Item) -> Item:
        if dtype == "bool":
            return ops.ne(self, other) if name == "xor" else getattr(ops, f"logical_{name}")(self, other)
        return getattr(ops, f"bitwise_{name}")(self, other)

    return formula


def _not(ops: Any, dtype: str, self: Item) -> Item:
    return ops.logical_not(self) if dtype == "bool" else ops.bitwise_not(self)


def _self(ops: Any, dtype: str, self: Item, **_: Item) -> Item:
    return self


_FLOATING = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos",
    "atan", "asinh", "acosh", "atanh", "erf", "erfc", "sqrt", "rsqrt", "reciprocal", "sigmoid", "silu", "lgamma",
    "floor", "ceil", "trunc", "round",
)  # fmt: skip
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

POINTWISE: dict[str, Pointwise] = {
    **{f"aten.{name}.default": Pointwise(_op(name), dtypes="f") for name in _FLOATING},
    **{f"aten.{name}.default": Pointwise(_op(name), "common", "f") for name in ("isnan", "isinf", "isfinite")},
    **{
        f"aten.{name}.{overload}": Pointwise(_op(name), "common", "fib")
        for name in _COMPARISONS
        for overload in ("Tensor", "Scalar")
    },
    **{f"aten.add.{overload}": Pointwise(_add, dtypes="fibc") for overload in ("Tensor", "Scalar")},
    **{f"aten.sub.{overload}": Pointwise(_sub, dtypes="fic") for overload in ("Tensor", "Scalar")},
    **{f"aten.rsub.{overload}": Pointwise(_rsub, dtypes="fic") for overload in ("Tensor", "Scalar")},
    **{f"aten.mul.{overload}": Pointwise(_times, dtypes="fibc") for overload in ("Tensor", "Scalar")},
    **{f"aten.div.{overload}": Pointwise(_op("div"), dtypes="f") for overload in ("Tensor", "Scalar")},
    **{
        f"aten.bitwise_{name}.{overload}": Pointwise(_bits(name), dtypes="ib")
        for name in ("and", "or", "xor")
        for overload in ("Tensor", "Scalar")
    },
    **{
        f"aten.__{name}__.{overload}": Pointwise(_bits(name), dtypes="ib")
        for name in ("and", "or", "xor")
        for overload in ("Tensor", "Scalar")
    },
    "aten.bitwise_not.default": Pointwise(_not, dtypes="ib"),
    "aten.logical_not.default": Pointwise(_op("logical_not"), "truth", "fib"),
    "aten.logical_and.default": Pointwise(_op("logical_and"), "truth", "fib"),
    "aten.logical_or.default": Pointwise(_op("logical_or"), "truth", "fib"),
    "aten.logical_xor.default": Pointwise(_op("ne"), "truth", "fib"),
    "aten.neg.default": Pointwise(_op("neg"), dtypes="fic"),
    "aten.abs.default": Pointwise(_abs),
    "aten.sign.default": Pointwise(_sign),
    "aten.relu.default": Pointwise(_relu),
    "aten.square.default": Pointwise(lambda ops, dtype, self: ops.mul(self, self), dtypes="fic"),
    "aten.gelu.default": Pointwise(_gelu, dtypes="f"),
    "aten.maximum.default": Pointwise(_larger, dtypes="fib"),
    "aten.minimum.default": Pointwise(_smaller, dtypes="fib"),
    "aten.clamp.default": Pointwise(_clamp),
    "aten.clamp_min.default": Pointwise(_clamp),
    "aten.clamp_max.default": Pointwise(_clamp),
    "aten.atan2.default": Pointwise(_op("atan2"), dtypes="f"),
    "aten.pow.Tensor_Scalar": Pointwise(_pow, dtypes="f"),
    "aten.addcmul.default": Pointwise(_addcmul, dtypes="fi"),
    "aten.addcdiv.default": Pointwise(_addcdiv, dtypes="f"),
    "aten.lerp.Scalar": Pointwise(_lerp, dtypes="f"),
    "aten.lerp.Tensor": Pointwise(_lerp, dtypes="f"),
    "aten.clone.default": Pointwise(_self, dtypes="fibc"),
    "aten.contiguous.default": Pointwise(_self, dtypes="fibc"),
    "aten._to_copy.default": Pointwise(_self, dtypes="fibc"),
}


def _where(ops: Any, dtype: str, condition: Item, self: Item, other: Item) -> Item:
    return ops.where(condition, self, other)


def _masked_fill(ops: Any, dtype: str, self: Item, mask: Item, value: Item) -> Item:
    return ops.where(mask, value, self)


# Operators that select by a bool operand, of this name; the others are cast to the result's dtype.
SELECTIONS: dict[str, tuple[str, Formula]] = {
    **{f"aten.where.{overload}": ("condition", _where) for overload in ("self", "ScalarSelf", "ScalarOther", "Scalar")},
    **{f"aten.masked_fill.{overload}": ("mask", _masked_fill) for overload in ("Scalar", "Tensor")},
}
