"""What lies in a storage's cells, as text and for comparison."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch

from executor.args import constant
from executor.program import Value, itemsize
from fuzz.oracle import comparable

Bytes = npt.NDArray[np.uint8]


def dtype_of(values: Iterable[Value], filled: str | None) -> str:
    """The dtype in which a storage's cells are shown: the smallest of those that tensors on it have.

    `filled` is the one in which its contents were made, which is taken if it is among the smallest.
    """
    found = sorted({value.dtype for value in values} or {filled or "uint8"}, key=itemsize)
    smallest = [name for name in found if itemsize(name) == itemsize(found[0])]
    return filled if filled in smallest else smallest[0]


def elements(data: Bytes, dtype: str) -> torch.Tensor:
    """The bytes as a flat tensor; what makes no whole element is left out."""
    wanted: torch.dtype = constant(dtype)
    count = len(data) // wanted.itemsize
    if not count:
        return torch.empty(0, dtype=wanted)
    return torch.frombuffer(bytearray(data[: count * wanted.itemsize].tobytes()), dtype=wanted)


def text(element: torch.Tensor) -> str:
    """One element, in few characters."""
    item = element.item()
    if isinstance(item, bool):
        return "T" if item else "F"
    if isinstance(item, complex):
        return f"{item.real:.3g}{item.imag:+.3g}j"
    return f"{item:.4g}" if isinstance(item, float) else str(item)


def differing(a: torch.Tensor, b: torch.Tensor, *, exact: bool = True) -> list[int]:
    """The row-major positions at which two tensors of one dtype and shape differ, NaN equal to NaN.

    Unless `exact`, nearly equal floating-point numbers are equal.
    """
    a, b = comparable(a).reshape(-1), comparable(b).reshape(-1)
    same = (a == b) | ((a != a) & (b != b))
    if not exact and (a.dtype.is_floating_point or a.dtype.is_complex):
        same |= torch.isclose(a, b, equal_nan=True)
    return [int(i) for i in (~same).nonzero()]
