"""Write-backs: which stores have to happen at all.

A store is dead only if nobody reads what it wrote before later stores have together overwritten every byte of it, or
before a temporary's memory is forgotten; or if it stores what was loaded from the same place (`x.copy_(x)`). Live
stores are never trimmed, and they keep their order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from executor.geometry import Overlap, overlap
from executor.memory_ssa import MemorySSA, footprint

if TYPE_CHECKING:
    import numpy.typing as npt

    from executor.geometry import Footprint
    from executor.program import Program

# Unions of stores are formed byte by byte, for stores of up to this many bytes.
_LISTED = 1 << 16


def dead_stores(program: Program) -> Program:
    """The same program without the stores that nobody can see."""
    memory = MemorySSA.of(program)
    stores = [i for i in range(len(program.calls)) if memory.stored(i) is not None]
    dead = [i for i in stores if _is_dead(memory, i) or _changes_nothing(memory, i)]
    if not dead:
        return program
    gone = set(dead)
    calls = tuple(call for i, call in enumerate(program.calls) if i not in gone)
    return msgspec.structs.replace(program, calls=calls)


def _is_dead(memory: MemorySSA, store: int) -> bool:
    values = memory.program.values
    target = values[memory.accesses[store].writes[0]]
    seen_at_end = target.storage in memory.entry or target.storage in memory.returned
    left = Remainder(footprint(target))
    for i in range(store + 1, len(memory.accesses)):
        what = memory.accesses[i]
        if left.empty:
            break
        if any(values[r].storage == target.storage and left.meets(footprint(values[r])) for r in what.reads):
            return False
        if memory.stored(i) is not None and values[what.writes[0]].storage == target.storage:
            left.subtract(footprint(values[what.writes[0]]))
    return left.empty or not seen_at_end


def _changes_nothing(memory: MemorySSA, store: int) -> bool:
    """Whether the store puts back what was loaded from its target, and nobody has written there in the meantime."""
    values, stored = memory.program.values, memory.stored(store)
    assert stored is not None, "asked of stores only"
    source, load = stored, store
    while not memory.is_memory(source):
        load = memory.maker.get(source, -1)
        if load < 0 or memory.program.calls[load].op != "aten.clone.default":
            return False
        source = memory.accesses[load].reads[0]
    target, loaded = values[memory.accesses[store].writes[0]], values[source]
    if target != loaded:
        return False
    written = (values[w] for what in memory.accesses[load + 1 : store] for w in what.writes)
    return not any(value.meets(target) for value in written)


class Remainder:
    """The bytes of a footprint that are left after others were subtracted. Inexact only by keeping too much.

    They are listed only where the sizes of what was subtracted leave open whether something is left, and the list is kept.
    """

    def __init__(self, whole: Footprint) -> None:
        self.whole = whole
        self.empty = whole.numel == 0
        self._gone: list[Footprint] = []
        self._bytes_gone = 0  # counted twice where they were subtracted twice
        self._unit = whole.itemsize  # the largest number of bytes of which all elements here are multiples
        self._listed: npt.NDArray[np.int64] | None = (
            None  # what is left, in units, before the last ones were subtracted
        )
        self._count = 0  # how many of `_gone` the list is without

    def meets(self, other: Footprint) -> bool:
        """Whether some byte that is left may be among the other's."""
        if self.empty or overlap(other, self.whole) is Overlap.NO_ALIAS:
            return False
        if all(overlap(other, gone) is Overlap.NO_ALIAS for gone in self._gone):
            return True
        left = self._left(other)
        return bool(np.isin(left, other.units(self._unit)).any())

    def subtract(self, other: Footprint) -> None:
        """Takes the other's bytes away."""
        how = overlap(self.whole, other)
        if self.empty or how is Overlap.NO_ALIAS:
            return
        if how is not Overlap.PARTIAL:
            self.empty = True
        elif max(_size(self.whole), _size(other)) <= _LISTED:
            self._gone.append(other)
            self._bytes_gone += _size(other)
            self.empty = self._bytes_gone >= _size(self.whole) and not len(self._left(other))

    def _left(self, other: Footprint) -> npt.NDArray[np.int64]:
        """The units that are left, of a size that divides the other's elements too."""
        fresh = self._gone[self._count :]
        unit = math.gcd(self._unit, other.itemsize, *(gone.itemsize for gone in fresh))
        if self._listed is None or unit != self._unit:
            self._unit, self._listed, fresh = unit, self.whole.units(unit), self._gone
        if fresh:
            taken = np.concatenate([gone.units(unit) for gone in fresh])
            self._listed = self._listed[~np.isin(self._listed, taken)]
        self._count = len(self._gone)
        return self._listed


def _size(footprint: Footprint) -> int:
    return footprint.numel * footprint.itemsize
