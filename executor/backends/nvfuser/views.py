"""Views of what a region computes, as nvFuser operations: slices, permutations, broadcasts and reshapes.

nvFuser knows no strides: a value has a shape and elements in row-major order. A view is translated by its geometry, not
by its name: each of its dimensions has to step along one dimension of its operand, one element at a time. What needs
more (steps, diagonals, windows) is left to the host, where a view costs nothing: in a fusion it takes padding and
reshaping, which make several kernels and, now and then, the compiler fail.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from executor.passes.index_maps import Alignment, align

if TYPE_CHECKING:
    from executor.program import Call, Value

# Their result holds the operand's elements in the same row-major order.
RESHAPES = frozenset({
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.view_copy.default",
    "aten._reshape_copy.default", "aten.unflatten.int", "aten.flatten.using_ints", "aten.alias.default",
    "aten.detach.default",
})  # fmt: skip
# nvFuser may hand a slice from one kernel to the next as an address, and yet load 16 bytes at once from there.
ALIGNMENT = 16


def view_refusal(call: Call, operand: Value, result: Value) -> str | None:
    """Why nvFuser cannot make this view of a value that it computes; None if it can."""
    if operand.dtype != result.dtype or result.conj or result.neg:
        return f"{call.op} reads elements as others than they are"
    if (result.offset - operand.offset) * result.itemsize % ALIGNMENT:
        return f"{call.op} begins where nvFuser would load several elements at once from an address that is not aligned"
    if call.op in RESHAPES:
        return None
    found = _steps(operand, result)
    if found is None:
        return f"{call.op} gives a layout that no slices, permutations and broadcasts make"
    if sum(axis is not None for axis in found.axes) < len(squeezed(operand).shape):
        return f"{call.op} picks from a dimension, which nvFuser's compiler fails on where the rest is used beside it"
    return None


def is_part(operand: Value, result: Value) -> bool:
    """Whether a view leaves out elements of its operand."""
    return math.prod(n for n, step in zip(result.shape, result.strides, strict=True) if step) < operand.numel


def squeezed(value: Value) -> Value:
    """The value without its dimensions of size 1, on no particular storage. So nvFuser has it.

    Most faults of its compiler that random programs find have to do with such dimensions.
    """
    long = [(n, step) for n, step in zip(value.shape, value.strides, strict=True) if n != 1]
    shape, strides = tuple(n for n, _ in long), tuple(step for _, step in long)
    return msgspec.structs.replace(value, storage=0, shape=shape, strides=strides)


def _steps(operand: Value, result: Value) -> Alignment | None:
    """The view in terms of its operand's dimensions."""
    found = align(squeezed(result), squeezed(operand))
    return found if found is not None and all(axis is None or axis[1] == 1 for axis in found.axes) else None


class Views:
    """Makes views in a fusion definition, with its `ops`."""

    def __init__(self, ops: Any) -> None:
        self.ops = ops

    def view(self, call: Call, item: Any, operand: Value, result: Value) -> Any:
        """The view `result` of `operand`, which is `item` in the definition."""
        shape, new = squeezed(operand).shape, squeezed(result).shape
        if call.op in RESHAPES:
            return item if shape == new else self.ops.reshape(item, list(new))
        found = _steps(operand, result)
        assert found is not None, "refused by the rules"
        sizes = {axis[0]: size for axis, size in zip(found.axes, new, strict=True) if axis}
        stops = [start + sizes.get(dim, 1) for dim, start in enumerate(found.starts)]
        if any(found.starts) or tuple(stops) != shape:
            item = self.ops.slice(item, list(found.starts), stops)
        dropped = [dim for dim in range(len(shape)) if dim not in sizes]
        if dropped:
            item = self.ops.squeeze(item, dropped)
        kept = sorted(sizes)
        order = [kept.index(axis[0]) for axis in found.axes if axis]
        if order != sorted(order):
            item = self.ops.permute(item, order)
        dims = [d for d, axis in enumerate(found.axes) if axis]
        return item if len(dims) == len(new) else self.ops.broadcast_in_dim(item, list(new), dims)
