"""Which elements of one target each element of a region's values depends on: the region's index maps, composed.

This decides what shapes alone don't tell: whether a value that went through reshapes, transpositions, selections and
scatters meets the target at its own position again, or not at all. Elements are listed, so it is for small tensors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from executor.args import refs, to_python
from executor.facts import MOVES, facts
from executor.geometry import index_map
from executor.memory_ssa import footprint
from executor.schema import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from executor.memory_ssa import MemorySSA
    from executor.program import Call, Value

    # For each element of a value, in row-major order, the row-major position in the target; -1 where there is none.
    Positions = npt.NDArray[np.int64]

# Values of up to this many elements are listed.
LISTED = 1 << 12
# An element may depend on so many elements of the target before it is given up.
_MOST = 4
_ELSEWHERE = -2  # a position that is nobody's own
# Their results hold what their operand holds, in the same row-major order, if they have as many elements. A reduction
# has as many where every dimension that it reduces has size 1; a fuser makes a move of it.
REDUCTIONS = frozenset({"sum", "mean", "prod", "amax", "amin", "any", "all"})
_IN_ORDER = (MOVES - {"permute_copy"}) | REDUCTIONS


class _Unknown(Exception):
    """The dependence of some element cannot be listed."""


class _Order(NamedTuple):
    """How results of an operator follow their operands: element by element, or in row-major order if as many."""

    elementwise: bool
    in_order: bool


@lru_cache(maxsize=4096)
def _order(op: str) -> _Order:
    in_order = op.split(".")[1] in _IN_ORDER
    return _Order(torch.Tag.pointwise in resolve(op).tags or (facts(op).move and in_order), in_order)


def elementwise(call: Call) -> bool:
    """Whether each element of the results depends on the operands' elements at its own position, broadcast, alone."""
    return _order(call.op).elementwise


def crosses(call: Call, values: Sequence[Value]) -> bool:
    """Whether an element of a result may combine several elements of an operand: other threads read them, at any time."""
    order, operands = _order(call.op), call.operands
    if order.elementwise or not call.results or call.op == "aten.as_strided_scatter.default":
        return False
    in_order = order.in_order and values[operands[0]].numel == values[call.results[0]].numel
    return not in_order and any(values[v].numel > 1 for v in operands)


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without its dimensions of size 1: what tells the threads of a kernel apart."""
    return tuple(n for n in shape if n != 1)


def at_own_positions(memory: MemorySSA, region: set[int], store: int, late: set[int]) -> bool:
    """Whether whatever leaves the region depends, of the target of `store`, on what lies at its own position only.

    Such an element is computed by the thread that overwrites what it depends on. For that, outputs and all on the way
    to them must have the target's shape, up to dimensions of size 1; the stored value alone may come through any
    shapes, since it cannot be stored before it is known. Nor may they wait for a reduction, even one of something else:
    threads that wait may load the target again when they go on (seen on nvFuser for `T * sum(X)`). Nor may an output that depends on the target be reached from
    it by moves alone: it might be the target. `late` are inputs for which the stored value does not wait, so that what is
    read of the target through them may be read too late. False if in doubt.
    """
    try:
        return _Listing(memory, region, store, late).is_safe()
    except _Unknown:
        return False


class _Listing:
    """The dependences of the values of one region on the target of one store."""

    def __init__(self, memory: MemorySSA, region: set[int], store: int, late: set[int]) -> None:
        self.memory, self.region, self.store, self.late = memory, region, store, late
        self.program, self.values = memory.program, memory.program.values
        self.target = self.values[memory.accesses[store].writes[0]]
        self.shape = squeezed(self.target.shape)
        self.made = {self.values[r].storage: r for i in region for r in self.program.calls[i].results}
        self.found: dict[int, list[Positions]] = {}
        self.copies: set[int] = set()
        # Results that other threads than those of the target compute from it, or that come from those.
        self.detours: set[int] = set()
        self.waiting: set[int] = set()  # the storages of results that wait for a reduction
        if len(self.made) != sum(len(self.program.calls[i].results) for i in region):
            raise _Unknown  # two results on one storage
        for i in sorted(region):
            self._call(self.program.calls[i], self.memory.accesses[i].reads)

    def is_safe(self) -> bool:
        """Whether neither the stored value nor anything else that leaves the region depends on another position."""
        stored = self.memory.stored(self.store)
        if stored is None or not all(_in_place(found, np.arange(len(found))) for found in self.of(stored)):
            return False
        return all(self._may_leave(v) for v in self._leaving())

    def _leaving(self) -> Iterator[int]:
        for i, call in enumerate(self.program.calls):
            if i not in self.region and i != self.store and not self.memory.accesses[i].address:
                yield from call.operands
        yield from refs(self.program.outputs)

    def _may_leave(self, v: int) -> bool:
        """Of a value that is needed outside; what leaves the region is the result of which it is a view."""
        found = self.of(v) if self.values[v].storage in self.made else []
        if not found:
            return True
        result = self.made[self.values[v].storage]
        if result in self.copies or result in self.detours or self.values[v].storage in self.waiting:
            return False
        own = self._within(v, result)
        return all(_in_place(one, own) for one in found)

    def of(self, v: int) -> list[Positions]:
        """What each element of a value that the region uses may depend on: any of the positions that are listed."""
        value = self.values[v]
        result = self.made.get(value.storage)
        if result is None:
            if value.storage != self.target.storage:
                return []
            found = self._in_target(value)
            return _kept([np.where(found == -1, -1, _ELSEWHERE) if v in self.late else found])
        if result not in self.found or not value.numel:
            return []
        if v == result:
            return self.found[v]
        where = self._within(v, result)
        return _kept([found[where] for found in self.found[result]])

    def _within(self, view: int, result: int) -> Positions:
        """The positions of a view's elements in the result of which it is one."""
        if view == result:
            return np.arange(self.values[result].numel)
        where = index_map(footprint(self.values[view]), footprint(self.values[result]))
        if where is None:
            raise _Unknown
        return where

    def _in_target(self, value: Value) -> Positions:
        if value.itemsize != self.target.itemsize or max(value.numel, self.target.numel) > LISTED:
            raise _Unknown
        if value == self.target:
            return np.arange(value.numel)
        places, wanted = footprint(self.target).offsets(), footprint(value).offsets()
        if not len(places):
            return np.full(value.numel, -1)
        order = np.argsort(places)
        places = places[order]
        nearest = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
        return np.where(places[nearest] == wanted, order[nearest], -1)

    def _call(self, call: Call, reads: tuple[int, ...]) -> None:
        crossing = crosses(call, self.values)
        if crossing or not self.waiting.isdisjoint(self.values[v].storage for v in reads):
            self.waiting.update(self.values[r].storage for r in call.results)
        operands = {v: found for v in reads if (found := self.of(v))}
        if not operands:
            return
        for r in call.results:
            if self.values[r].numel > LISTED:
                raise _Unknown
            found = _kept(list(self._computed(call, self.values[r], operands)))
            if len(found) > _MOST:
                raise _Unknown
            if found:
                self.found[r] = found
        passed = not self.detours.isdisjoint(self.made.get(self.values[v].storage) for v in operands)
        self.detours.update(r for r in call.results if passed or squeezed(self.values[r].shape) != self.shape)
        if _order(call.op).in_order and not crossing:
            moved = {self.values[v].dtype for v in operands if self._is_copy(v)}
            self.copies.update(r for r in call.results if self.values[r].dtype in moved)

    def _is_copy(self, v: int) -> bool:
        storage = self.values[v].storage
        return storage not in self.made or self.made[storage] in self.copies

    def _computed(self, call: Call, result: Value, operands: dict[int, list[Positions]]) -> Iterator[Positions]:
        first, order = call.operands[0], _order(call.op)
        if order.in_order and self.values[first].numel == result.numel:
            yield from operands.get(first, ())
        elif order.elementwise:
            for v, found in operands.items():
                shape = self.values[v].shape
                if footprint(self.values[v]).broadcast_to(result.shape) is None:
                    raise _Unknown
                same = shape == result.shape
                yield from (
                    found if same else (np.broadcast_to(one.reshape(shape), result.shape).reshape(-1) for one in found)
                )
        elif call.op == "aten.as_strided_scatter.default":
            yield from self._scattered(call, result, operands)
        elif crosses(call, self.values):
            yield np.full(result.numel, _ELSEWHERE)
        else:
            yield from (np.full(result.numel, one[0]) for found in operands.values() for one in found)

    def _scattered(self, call: Call, result: Value, operands: dict[int, list[Positions]]) -> Iterator[Positions]:
        base, source = call.operands
        size, stride, offset = (to_python(arg, ()) for arg in call.args[2:5])
        under = footprint(self.values[base])
        where = index_map(under.moved(tuple(size), tuple(stride), offset or 0), under)
        plain = self.values[base].strides == result.strides and not self.values[base].offset
        if where is None or not plain or len(np.unique(where)) < len(where):
            raise _Unknown
        for one in operands.get(base, ()):
            left = one.copy()
            left[where] = -1
            yield left
        for one in operands.get(source, ()):
            put = np.full(result.numel, -1)
            put[where] = one
            yield put


def _in_place(found: Positions, own: Positions) -> bool:
    return bool(((found == -1) | (found == own)).all())


def _kept(found: list[Positions]) -> list[Positions]:
    """Those that say something, each once."""
    kept = [one for one in found if (one != -1).any()]
    return kept if len(kept) < 2 else list({one.tobytes(): one for one in kept}.values())
