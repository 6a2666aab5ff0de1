"""View statements: an address computed from another, no element moved.

Each view kind says where it fits (`fits`) and draws its own arguments. `reshape` copies where no view is possible, which
is exactly what makes it interesting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import torch

from executor.args import constant
from executor.limits import EVERYTHING, Limits
from executor.memory import value_of
from strategies.draws import Draw, below, between, choice

LARGEST = 128  # elements of any tensor in a program


class View(NamedTuple):
    """One view operator: its overload, where it fits, how its arguments are drawn, and of what other dtypes it may be."""

    op: str
    fits: Callable[[torch.Tensor], bool]
    arguments: Callable[[Draw, torch.Tensor], tuple[Any, ...]]
    dtypes: Callable[[torch.Tensor], list[str]] = lambda tensor: []


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


def two_dims(draw: Draw, tensor: torch.Tensor) -> tuple[int, int]:
    """Two dimensions of a tensor that has as many, in order."""
    first = below(draw, tensor.ndim - 1)
    return first, between(draw, first + 1, tensor.ndim - 1)


def permutation(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    """The tensor's dimensions in any order."""
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
    first, second = two_dims(draw, tensor)
    return between(draw, 0, 1), first, second


def _split(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    dim = choice(draw, [d for d, n in enumerate(tensor.shape) if n])
    size = between(draw, 1, tensor.shape[dim])
    return max(size, -(-tensor.shape[dim] // 3)), dim


def _unbind(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return (choice(draw, [d for d, n in enumerate(tensor.shape) if 0 < n <= _PARTS]),)


def _sizes(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    dim = choice(draw, [d for d, n in enumerate(tensor.shape) if n])
    first = below(draw, tensor.shape[dim] + 1)
    return [first, tensor.shape[dim] - first], dim


def _unfold(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    """Windows that lie apart, touch or overlap."""
    dim = choice(draw, [d for d, n in enumerate(tensor.shape) if n])
    size = between(draw, 1, min(3, tensor.shape[dim]))
    return dim, size, between(draw, 1, 4)


def _as_strided(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return strided(draw, tensor.untyped_storage().nbytes() // tensor.itemsize)


def strided(draw: Draw, room: int) -> tuple[list[int], list[int], int]:
    """Shape, strides and offset of one or two dimensions somewhere on a storage with room for so many elements."""
    offset = below(draw, min(room, 60))
    left, shape, strides = room - offset - 1, list[int](), list[int]()
    for _ in range(between(draw, 1, 2)):
        stride = between(draw, 1, 4) if below(draw, 8) else 0
        size = between(draw, 1, min(left // stride + 1, 6) if stride else 3)
        left -= (size - 1) * stride
        shape.append(size)
        strides.append(stride)
    return shape, strides, offset


def _whole(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    """The same shape with strides and offset written out."""
    del draw
    return list(tensor.shape), list(tensor.stride()), tensor.storage_offset()


def _move(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return two_dims(draw, tensor)[::-1]


def _unflatten(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    dim = _dim(draw, tensor)
    size = tensor.shape[dim]
    return dim, choice(draw, [[1, size], *([n, size // n] for n in range(2, size) if size % n == 0)])


def other_dtypes(tensor: torch.Tensor) -> list[str]:
    """Dtypes as which the bytes can be read, so that moving them keeps them. Half types would not: NaNs are quieted."""
    if tensor.dtype not in _SAME_SIZE or tensor.is_conj() or tensor.is_neg():
        return []
    narrow = tensor.ndim > 0 and tensor.stride(-1) == 1 and tensor.numel() * tensor.itemsize <= LARGEST
    return [_SAME_SIZE[tensor.dtype], *(["uint8", "int16"] if narrow else [])]


def _dtype(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    return (constant(choice(draw, other_dtypes(tensor))),)


_SAME_SIZE = {
    torch.float32: "int32", torch.int32: "float32", torch.float64: "int64", torch.int64: "float64",
}  # fmt: skip
_PARTS = 6  # most results of one call


def _part(tensor: torch.Tensor) -> list[str]:
    return ["float32" if tensor.dtype is torch.complex64 else "float64"]


def readings(tensor: torch.Tensor, limits: Limits) -> list[torch.Tensor]:
    """The tensor's elements read as other numbers, within the limits: conjugated, or as other dtypes."""
    if tensor.is_complex():
        return [tensor.conj()]
    return [tensor.view(constant(name)) for name in other_dtypes(tensor) if limits.takes_dtype(name)]


def nothing(draw: Draw, tensor: torch.Tensor) -> tuple[Any, ...]:
    """No further arguments."""
    del draw, tensor
    return ()


def viewable(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be seen in every shape with as many elements."""
    return tensor.is_contiguous() and tensor.numel() > 0


def always(_: torch.Tensor) -> bool:
    """Whether a tensor is one."""
    return True


def ranked(rank: int) -> Callable[[torch.Tensor], bool]:
    """Whether a tensor has so many dimensions or more."""
    return lambda tensor: tensor.ndim >= rank


def filled(tensor: torch.Tensor) -> bool:
    """Whether a tensor has dimensions, and elements."""
    return tensor.ndim > 0 and tensor.numel() > 0


def parted(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be taken apart along its first dimension."""
    return tensor.ndim > 0 and 0 < tensor.shape[0] <= _PARTS


def _plain_complex(tensor: torch.Tensor) -> bool:
    return tensor.is_complex() and not tensor.is_conj()


VIEWS: tuple[View, ...] = (
    View("aten.slice.Tensor", ranked(1), _slice),
    View("aten.select.int", filled, _select),
    View("aten.view.default", viewable, _new_shape),
    View("aten.transpose.int", ranked(2), two_dims),
    View("aten.reshape.default", lambda t: t.numel() > 0, _new_shape),
    View("aten.narrow.default", ranked(1), _narrow),
    View("aten.t.default", lambda t: t.ndim == 2, nothing),
    View("aten.permute.default", ranked(2), permutation),
    View("aten.diagonal.default", ranked(2), _diagonal),
    View("aten.unsqueeze.default", lambda t: t.ndim < 5, _unsqueeze),
    View("aten.squeeze.dim", lambda t: 1 in t.shape, _squeeze),
    View("aten.expand.default", lambda t: t.ndim < 5 and t.numel() * 3 <= LARGEST, _expand),
    View("aten.split.Tensor", filled, _split),
)
MORE_VIEWS: tuple[View, ...] = (
    View("aten.as_strided.default", lambda t: t.numel() > 0, _as_strided),
    View("aten.unfold.default", lambda t: filled(t) and t.ndim < 5 and t.numel() * 3 <= LARGEST, _unfold),
    View("aten.view.dtype", lambda t: bool(other_dtypes(t)), _dtype, other_dtypes),
    View("aten._conj.default", lambda t: t.is_complex(), nothing),
    View(
        "aten.view_as_real.default",
        lambda t: _plain_complex(t) and t.ndim < 5 and t.numel() * 2 <= LARGEST,
        nothing,
        _part,
    ),
    View("aten.real.default", lambda t: t.is_complex(), nothing, _part),
    View("aten.imag.default", lambda t: t.is_complex(), nothing, _part),
    View("aten.unbind.int", lambda t: any(0 < n <= _PARTS for n in t.shape), _unbind),
    View("aten.unbind.int", parted, nothing),
    View("aten.split_with_sizes.default", filled, _sizes),
    View("aten.as_strided.default", lambda t: t.ndim > 0, _whole),
    View("aten.alias.default", always, nothing),
    View("aten.detach.default", always, nothing),
    View("aten.contiguous.default", always, nothing),
    View("aten.dropout.default", torch.is_floating_point, lambda draw, tensor: (0.5, False)),
    View("aten.squeeze.default", always, nothing),
    View("aten.movedim.int", ranked(2), _move),
    View("aten.flatten.using_ints", filled, nothing),
    View("aten.unflatten.int", filled, _unflatten),
    View("aten.mT.default", ranked(2), nothing),
)


INNER_VIEWS = tuple(view for view in MORE_VIEWS if view.arguments is not _as_strided)  # they stay within the value


def draw_view(
    draw: Draw, tensor: torch.Tensor, views: tuple[View, ...] = VIEWS, limits: Limits = EVERYTHING
) -> tuple[str, tuple[Any, ...]]:
    """A view operator that fits the tensor, and its further arguments."""
    fits = [view for view in views if view.fits(tensor)]
    if limits.narrow:
        fits = [view for view in fits if _taken(view, tensor, limits)]
    view = choice(draw, fits or [_NONE])
    arguments = view.arguments(draw, tensor)
    if view.arguments is _as_strided and not limits.overlapping_as_strided:
        arguments = _apart(tensor, *arguments)
    return view.op, arguments


def _taken(view: View, tensor: torch.Tensor, limits: Limits) -> bool:
    return view.op not in limits.banned_ops and all(map(limits.takes_dtype, view.dtypes(tensor)))


def _apart(tensor: torch.Tensor, shape: list[int], strides: list[int], offset: int) -> tuple[Any, ...]:
    """The same `as_strided`, but of one element if its results would overlap."""
    value = value_of(tensor, 0)
    found = msgspec.structs.replace(value, shape=tuple(shape), strides=tuple(strides), offset=offset)
    return ([1], [1], offset) if found.footprint.self_overlaps else (shape, strides, offset)


_NONE = View("aten.alias.default", always, nothing)
