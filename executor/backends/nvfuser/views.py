"""Views of what a region computes, as nvFuser operations: slices, permutations, broadcasts and reshapes.

nvFuser knows no strides: a value has a shape and elements in row-major order. A view is translated by its geometry, not
by its name. If each of its dimensions steps along one dimension of its operand, it is a slice, a permutation and a
broadcast. Otherwise (a diagonal, a window) it is a strided *walk* through the operand in row-major order, which padding,
reshaping and slicing can follow, if the walk's dimensions nest within one another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from executor.passes.index_maps import align
from executor.program import Value, contiguous_strides

if TYPE_CHECKING:
    from executor.program import Call

# Their result holds the operand's elements in the same row-major order.
RESHAPES = frozenset({
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.view_copy.default",
    "aten._reshape_copy.default", "aten.unflatten.int", "aten.flatten.using_ints", "aten.alias.default",
    "aten.detach.default",
})  # fmt: skip


# nvFuser may hand a slice from one kernel to the next as an address, and yet load 16 bytes at once from there.
ALIGNMENT = 16


class Walk(NamedTuple):
    """Strided positions in a flat value: offset, and (size, stride) from the outermost dimension to the innermost.

    `order`: which dimension of the view each of them is. Dimensions that don't move are left out.
    """

    offset: int
    steps: tuple[tuple[int, int], ...]
    order: tuple[int, ...]

    def extent(self, level: int = 0) -> int:
        """The stretch that the dimensions from this one inwards span."""
        return 1 + sum((n - 1) * step for n, step in self.steps[level:])


def walk(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, count: int) -> Walk | None:
    """The walk of a view of `count` elements in row-major order; None if its dimensions don't nest, or leave it."""
    order = sorted((d for d, n in enumerate(shape) if n > 1 and strides[d]), key=lambda d: -strides[d])
    found = Walk(offset, tuple((shape[d], strides[d]) for d in order), tuple(order))
    nests = all(found.extent(k + 1) <= step for k, (_, step) in enumerate(found.steps))
    return found if nests and offset >= 0 and offset + found.extent() <= count else None


def view_refusal(call: Call, operand: Value, result: Value) -> str | None:
    """Why nvFuser cannot make this view of a value that it computes; None if it can."""
    if operand.dtype != result.dtype or result.conj or result.neg:
        return f"{call.op} reads elements as others than they are"
    if (result.offset - operand.offset) * result.itemsize % ALIGNMENT:
        return f"{call.op} begins where nvFuser would load several elements at once from an address that is not aligned"
    operand, result = squeezed(operand), squeezed(result)
    if call.op in RESHAPES:
        return None
    found = align(result, operand)
    if found is None and _flat_walk(operand, result) is None:
        return f"{call.op} gives a layout that no slices, permutations and reshapes make"
    if result.dtype == "bool" and (found is None or any(axis and axis[1] != 1 for axis in found.axes)):
        return f"{call.op} needs padding, which fails for bool"
    return None


def squeezed(value: Value) -> Value:
    """The value without its dimensions of size 1, on no particular storage. So nvFuser has it.

    Most faults of its compiler that random programs find have to do with such dimensions.
    """
    long = [(n, step) for n, step in zip(value.shape, value.strides, strict=True) if n != 1]
    shape, strides = tuple(n for n, _ in long), tuple(step for _, step in long)
    return msgspec.structs.replace(value, storage=0, shape=shape, strides=strides)


def _flat_walk(operand: Value, result: Value) -> Walk | None:
    if operand.strides != contiguous_strides(operand.shape):
        return None
    return walk(result.shape, result.strides, result.offset - operand.offset, operand.numel)


class Views:
    """Makes views in a fusion definition, with its `ops`."""

    def __init__(self, ops: Any) -> None:
        self.ops = ops

    def view(self, call: Call, item: Any, operand: Value, result: Value) -> Any:
        """The view `result` of `operand`, which is `item` in the definition."""
        operand, result = squeezed(operand), squeezed(result)
        if call.op in RESHAPES:
            return self.reshape(item, operand.shape, result.shape)
        found = align(result, operand)
        if found is None:
            steps = _flat_walk(operand, result)
            assert steps is not None, "refused by the rules"
            return self.follow(self.reshape(item, operand.shape, (operand.numel,)), operand.numel, steps, result.shape)
        shape = list(operand.shape)
        moving = {axis[0]: (axis[1], size) for axis, size in zip(found.axes, result.shape, strict=True) if axis}
        for dim, start in enumerate(found.starts):
            step, size = moving.get(dim, (1, 1))
            item = self._stepped(item, shape, dim, (start, step, size))
        dropped = [dim for dim in range(len(shape)) if dim not in moving]
        if dropped:
            item = self.ops.squeeze(item, dropped)
        kept = sorted(moving)
        order = [kept.index(axis[0]) for axis in found.axes if axis]
        if order != sorted(order):
            item = self.ops.permute(item, order)
        return self._broadcast(item, result.shape, [d for d, axis in enumerate(found.axes) if axis])

    def reshape(self, item: Any, shape: tuple[int, ...], new: tuple[int, ...]) -> Any:
        """The same elements in row-major order under another shape."""
        return item if shape == new else self.ops.reshape(item, list(new))

    def _broadcast(self, item: Any, shape: tuple[int, ...], dims: list[int]) -> Any:
        return item if len(dims) == len(shape) else self.ops.broadcast_in_dim(item, list(shape), dims)

    def _slice(self, item: Any, shape: list[int], dim: int, start: int, stop: int) -> Any:
        """Slices one dimension, and says so in `shape`."""
        if (start, stop) == (0, shape[dim]):
            return item
        starts = [start if d == dim else 0 for d in range(len(shape))]
        stops = [stop if d == dim else n for d, n in enumerate(shape)]
        shape[dim] = stop - start
        return self.ops.slice(item, starts, stops)

    def _stepped(self, item: Any, shape: list[int], dim: int, where: tuple[int, int, int]) -> Any:
        """Slices one dimension from a start by steps: rows of a step's length, of which the first column is kept."""
        start, step, size = where
        if step == 1 or size == 1:
            return self._slice(item, shape, dim, start, start + size)
        item = self._slice(item, shape, dim, start, min(start + step * size, shape[dim]))
        item = self._pad(item, shape, dim, step * size)
        rows = [*shape[:dim], size, step, *shape[dim + 1 :]]
        item = self.ops.reshape(item, list(rows))
        item = self._slice(item, rows, dim + 1, 0, 1)
        shape[dim] = size
        return self.ops.squeeze(item, [dim + 1])

    def _pad(self, item: Any, shape: list[int], dim: int, size: int) -> Any:
        """Zeros behind the elements of one dimension up to this size, and says so in `shape`."""
        more = size - shape[dim]
        if not more:
            return item
        shape[dim] = size
        # Widths are given from the last dimension backwards, two each.
        return self.ops.pad(item, [*[0, 0] * (len(shape) - 1 - dim), 0, more])

    def follow(self, flat: Any, count: int, steps: Walk, shape: tuple[int, ...]) -> Any:
        """The elements of a flat value along a walk, in this shape."""
        now = [count]
        item = self._slice(flat, now, 0, steps.offset, steps.offset + steps.extent())
        for k, (size, step) in enumerate(steps.steps):
            if step == 1:  # the innermost dimension, whose elements lie side by side
                break
            item = self._pad(item, now, k, size * step)
            now = [*now[:k], size, step]
            item = self.ops.reshape(item, list(now))
            item = self._slice(item, now, k + 1, 0, steps.extent(k + 1))
        else:
            item = self.ops.squeeze(item, [len(now) - 1])
        order = [steps.order.index(d) for d in sorted(steps.order)]
        if order != sorted(order):
            item = self.ops.permute(item, order)
        return self._broadcast(item, shape, sorted(steps.order))

    def scatter(self, flat: Any, count: int, source: Any, steps: Walk, shape: tuple[int, ...]) -> Any:
        """A flat value with the elements along a walk replaced by those of `source`, which has this shape."""
        mask = self._mask(count, steps)
        dropped = [d for d, n in enumerate(shape) if d not in steps.order]
        source = self.ops.squeeze(source, dropped) if dropped else source
        kept = sorted(steps.order)
        order = [kept.index(d) for d in steps.order]
        if order != sorted(order):
            source = self.ops.permute(source, order)
        if not steps.steps:
            return self.ops.where(mask, self.ops.broadcast(source, [True]), flat)
        return self.ops.where(mask, self._spread(source, count, steps), flat)

    def _spread(self, source: Any, count: int, steps: Walk) -> Any:
        """The source's elements where a walk through a flat value puts them, with zeros between."""
        now = [n for n, _ in steps.steps]
        for k in range(len(steps.steps) - 1, -1, -1):
            size, step = steps.steps[k]
            if k == len(steps.steps) - 1 and step > 1:
                now.append(1)
                source = self.ops.broadcast(source, [False] * (len(now) - 1) + [True])
            if step > 1:
                source = self._pad(source, now, len(now) - 1, step)
                now = [*now[:k], size * step]
                source = self.ops.reshape(source, list(now))
            source = self._slice(source, now, k, 0, steps.extent(k))
        before, after = steps.offset, count - steps.offset - steps.extent()
        return self.ops.pad(source, [before, after]) if before or after else source

    def _mask(self, count: int, steps: Walk) -> Any:
        """Which elements of a flat value a walk meets."""
        ops = self.ops
        place = ops.iota(count)
        if steps.offset:
            place = ops.sub(place, steps.offset)
        if not steps.steps:
            return ops.eq(place, 0)
        found = ops.logical_and(ops.ge(place, 0), ops.lt(place, steps.extent()))
        for k, (_, step) in enumerate(steps.steps):
            inner = steps.extent(k + 1)
            if inner < step:
                place = ops.remainder(place, step)
                found = ops.logical_and(found, ops.lt(place, inner))
            elif step > 1:
                place = ops.remainder(place, step)
        return found
