"""Blending: a read that several writes reach, or that one reaches in part, computed without going through memory.

One uniform lowering: the window of the storage that the read and its writes span is a flat value; each write, from the
oldest to the newest, is scattered into it by its strides and offset (`as_strided_scatter`, a select between the newer
value and what lay below); the read is a strided view of the result. If the oldest write covers the read, or all of them
together do, what lies below is of no interest; else the window starts as what memory holds before those writes. A
special form pays where all writes lie within the read: then the read's own value, not the window, is what they are
scattered into.

What cannot be blended stays a read of memory, and will need a barrier: other dtypes on the same bytes, writes by calls
of which only memory knows the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from executor.builder import Builder
from executor.geometry import Overlap
from executor.memory_ssa import MemorySSA, footprint
from executor.passes.index_maps import project, row_major_walk
from executor.passes.writeback import Remainder
from executor.program import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from executor.memory_ssa import Reach
    from executor.program import Call, Program, Source


class Layer(NamedTuple):
    """One write that a read sees: where it went, the value that it stored, and how the read lies to it."""

    target: Value
    stored: int
    overlap: Overlap


class Blend(NamedTuple):
    """A read that can be blended: the layers from the oldest to the newest, and the flat frame that they are put in.

    `own`: the frame is the read itself. `walks`: offset and strides of each layer within the frame. `first`: the call
    before which memory is read, if the layers don't cover the read; `base`: a value through which to read it.
    `temporary`: the memory is the program's own.
    """

    read: Value
    layers: tuple[Layer, ...]
    frame: Value
    own: bool
    walks: tuple[tuple[int, tuple[int, ...]], ...]
    first: int
    base: int | None
    temporary: bool

    @property
    def bytes_moved(self) -> int:
        """Bytes that the blend reads and writes beside the stored values, which it has at hand."""
        frame = self.frame.numel * self.frame.itemsize
        return (1 if self.base is not None else 0) * frame + frame


def blend(program: Program, choose: Callable[[Blend], bool]) -> Program:
    """The same program with those reads blended that can be, and that `choose` wants blended."""
    memory = MemorySSA.of(program)
    reaching = memory.reaching_writes()
    if not reaching:
        return program
    builder = Builder(program)
    chunks: list[list[Call]] = []
    before: dict[int, list[Call]] = {}
    for i, call in enumerate(program.calls):
        builder.calls = []
        what, new = memory.accesses[i], {}
        for value in what.reads if not what.writes else ():
            plan = plan_blend(memory, value, reaching[i, value]) if (i, value) in reaching else None
            if plan is not None and choose(plan):
                new[value] = _lower(builder, plan, call.source, before)
        builder.replace_operands(call, new)
        chunks.append(builder.calls)
    if len(builder.values) == len(program.values):
        return program  # a blend makes values
    builder.calls = [call for i, chunk in enumerate(chunks) for call in (*before.get(i, ()), *chunk)]
    return builder.finish()


def plan_blend(memory: MemorySSA, read: int, reach: list[Reach]) -> Blend | None:
    """How to blend a read of memory that these writes reach, newest first; None if there is nothing to, or no way."""
    values = memory.program.values
    geometry = values[read]
    layers: list[Layer] = []
    for write, how in reach:
        stored, target = memory.stored(write.call), values[write.value]
        if stored is None:
            break
        if target.dtype != geometry.dtype:
            return None
        layers.append(Layer(target, stored, how))
    if not layers:
        return None
    below = reach[len(layers) :]
    first = reach[len(layers) - 1].write.call
    covered = layers[-1].overlap is not Overlap.PARTIAL
    base = None
    if not covered and not _together(geometry, layers):
        base = _base(memory, geometry, first)
        if base is None or any(memory.stored(write.call) is not None for write, _ in below):
            return None
    layers.reverse()
    inner = _walks_in_read(geometry, layers, covered=covered)
    frame, walks = (geometry, inner) if inner is not None else _window(geometry, layers)
    return Blend(
        geometry, tuple(layers), frame, inner is not None, walks, first, base, geometry.storage not in memory.entry
    )


def _together(read: Value, layers: list[Layer]) -> bool:
    """Whether layers none of which covers the read do so together."""
    if sum(layer.target.numel for layer in layers) < read.numel:
        return False
    left = Remainder(footprint(read))
    for layer in layers:
        left.subtract(footprint(layer.target))
    return left.empty


def _base(memory: MemorySSA, read: Value, before: int) -> int | None:
    """A value on the read's storage, of its dtype, that exists before a call."""
    program = memory.program
    for index, value in enumerate(program.values):
        if value.storage == read.storage and value.dtype == read.dtype and not (value.conj or value.neg):
            maker = memory.maker.get(index, -1 if value.storage in memory.entry else len(program.calls))
            if maker < before:
                return index
    return None


Walks = tuple[tuple[int, tuple[int, ...]], ...]


def _walks_in_read(read: Value, layers: list[Layer], *, covered: bool) -> Walks | None:
    """Where the layers lie within the read, if all of them (but one that covers it) do and nothing is lazy."""
    if footprint(read).self_overlaps or any(v.conj or v.neg for v in (read, *(layer.target for layer in layers))):
        return None
    if covered and layers[0].overlap is not Overlap.MUST_ALIAS and row_major_walk(read, layers[0].target) is None:
        return None
    walks = [row_major_walk(layer.target, read) for layer in layers[1 if covered else 0 :]]
    if any(walk is None for walk in walks):
        return None
    return tuple(walk for walk in walks if walk is not None)


def _window(read: Value, layers: list[Layer]) -> tuple[Value, Walks]:
    """The stretch of the storage that the read and all layers span."""
    touched = (read, *(layer.target for layer in layers))
    start = min(value.offset for value in touched)
    count = max(value.end for value in touched) // read.itemsize - start
    walks = tuple((layer.target.offset - start, layer.target.strides) for layer in layers)
    return Value(read.storage, read.dtype, (count,), (1,), start), walks


def _lower(builder: Builder, plan: Blend, source: Source | None, before: dict[int, list[Call]]) -> int:
    """Appends the blend; its load of memory, if it needs one, goes before the first write that is blended."""
    if plan.own:
        return _lower_in_read(builder, plan, source, before)
    if plan.base is not None:
        flat = _load(builder, plan, source, before)
    else:
        flat = builder.full(plan.frame, plan.frame.shape, 0, source)
    for layer, walk in zip(plan.layers, plan.walks, strict=True):
        flat = _scatter(builder, flat, layer, _lazy(builder, layer.stored, layer.target, source), walk, source)
    read = plan.read
    found = builder.as_strided(flat, read, read.offset - plan.frame.offset, source)
    return _lazy(builder, found, read, source)


def _lower_in_read(builder: Builder, plan: Blend, source: Source | None, before: dict[int, list[Call]]) -> int:
    layers = list(plan.layers)
    if plan.base is not None:
        dense = _load(builder, plan, source, before)
    elif layers[0].overlap is Overlap.PARTIAL:
        dense = builder.full(plan.frame, plan.frame.shape, 0, source)
    else:
        below = layers.pop(0)
        seen = project(builder, below.stored, plan.read, below.target, below.overlap, source)
        assert seen is not None, "planned as expressible"
        dense = builder.dense(seen, source)
    flat = builder.reshaped(dense, (plan.read.numel,), source)
    for layer, walk in zip(layers, plan.walks, strict=True):
        flat = _scatter(builder, flat, layer, layer.stored, walk, source)
    return builder.reshaped(flat, plan.read.shape, source)


def _load(builder: Builder, plan: Blend, source: Source | None, before: dict[int, list[Call]]) -> int:
    """The frame as memory holds it before the first write that is blended."""
    assert plan.base is not None
    here, builder.calls = builder.calls, before.setdefault(plan.first, [])
    frame = plan.frame
    view = builder.as_strided(plan.base, frame, frame.offset, source)
    found = builder.dense(view, source)
    builder.calls = here
    return found


def _scatter(
    builder: Builder, flat: int, layer: Layer, stored: int, walk: tuple[int, tuple[int, ...]], source: Source | None
) -> int:
    offset, strides = walk
    where = msgspec.structs.replace(layer.target, strides=strides, offset=offset)
    return builder.scattered(flat, stored, where, source)


def _lazy(builder: Builder, value: int, where: Value, source: Source | None) -> int:
    """Between a logical value and what lies in memory under the lazy bits of `where`."""
    if where.conj:
        value = builder.view("aten._conj.default", value, source=source)
    if where.neg:
        value = builder.view("aten._neg_view.default", value, source=source)
    return value
