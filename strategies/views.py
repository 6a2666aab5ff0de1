"""View statements: an address computed from another, no element moved.

Each view kind says where it fits (`fits`) and draws its own arguments. `reshape` copies where no view is possible, which
is exactly what makes it interesting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from strategies.draws import Draw, below, between, choice

LARGEST = 64  # elements of any tensor in a program


class View(NamedTuple):
    """One view operator: its overload, where it fits, and how its arguments are drawn."""

    op: str
    fits: Callable[[torch.Tensor], bool]
    arguments: Callable[[Draw, torch.Tensor], tuple[Any, ...]]


def _dim(draw: Draw, tensor: torch.Tensor) -> int:
    return below(draw, tensor.ndim)


def _slice(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    dim, start, length = _window(draw, tensor)
    return dim, start, start + length, choice(draw, (1, 1, 2, 3))


def _narrow(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return _window(draw, tensor)


def _window(draw: Draw, tensor: torch.Tensor) -> tuple[int, int, int]:
    """A dimension, and the start and length of a part of it: all of it at first, and not empty unless it is itself."""
    dim = _dim(draw, tensor)
    size = tensor.shape[dim]
    start = below(draw, size) if size else 0
    return dim, start, size - start - (below(draw, size - start) if size else 0)


def _select(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    dims = [d for d, n in enumerate(tensor.shape) if n]
    dim = choice(draw, dims)
    return dim, below(draw, tensor.shape[dim])


def _two_dims(draw: Draw, tensor: torch.Tensor) -> tuple[int, int]:
    first = below(draw, tensor.ndim - 1)
    return first, between(draw, first + 1, tensor.ndim - 1)


def _permute(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    left = list(range(tensor.ndim))
    return ([left.pop(below(draw, len(left))) for _ in range(tensor.ndim)],)


def _shapes(tensor: torch.Tensor) -> list[list[int]]:
    """Other shapes with as many elements: flat first, then every split in two, then with a dimension of one."""
    count = tensor.numel()
    splits = [[rows, count // rows] for rows in range(2, count) if count % rows == 0]
    return [[count], *splits, [1, count]]


def _new_shape(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return (choice(draw, _shapes(tensor)),)


def _expand(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    ones = [d for d, n in enumerate(tensor.shape) if n == 1]
    at = below(draw, len(ones) + 1)
    size = between(draw, 2, 3)
    if at == 0:
        return ([size, *tensor.shape],)
    return ([size if d == ones[at - 1] else n for d, n in enumerate(tensor.shape)],)


def _unsqueeze(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return (below(draw, tensor.ndim + 1),)


def _squeeze(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return (choice(draw, [d for d, n in enumerate(tensor.shape) if n == 1]),)


def _diagonal(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    first, second = _two_dims(draw, tensor)
    return between(draw, 0, 1), first, second


def _split(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    dim = choice(draw, [d for d, n in enumerate(tensor.shape) if n])
    size = between(draw, 1, tensor.shape[dim])
    return max(size, -(-tensor.shape[dim] // 3)), dim


def _viewable(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and tensor.numel() > 0


def _always(_: torch.Tensor) -> bool:
    return True


def _ranked(rank: int) -> Callable[[torch.Tensor], bool]:
    return lambda tensor: tensor.ndim >= rank


VIEWS: tuple[View, ...] = (
    View("aten.slice.Tensor", _ranked(1), _slice),
    View("aten.select.int", lambda t: t.ndim > 0 and t.numel() > 0, _select),
    View("aten.view.default", _viewable, _new_shape),
    View("aten.transpose.int", _ranked(2), _two_dims),
    View("aten.reshape.default", lambda t: t.numel() > 0, _new_shape),
    View("aten.narrow.default", _ranked(1), _narrow),
    View("aten.t.default", lambda t: t.ndim == 2, lambda draw, t: ()),
    View("aten.permute.default", _ranked(2), _permute),
    View("aten.diagonal.default", _ranked(2), _diagonal),
    View("aten.unsqueeze.default", lambda t: t.ndim < 4, _unsqueeze),
    View("aten.squeeze.dim", lambda t: 1 in t.shape, _squeeze),
    View("aten.expand.default", lambda t: t.ndim < 4 and t.numel() * 3 <= LARGEST, _expand),
    View("aten.split.Tensor", lambda t: t.ndim > 0 and t.numel() > 0, _split),
)


def draw_view(draw: Draw, tensor: torch.Tensor, banned: frozenset[str] = frozenset()) -> tuple[str, tuple[Any, ...]]:
    """A view operator that fits the tensor, and its further arguments."""
    view = choice(draw, [v for v in VIEWS if v.op not in banned and v.fits(tensor)] or [_NONE])
    return view.op, view.arguments(draw, tensor)


_NONE = View("aten.alias.default", _always, lambda draw, t: ())
