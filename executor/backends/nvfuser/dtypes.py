"""The dtypes that nvFuser has, and those in which its operators compute."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from executor.args import constant
from executor.program import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

# nvFuser's names. Not there: int8, uint8, int16, complex32 and the unsigned ones.
NAMES = {
    "float64": "Double",
    "float32": "Float",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Int",
    "int32": "Int32",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}
HALVES = frozenset({"float16", "bfloat16"})
COMPLEX = frozenset({"complex64", "complex128"})


def computed_in(dtype: str) -> str:
    """The dtype in which a value of this dtype is computed before it is rounded: as eager does, half types in float32."""
    return "float32" if dtype in HALVES else dtype


def is_integral(dtype: str) -> bool:
    """Whether it is an integer or bool dtype."""
    return dtype in ("int64", "int32", "bool")


def number(value: complex, dtype: str) -> complex:
    """A Python number as an element of this dtype."""
    if dtype in COMPLEX:
        return complex(value)
    if dtype == "bool":
        return bool(value)
    return int(value.real) if is_integral(dtype) else float(value.real)


def promoted(operands: Sequence[Value | complex]) -> str:
    """The dtype to which eager casts these operands, tensors or numbers, before it compares them."""
    found = [_key(item) for item in operands]
    return _promote(tuple(found))


def _key(item: Value | complex) -> tuple[str, int]:
    return (item.dtype, min(len(item.shape), 1)) if isinstance(item, Value) else (type(item).__name__, -1)


_KINDS = {"bool": False, "int": 0, "float": 0.0, "complex": 0j}


@lru_cache(maxsize=1024)
def _promote(operands: tuple[tuple[str, int], ...]) -> str:
    items: list[Any] = [
        _KINDS[name] if rank < 0 else torch.empty((1,) * rank, dtype=constant(name), device="meta")
        for name, rank in operands
    ]
    # Tensors of one kind, then 0-d tensors, then numbers: each counts only for a higher kind, as in eager.
    found = items[0]
    for item in items[1:]:
        dtype = torch.result_type(found, item)
        rank = max(getattr(found, "ndim", 0), getattr(item, "ndim", 0))
        found = torch.empty((1,) * rank, dtype=dtype, device="meta")
    return str(torch.result_type(found, items[-1]) if len(items) == 1 else found.dtype).removeprefix("torch.")
