"""Further views: other names and forms of those in `views`, which compilers take apart, or have to know by name."""

from __future__ import annotations

from typing import Any

import torch

from strategies.draws import Draw, below
from strategies.views import LARGEST, View, always, filled, nothing, permutation, ranked, two_dims, viewable

_PARTS = 6  # most results of one call


def _itself(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    """The tensor as the example that another operand is."""
    del draw
    return (tensor,)


def _all_dims(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return list(range(tensor.ndim)), *permutation(draw, tensor)


def _repeated(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return ([2 + below(draw, 2), *tensor.shape],)


def _chunks(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return 2 + below(draw, 2), _dim(draw, tensor)


def _sizes(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    dim = _dim(draw, tensor)
    first = below(draw, tensor.shape[dim] + 1)
    return [first, tensor.shape[dim] - first], dim


def _places(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where to cut a dimension."""
    dim = _dim(draw, tensor)
    return [below(draw, tensor.shape[dim] + 1)], dim


def _dim(draw: Draw, tensor: torch.Tensor) -> int:
    return below(draw, tensor.ndim)


def _equal_parts(dim: int) -> Any:
    """As many parts along a dimension as it has elements, or one; `dim` -1 is the second, or the only one."""

    def arguments(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
        del draw
        size = tensor.shape[dim if dim >= 0 else min(tensor.ndim - 1, 1)]
        return (size if size <= _PARTS else 1,)

    return arguments


def _cut(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    """A cut behind the first element, whatever the dimension."""
    del tensor
    return ([1 + below(draw, 2)],)


def _ones(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    ones = [dim for dim, n in enumerate(tensor.shape) if n == 1]
    return (ones[: 1 + below(draw, len(ones))],)


def _geometry(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    del draw
    return list(tensor.shape), list(tensor.stride())


def _pairs(tensor: torch.Tensor) -> bool:
    """Whether the elements are pairs of real and imaginary parts."""
    if tensor.dtype not in (torch.float32, torch.float64) or tensor.is_neg() or not filled(tensor):
        return False
    steps = (*tensor.stride()[:-1], tensor.storage_offset())
    return tensor.shape[-1] == 2 and tensor.stride(-1) == 1 and all(step % 2 == 0 for step in steps)


def _complex(tensor: torch.Tensor) -> list[str]:
    return ["complex64" if tensor.dtype is torch.float32 else "complex128"]


def _matrix(tensor: torch.Tensor) -> bool:
    return tensor.ndim == 2


FURTHER_VIEWS: tuple[View, ...] = (
    *(View(f"aten.{name}.default", ranked(2), two_dims) for name in ("swapaxes", "swapdims")),
    View("aten.moveaxis.int", ranked(2), two_dims),
    *(View(f"aten.{name}.intlist", ranked(2), _all_dims) for name in ("movedim", "moveaxis")),
    *(View(f"aten.{name}.default", ranked(2), nothing) for name in ("adjoint", "mH", "linalg_diagonal")),
    *(View(f"aten.{name}.default", _matrix, nothing) for name in ("matrix_H", "numpy_T")),
    View("aten.broadcast_to.default", lambda t: t.ndim < 5 and t.numel() * 3 <= LARGEST, _repeated),
    View("aten.expand_as.default", always, _itself),
    View("aten.view_as.default", viewable, _itself),
    View("aten.reshape_as.default", always, _itself),
    View("aten.to.other", always, _itself),
    View("aten.ravel.default", filled, nothing),
    View("aten.positive.default", lambda t: t.dtype is not torch.bool, nothing),
    *(View(f"aten.{name}.default", always, nothing) for name in ("conj", "resolve_conj", "resolve_neg")),
    View("aten.chunk.default", filled, _chunks),
    View("aten.tensor_split.sections", filled, _chunks),
    View("aten.tensor_split.indices", filled, _places),
    View("aten.split.sizes", filled, _sizes),
    View("aten.hsplit.int", filled, _equal_parts(-1)),
    View("aten.vsplit.int", lambda t: t.ndim > 1 and filled(t), _equal_parts(0)),
    View("aten.dsplit.int", lambda t: t.ndim > 2 and filled(t), _equal_parts(2)),
    View("aten.hsplit.array", filled, _cut),
    View("aten.vsplit.array", lambda t: t.ndim > 1 and filled(t), _cut),
    View("aten.dsplit.array", lambda t: t.ndim > 2 and filled(t), _cut),
    View("aten.squeeze.dims", lambda t: 1 in t.shape, _ones),
    View("aten._reshape_alias.default", lambda t: filled(t) and not t.is_conj() and not t.is_neg(), _geometry),
    View("aten.view_as_complex.default", _pairs, nothing, _complex),
)
