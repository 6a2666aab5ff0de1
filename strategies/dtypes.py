"""The dtypes that programs use, and the integers that each holds exactly."""

from __future__ import annotations

import torch

# Plainest first: a choice shrinks towards the head. Repeats are weights.
DTYPES: tuple[str, ...] = (
    "float32", "float32", "float32", "float32", "int64", "float64", "int32", "float16", "bfloat16",
)  # fmt: skip

# Largest magnitude up to which all integers are exact. Half of a signed integer's range leaves room for negation.
EXACT: dict[torch.dtype, int] = {
    torch.float16: 2**11,
    torch.bfloat16: 2**8,
    torch.float32: 2**24,
    torch.float64: 2**53,
    torch.int32: 2**30,
    torch.int64: 2**62,
}
