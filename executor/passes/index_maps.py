"""A read of a part of what was written, as view operators on the written value.

The written value has the write's shape, not its place in memory, so the read's strides and offset have to be translated
into slices, selects, a permutation and expansions of the value's own dimensions. That works whenever each dimension of
the read steps along one dimension of the write. For the rest (a diagonal, a reshaped window) the read is listed element
by element, and becomes an `as_strided` of the value in row-major order if it turns out to be regular there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from executor.builder import sizes
from executor.geometry import Overlap, index_map
from executor.memory_ssa import footprint
from executor.program import contiguous_strides

if TYPE_CHECKING:
    import numpy.typing as npt

    from executor.builder import Builder
    from executor.program import Source, Value

# Reads of up to this many elements are listed where dimensions don't tell.
_LISTED = 1 << 16


class Alignment(NamedTuple):
    """A read within a write, dimension by dimension.

    `starts`: the write's index at the read's first element. `axes`: for each dimension of the read the write's
    dimension along which it steps and its step there; None for one that doesn't move.
    """

    starts: list[int]
    axes: list[tuple[int, int] | None]


def project(builder: Builder, value: int, read: Value, write: Value, how: Overlap, source: Source | None) -> int | None:
    """Appends views of `value`, what was written to `write`, that give what `read` sees there; None if none do.

    `how` is their overlap, MUST_ALIAS or CONTAINED.
    """
    found = _elements(builder, value, read, write, how, source)
    if found is None:
        return None
    # The value is the logical one, so only a bit in which the read differs from the write shows.
    if read.conj != write.conj:
        found = builder.view("aten._conj.default", found, source=source)
    if read.neg != write.neg:
        found = builder.view("aten._neg_view.default", found, source=source)
    return found


def _elements(
    builder: Builder, value: int, read: Value, write: Value, how: Overlap, source: Source | None
) -> int | None:
    if read.shape == write.shape and _same_places(read, write):
        return value
    if how is Overlap.MUST_ALIAS:
        return builder.view("aten.reshape.default", value, sizes(read.shape), source=source)
    alignment = align(read, write)
    if alignment is not None:
        return along(builder, value, read, alignment, source)
    regular = row_major_walk(read, write)
    if regular is None:
        return None
    offset, strides = regular
    dense = builder.dense(value, source)
    return builder.view("aten.as_strided.default", dense, sizes(read.shape), sizes(strides), offset, source=source)


def _same_places(a: Value, b: Value) -> bool:
    steps = zip(a.shape, a.strides, b.strides, strict=True)
    return a.offset == b.offset and all(n == 1 or s == t for n, s, t in steps)


def align(read: Value, write: Value) -> Alignment | None:
    """The read in terms of the write's dimensions. None if some dimension of it follows no single one of these."""
    starts = _index_at(read.offset - write.offset, write)
    if starts is None:
        return None
    axes: list[tuple[int, int] | None] = []
    for size, stride in zip(read.shape, read.strides, strict=True):
        axis = None
        if size > 1 and stride:
            axis = _axis(size, stride, write, starts, axes)
            if axis is None:
                return None
        axes.append(axis)
    return Alignment(starts, axes)


def _axis(
    size: int, stride: int, write: Value, starts: list[int], taken: list[tuple[int, int] | None]
) -> tuple[int, int] | None:
    """The write's dimension, not taken yet, along which a read dimension steps without leaving it, and the step."""
    for dim, (length, unit) in enumerate(zip(write.shape, write.strides, strict=True)):
        if length == 1 or not unit or stride % unit or any(axis and axis[0] == dim for axis in taken):
            continue
        if starts[dim] + stride // unit * (size - 1) < length:
            return dim, stride // unit
    return None


def _index_at(distance: int, write: Value) -> list[int] | None:
    """The write's index at this distance from its first element; None if it has none, or if its strides don't nest."""
    index = [0] * len(write.shape)
    below = sum((n - 1) * s for n, s in zip(write.shape, write.strides, strict=True))
    if not 0 <= distance <= below:
        return None
    for dim in sorted(range(len(index)), key=lambda d: -write.strides[d]):
        size, stride = write.shape[dim], write.strides[dim]
        if size == 1:
            continue
        below -= (size - 1) * stride
        if stride <= below:
            return None
        index[dim], distance = divmod(distance, stride)
        if index[dim] >= size:
            return None
    return index if distance == 0 else None


def along(builder: Builder, value: int, read: Value, alignment: Alignment, source: Source | None) -> int:
    """Slices along the dimensions that the read walks, a select along the others, then the read's own order."""
    moving = {axis[0]: (axis[1], size) for axis, size in zip(alignment.axes, read.shape, strict=True) if axis}
    kept: list[int] = []
    for dim, start in enumerate(alignment.starts):
        if dim not in moving:
            value = builder.view("aten.select.int", value, len(kept), start, source=source)
            continue
        step, size = moving[dim]
        stop = start + step * (size - 1) + 1
        if (start, stop, step) != (0, builder.values[value].shape[len(kept)], 1):
            value = builder.view("aten.slice.Tensor", value, len(kept), start, stop, step, source=source)
        kept.append(dim)
    order = [kept.index(axis[0]) for axis in alignment.axes if axis]
    if order != sorted(order):
        value = builder.view("aten.permute.default", value, sizes(order), source=source)
    for dim, axis in enumerate(alignment.axes):
        if axis is None:
            value = builder.view("aten.unsqueeze.default", value, dim, source=source)
    return builder.expand(value, read.shape, source)


def row_major_walk(read: Value, write: Value) -> tuple[int, tuple[int, ...]] | None:
    """Offset and strides of the read in the row-major order of a write that contains it.

    None if it isn't contained, isn't regular there, or is too long to find out.
    """
    if read.dtype != write.dtype or not read.numel:
        return None
    alignment = align(read, write)
    if alignment is not None:
        weights = contiguous_strides(write.shape)
        offset = sum(start * weight for start, weight in zip(alignment.starts, weights, strict=True))
        return offset, tuple(weights[axis[0]] * axis[1] if axis else 0 for axis in alignment.axes)
    if read.numel > _LISTED:
        return None
    found = index_map(footprint(read), footprint(write))
    if found is None:
        return None
    grid = found.reshape(read.shape)
    origin = int(grid.flat[0])
    strides = tuple(_step(grid, dim) - origin if grid.shape[dim] > 1 else 1 for dim in range(grid.ndim))
    if any(step < 0 for step in strides) or not np.array_equal(grid, _walk(origin, read.shape, strides)):
        return None
    return origin, strides


def _step(grid: npt.NDArray[np.int64], dim: int) -> int:
    return int(grid[tuple(int(d == dim) for d in range(grid.ndim))])


def _walk(origin: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> npt.NDArray[np.int64]:
    total = np.full((), origin, dtype=np.int64)
    for size, stride in zip(shape, strides, strict=True):
        total = np.add.outer(total, np.arange(size, dtype=np.int64) * stride)
    return total
