"""`index_fill` by a tensor that has a gradient, said by a mask.

The derivative that torch has for it asks which indices are distinct, and a program's shapes cannot depend on data. A fill by
mask does the same, and its derivative sums over the mask. (Where an index is negative torch's derivative raises; this one is right.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def needs_mask(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether this is an `index_fill` whose value has a gradient that is wanted."""
    if func not in FILLS or not torch.is_grad_enabled():
        return False
    value = kwargs.get("value", args[-1] if args else None)
    return isinstance(value, torch.Tensor) and value.requires_grad


def _in_place(input: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:  # noqa: A002
    return input.masked_fill_(_mask(input, dim, index), value)


def _copied(input: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:  # noqa: A002
    return input.masked_fill(_mask(input, dim, index), value)


def _mask(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """True at the positions along a dimension that are filled; it broadcasts over the others."""
    shape = [n if k == dim % max(tensor.ndim, 1) else 1 for k, n in enumerate(tensor.shape)]
    mask = torch.zeros(shape, dtype=torch.bool, device=tensor.device)
    return mask.index_fill_(dim, index, 1)


FILLS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.Tensor.index_fill_: _in_place,
    torch.ops.aten.index_fill_.int_Tensor: _in_place,
    torch.Tensor.index_fill: _copied,
    torch.index_fill: _copied,
    torch.ops.aten.index_fill.int_Tensor: _copied,
}
