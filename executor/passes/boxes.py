"""Parts of a value that step along its dimensions, and what an element-wise operator makes of one part alone.

A box keeps all dimensions of the value, also those along which it has one index only. So a part of an operand broadcasts
like the operand and promotes types like it, and the operator computes for the part what it would have computed there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

from executor.memory_ssa import footprint
from executor.passes.index_maps import Alignment, align, along
from executor.schema import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.builder import Builder
    from executor.program import Call, Source, Value

# They raise for some integers, such as a zero to divide by.
_PARTIAL_ON_INTEGERS = frozenset({"div", "floor_divide", "remainder", "fmod", "pow"})
_COPIES = frozenset({"clone", "_to_copy"})


class Box(NamedTuple):
    """For each dimension of a value the first index, the step, and how many indices."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]

    def within(self, whole: Value) -> Value:
        """The part's own geometry, on the storage of the whole."""
        offset = whole.offset + sum(start * step for start, step in zip(self.starts, whole.strides, strict=True))
        strides = tuple(step * stride for step, stride in zip(self.steps, whole.strides, strict=True))
        return msgspec.structs.replace(whole, shape=self.counts, strides=strides, offset=offset)

    def meets(self, other: Box) -> bool:
        """Whether two parts of one value may have an index in common: whether their ranges do."""
        sides = zip(self.starts, self.ends, other.starts, other.ends, strict=True)
        return all(start < end_of_other and start_of_other < end for start, end, start_of_other, end_of_other in sides)

    @property
    def ends(self) -> tuple[int, ...]:
        """For each dimension one past the last index."""
        steps = zip(self.starts, self.steps, self.counts, strict=True)
        return tuple(start + step * (count - 1) + 1 for start, step, count in steps)

    def under(self, shape: tuple[int, ...]) -> Box:
        """The same part of an operand of this shape, which is broadcast to that of the value."""
        skipped = len(self.counts) - len(shape)
        kept = [
            (0, 1, 1) if size == 1 else dim
            for size, dim in zip(shape, list(zip(*self, strict=True))[skipped:], strict=True)
        ]
        starts, steps, counts = zip(*kept, strict=True) if kept else ((), (), ())
        return Box(starts, steps, counts)


def box_of(part: Value, whole: Value) -> Box | None:
    """Which box of a value that doesn't overlap itself a view of its memory is, whatever the order of dimensions.

    A dimension along which the view doesn't move repeats the box. None if it is no box.
    """
    plain = not (part.conj or part.neg or whole.conj or whole.neg)
    alignment = align(part, whole) if plain and part.dtype == whole.dtype and part.numel else None
    if alignment is None:
        return None
    steps, counts = [1] * len(whole.shape), [1] * len(whole.shape)
    for axis, size in zip(alignment.axes, part.shape, strict=True):
        if axis is not None:
            steps[axis[0]], counts[axis[0]] = axis[1], size
    return Box(tuple(alignment.starts), tuple(steps), tuple(counts))


def restricted(builder: Builder, value: int, box: Box, source: Source | None) -> int:
    """Appends views that give a part of a value."""
    for dim, (start, end, step) in enumerate(zip(box.starts, box.ends, box.steps, strict=True)):
        if (start, end, step) != (0, builder.values[value].shape[dim], 1):
            value = builder.view("aten.slice.Tensor", value, dim, start, end, step, source=source)
    return value


def turned(builder: Builder, value: int, wanted: Value, given: Value, source: Source | None) -> int | None:
    """Appends views of a value laid out like `given` that show it as `wanted`, which has the same places in memory.

    None if no views do.
    """
    alignment = align(wanted, given)
    return None if alignment is None else along(builder, value, wanted, alignment, source)


def shown(builder: Builder, value: int, part: Value, whole: Value, source: Source | None) -> int:
    """Appends views of a box of `whole` that show it as `part`, of which `box_of` gave that box."""
    alignment = align(part, whole)
    assert alignment is not None, "it is a box"
    axes = [None if axis is None else (axis[0], 1) for axis in alignment.axes]
    return along(builder, value, part, Alignment([0] * len(whole.shape), axes), source)


def element_wise(call: Call, values: Sequence[Value]) -> bool:
    """Whether the call returns one tensor, each element of which depends on its operands there, broadcast, alone."""
    known = call.op.split(".")[1] in _COPIES or torch.Tag.pointwise in resolve(call.op).tags
    if not known or len(call.results) != 1:
        return False
    shape = values[call.results[0]].shape
    return all(footprint(values[v]).broadcast_to(shape) is not None for v in call.operands)


def total(call: Call, values: Sequence[Value]) -> bool:
    """Whether the operator has a result for whatever its operands hold."""
    known = values[call.results[0]].torch_dtype
    return known.is_floating_point or known.is_complex or call.op.split(".")[1] not in _PARTIAL_ON_INTEGERS
