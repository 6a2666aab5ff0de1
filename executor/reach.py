"""Where the values of a region depend on the target of one of its stores, by shapes alone.

A value may depend on the target's element at its own position, through pointwise calls; or through reductions of such
values, laid out so that broadcasting brings an element of the reduction back to all positions that it combined. A
reduction is computed once, so an element that waits for the one over its own position is stored after all of that one's
loads. Everything else is given up here; `executor/elements.py` lists small tensors element by element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.args import refs
from executor.elements import combines, crosses, elementwise, reduced_dims, squeezed
from executor.facts import facts
from executor.memory_ssa import footprint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from executor.geometry import Footprint
    from executor.memory_ssa import MemorySSA
    from executor.program import Call


class Reach:
    """What the calls of a region make of the target of `store`; `wrong` is why shapes don't tell, None if they do."""

    def __init__(self, memory: MemorySSA, region: set[int], store: int) -> None:
        self.memory, self.region, self.store = memory, region, store
        self.values = memory.program.values
        self.target = self.values[memory.accesses[store].writes[0]]
        # All inputs of the region that meet the target do so at the same positions.
        inputs = {v for i in region for v in memory.accesses[i].reads}
        self.own = {
            v
            for v, value in enumerate(self.values)
            if value == self.target or (v in inputs and value.meets(self.target))
        }
        self.copies = set(self.own)  # those that a fuser may take for the target itself
        self.combined: set[int] = set()  # depend on it through reductions only
        self.reductions: set[int] = set()  # the calls that combine elements of it
        self.waits: dict[int, frozenset[int]] = {}  # the reductions over its own position that each value waits for
        self.late: set[int] = set()  # what waits for any reduction, and may load the target again then
        self.wrong: str | None = None
        for i, call in enumerate(memory.program.calls):
            if i in region and self.wrong is None:
                self.wrong = self._call(i, call)

    def refusal(self, leaving: set[int]) -> str | None:
        """Why the region may not store the target early, if these values leave it besides; None if it may."""
        if self.wrong is not None:
            return self.wrong
        stored = self.memory.stored(self.store)
        if self.reductions and (stored is None or not self.reductions <= self.waits.get(stored, frozenset())):
            return "its target is read by a reduction for which the stored value does not wait"
        if not leaving.isdisjoint(self.own & self.late):
            return "what is read of its target waits for a reduction and leaves the region"
        outside = leaving.union(root(self.memory, v) for v in self.memory.program.calls[self.store].operands)
        if any(v in outside and self.memory.maker.get(v) in self.region for v in self.copies):
            return "a copy of what was there leaves the region, and may be the target itself"
        return None

    def _call(self, number: int, call: Call) -> str | None:
        operands = call.operands if self.memory.accesses[number].address else self.memory.accesses[number].reads
        reached = self.own | self.combined
        found = {
            v: v if v in reached else _whole(self.memory, v)
            for v in operands
            if not reached.isdisjoint((v, root(self.memory, v)))
        }
        used = list(found.values())
        if crosses(call, self.values) or any(root(self.memory, v) in self.late for v in operands):
            self.late.update(call.results)
        if not used:
            return None
        if any(v not in reached for v in used):
            return "its target is read at another position"
        if combines(call, self.values):
            return self._reduction(number, call, used)
        if not elementwise(call):
            return "its target is read by a call that is not pointwise"
        if not self.combined.isdisjoint(used):
            return self._broadcast(call, found)
        shape = squeezed(self.target.shape)
        if any(squeezed(self.values[v].shape) != shape for v in (*used, *call.results)):
            return "its target is read at another position"
        self._results(self.own, call, used)
        moved = facts(call.op).move and self.values[used[0]].dtype == self.values[call.results[0]].dtype
        if moved and not self.copies.isdisjoint(used):
            self.copies.update(call.results)
        return None

    def _reduction(self, number: int, call: Call, used: list[int]) -> str | None:
        """Of values at their own positions alone."""
        if not self.own.issuperset(used) or not self._is_left_in_place(call):
            return "its target is read by a reduction that moves it elsewhere"
        self.reductions.add(number)
        self._results(self.combined, call, used, frozenset({number}))
        return None

    def _is_left_in_place(self, call: Call) -> bool:
        """Whether the dimensions that a reduction leaves are where broadcasting looks for them."""
        shape = self.values[call.operands[0]].shape
        dims = reduced_dims(call, len(shape))
        kept = len(self.values[call.results[0]].shape) == len(shape)
        return shape == self.target.shape and (kept or dims == tuple(range(len(dims))))

    def _broadcast(self, call: Call, found: dict[int, int]) -> str | None:
        """What reductions gave is used beside something else."""
        if not self._is_used_in_place(call, found):
            return "what a reduction gave of its target is used at another position"
        kind = self.combined if self.own.isdisjoint(found.values()) else self.own
        self._results(kind, call, found.values())
        return None

    def _is_used_in_place(self, call: Call, found: dict[int, int]) -> bool:
        """Whether elements of a reduction are used at positions that they combine: broadcast, and not moved besides."""
        shape, before = self.values[call.results[0]].shape, self.values[call.operands[0]].shape
        if any(self.values[v].shape != self.values[whole].shape for v, whole in found.items()):
            return False
        if facts(call.op).move and shape != before:
            return False
        return self._is_aligned(shape) if self.own.isdisjoint(found.values()) else shape == self.target.shape

    def _results(self, kind: set[int], call: Call, used: Iterable[int], more: frozenset[int] = frozenset()) -> None:
        kind.update(call.results)
        waits = more.union(*(self.waits.get(v, frozenset()) for v in used))
        self.waits.update(dict.fromkeys(call.results, waits))

    def _is_aligned(self, shape: tuple[int, ...]) -> bool:
        """Whether broadcasting to the target's shape brings elements of this one to their own positions."""
        missing = len(self.target.shape) - len(shape)
        return missing >= 0 and all(n in (1, wide) for n, wide in zip(shape, self.target.shape[missing:], strict=True))


def leaving(memory: MemorySSA, region: set[int], store: int) -> set[int]:
    """What somebody needs outside the region, or what its views are of; what the store needs is not counted."""
    outside = {root(memory, v) for v in refs(memory.program.outputs)} | {
        root(memory, v)
        for i, call in enumerate(memory.program.calls)
        if i not in region and i != store and not memory.accesses[i].address
        for v in call.operands
    }
    return {v for v in outside if memory.owner.get(memory.program.values[v].storage) in region}


def plain(memory: MemorySSA, value: int) -> Footprint:
    """Where a value lies, without its dimensions of size 1."""
    where = footprint(memory.program.values[value])
    if 1 not in where.shape:
        return where
    strides = tuple(s for n, s in zip(where.shape, where.strides, strict=True) if n != 1)
    return where.moved(squeezed(where.shape), strides, where.offset)


def root(memory: MemorySSA, value: int) -> int:
    """The value of which this one is a view."""
    maker = memory.maker.get(value)
    while maker is not None and memory.accesses[maker].address and memory.program.calls[maker].args:
        operands = memory.program.calls[maker].operands
        if not operands:
            break
        value = operands[0]
        maker = memory.maker.get(value)
    return value


def _whole(memory: MemorySSA, value: int) -> int:
    """The value of which this one is a view, if only dimensions of size 1 tell them apart; else the value itself."""
    base = root(memory, value)
    return base if plain(memory, base) == plain(memory, value) else value
