"""The dtypes that programs use, and the integers that each holds exactly."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from executor.args import constant


class Range(NamedTuple):
    """Every element is an integer from `low` to `high`, both included; of a complex number, each part."""

    low: float
    high: float

    def hull(self, other: Range) -> Range:
        """The smallest range that holds both."""
        return Range(min(self.low, other.low), max(self.high, other.high))

    def within(self, other: Range) -> bool:
        """Whether the other range holds this one."""
        return other.low <= self.low and self.high <= other.high

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))


ANYTHING = Range(-math.inf, math.inf)  # bytes read as another dtype: they can be moved, but not computed with
TRUTH = Range(0, 1)


def symmetric(magnitude: float) -> Range:
    """All integers up to a magnitude."""
    return Range(-magnitude, magnitude)


# Plainest first: a choice shrinks towards the head. Repeats are weights.
COMMON: tuple[str, ...] = (
    "float32", "float32", "float32", "float32", "int64", "float64", "int32", "float16", "bfloat16",
)  # fmt: skip
RARE: tuple[str, ...] = ("bool", "uint8", "complex64", "int8", "int16", "complex128")

# The range in which all integers are exact. Half of a signed integer's range leaves room for negation.
EXACT: dict[torch.dtype, Range] = {
    torch.bool: TRUTH,
    torch.uint8: Range(0, 255),
    torch.int8: symmetric(127),
    torch.int16: symmetric(2**14),
    torch.int32: symmetric(2**30),
    torch.int64: symmetric(2**62),
    torch.float16: symmetric(2**11),
    torch.bfloat16: symmetric(2**8),
    torch.float32: symmetric(2**24),
    torch.float64: symmetric(2**53),
    torch.complex64: symmetric(2**24),
    torch.complex128: symmetric(2**53),
}
KNOWN: dict[torch.dtype, str] = {constant(name): name for name in dict.fromkeys(COMMON + RARE)}
_HALF = {torch.float16: 2.0**15, torch.bfloat16: 2.0**24}  # beyond it, float16 ends


def kind(dtype: torch.dtype) -> str:
    """b, u, i, f or c: boolean, unsigned, signed, floating-point, complex."""
    if dtype is torch.bool or dtype is torch.uint8:
        return "b" if dtype is torch.bool else "u"
    return "f" if dtype.is_floating_point else "c" if dtype.is_complex else "i"


def cast(elements: Range, source: torch.dtype, target: torch.dtype) -> Range | None:
    """The range after a cast whose result is the same on every machine; None where it is not.

    Casts to half types may round: the results are integers still, of which arithmetic might not be exact.
    """
    if source is target:
        return elements
    if elements == ANYTHING or (source.is_complex and not target.is_complex):
        return None
    if target is torch.bool:
        return TRUTH
    if elements.within(EXACT[target]):
        return elements
    most = _HALF.get(target, 0.0)
    return symmetric(2.0 ** math.ceil(math.log2(elements.magnitude))) if elements.magnitude <= most else None
