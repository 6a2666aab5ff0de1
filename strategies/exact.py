"""Further pointwise operators that are exact on integers: comparisons, shifts, roundings, divisions, extremes, spellings.

They are rows for the machinery of `pointwise`. A range of `ANYTHING` keeps an operator from second operands that would make
its results inexact or undefined.
"""

from __future__ import annotations

from strategies.dtypes import ANYTHING, TRUTH, Range, symmetric
from strategies.fitting import Pointwise, Ranged, Table

_MOST_SHIFT = 6


def _same(a: Range, _: Range) -> Range:
    return a


def _truth(_: Range, __: Range) -> Range:
    return TRUTH


def _sum(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high)


def _difference(a: Range, b: Range) -> Range:
    return Range(a.low - b.high, a.high - b.low)


def _product(a: Range, b: Range) -> Range:
    return symmetric(2 * a.magnitude * b.magnitude) if min(a.low, b.low) < 0 else Range(a.low * b.low, a.high * b.high)


def _bits(a: Range, b: Range) -> Range:
    top = 2.0 ** int(max(a.magnitude, b.magnitude)).bit_length() - 1
    return Range(0, top) if a.low >= 0 and b.low >= 0 else Range(-top - 1, top)


def _raised(a: Range, b: Range) -> Range:
    """Times a power of two."""
    return symmetric(a.magnitude * 2**b.high) if b.low >= 0 and b.high <= _MOST_SHIFT else ANYTHING


def _lowered(a: Range, b: Range) -> Range:
    """Through a power of two, rounded down."""
    return (
        Range(min(a.low, -1) if a.low < 0 else 0, max(a.high, 0)) if b.low >= 0 and b.high <= _MOST_SHIFT else ANYTHING
    )


def _divided(a: Range, b: Range) -> Range:
    """Through what is not 0, rounded down."""
    return symmetric(a.magnitude + 1) if b.low >= 1 else ANYTHING


def _rest(_: Range, b: Range) -> Range:
    """What is left of a division through what is not 0."""
    return symmetric(b.high) if b.low >= 1 else ANYTHING


def _upper(a: Range, b: Range) -> Range:
    return Range(max(a.low, b.low), max(a.high, b.high))


def _lower(a: Range, b: Range) -> Range:
    return Range(min(a.low, b.low), min(a.high, b.high))


def _common(a: Range, b: Range) -> Range:
    return Range(0, max(a.magnitude, b.magnitude))


def _multiple(a: Range, b: Range) -> Range:
    return Range(0, a.magnitude * b.magnitude)


def _leaking(a: Range, b: Range) -> Range:
    return Range(min(a.low, a.low * b.high), a.high)


def _op(name: str, kinds: str, ranged: Ranged, *scalars: int, overload: str = "default") -> Pointwise:
    return Pointwise(f"aten.{name}_.{overload}", f"aten.{name}.{overload}", kinds, ranged, scalars)


def _binary(name: str, kinds: str, ranged: Ranged, overload: str = "Tensor") -> Pointwise:
    return Pointwise(f"aten.{name}_.{overload}", f"aten.{name}.{overload}", kinds, ranged, binary=True)


def _spelled(name: str, kinds: str, ranged: Ranged, *scalars: int) -> list[Pointwise]:
    """What Python's operators such as `&=` call, with a number and with a tensor."""
    with_number = Pointwise(f"aten.__{name}__.Scalar", "", kinds.replace("b", ""), ranged, scalars)
    return [with_number, Pointwise(f"aten.__{name}__.Tensor", "", kinds, ranged, binary=True)]


_COMPARISONS = ("ge", "le", "lt", "ne", "greater", "greater_equal", "less", "less_equal", "not_equal")
_FLOOR = (("rounding_mode", "floor"),)

FURTHER = Table(
    (
        *(_op(name, "uif", _truth, 1, 0, overload="Scalar")._replace(truth=True) for name in (*_COMPARISONS, "eq")),
        *(_binary(name, "buif", _truth)._replace(truth=True) for name in (*_COMPARISONS, "gt")),
        *(_binary(name, "buif", _truth, "default")._replace(truth=True) for name in ("logical_and", "logical_xor")),
        _op("add", "uifc", _sum, 1, 2, -3, overload="Scalar"),
        _op("sub", "uifc", _difference, 1, 2, overload="Scalar"),
        _op("mul", "uifc", _product, 2, -1, overload="Scalar"),
        _op("multiply", "uifc", _product, 2, overload="Scalar"),
        _binary("multiply", "uifc", _product),
        _op("subtract", "uifc", _difference, 1, overload="Scalar"),
        _binary("subtract", "uifc", _difference),
        *(_op(name, "ui", _bits, 1, overload="Scalar") for name in ("bitwise_and", "bitwise_or", "bitwise_xor")),
        _binary("bitwise_or", "bui", _bits),
        *(row for name in ("iand", "ior", "ixor") for row in _spelled(name, "bui", _bits, 1)),
        *_spelled("ilshift", "i", _raised, 1, 2),
        *_spelled("irshift", "i", _lowered, 1, 2),
        _op("bitwise_left_shift", "i", _raised, 1, 2, overload="Tensor_Scalar"),
        _op("bitwise_right_shift", "i", _lowered, 1, 2, overload="Tensor_Scalar"),
        _binary("bitwise_left_shift", "i", _raised),
        _binary("bitwise_right_shift", "i", _lowered),
        *(_op(name, "f", _same) for name in ("ceil", "floor", "trunc", "fix", "nan_to_num")),
        _op("round", "f", _same, overload="decimals")._replace(keywords=(("decimals", 0),)),
        _op("frac", "f", lambda a, b: Range(0, 0)),
        _op("sgn", "if", lambda a, b: Range(-1, 1)),
        _op("absolute", "uif", lambda a, b: Range(0, a.magnitude)),
        _op("negative", "if", lambda a, b: Range(-a.high, -a.low)),
        _op("hardtanh", "f", lambda a, b: Range(-1, 1)),
        _op("relu6", "f", lambda a, b: Range(0, 6)),
        _op("leaky_relu", "f", _leaking, 2),
        _op("pow", "if", lambda a, b: Range(0, a.magnitude**2), 2, overload="Scalar")._replace(
            pure="aten.pow.Tensor_Scalar"
        ),
        _op("clamp_min", "uif", _upper, 0, 2),
        _op("clamp_max", "uif", _lower, 2, 7),
        _op("clip", "uif", _upper, 0),
        _binary("clamp_min", "uif", _upper),
        _binary("clamp_max", "uif", _lower),
        _binary("clamp", "uif", _upper),
        _binary("clip", "uif", _upper),
        _binary("gcd", "i", _common, "default"),
        _binary("lcm", "i", _multiple, "default"),
        *(
            _op(name, "if", _divided, 2, 3, overload="Scalar_mode")._replace(keywords=_FLOOR)
            for name in ("div", "divide")
        ),
        *(_binary(name, "if", _divided, "Tensor_mode")._replace(keywords=_FLOOR) for name in ("div", "divide")),
        _op("floor_divide", "if", _divided, 2, 3, overload="Scalar"),
        _binary("floor_divide", "if", _divided)._replace(pure="aten.floor_divide.default"),
        _op("fmod", "if", _rest, 3, 2, overload="Scalar"),
        _binary("fmod", "if", _rest),
        _binary("remainder", "if", _rest),
    )
)
