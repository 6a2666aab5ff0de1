"""Memory SSA: for every call what it reads and writes, and for every read the writes that reach it.

Every storage that some call writes, and every one that exists before the program starts, is *memory*: its contents
depend on when one looks. All other storages are written once, by the call that allocates them, so a value there is the
same at any time. Locations are exact footprints, never names: the answer to "which writes does this read see?" is the
list of those that touch it, from the newest back to the first that covers it whole.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from executor.args import refs
from executor.facts import Access, access
from executor.geometry import Footprint, Overlap, overlap
from executor.program import Program, Value

if TYPE_CHECKING:
    from collections.abc import Iterator


@lru_cache(maxsize=4096)
def footprint(value: Value) -> Footprint:
    """`value.footprint`, made once: a footprint is asked for many times on the way through the passes."""
    return value.footprint


class Write(NamedTuple):
    """One write: a version of the memory that it covers. `seq` counts writes in program order."""

    seq: int
    call: int
    value: int
    footprint: Footprint


class Reach(NamedTuple):
    """A write that a read sees, and how the read lies to it."""

    write: Write
    overlap: Overlap


class IntervalIndex:
    """Things with a byte interval on one storage, found by interval: O(log n) and the width of the longest interval."""

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []
        self._items: dict[int, Write] = {}
        self._longest = 0

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, write: Write) -> None:
        """Adds a write under its bounds."""
        start, stop = write.footprint.bounds
        insort(self._starts, (start, write.seq))
        self._items[write.seq] = write
        self._longest = max(self._longest, stop - start)

    def remove(self, write: Write) -> None:
        """Takes a write out again."""
        del self._starts[bisect_left(self._starts, (write.footprint.start, write.seq))]
        del self._items[write.seq]

    def meeting(self, start: int, stop: int) -> list[Write]:
        """Those whose interval meets the half-open one given, newest first."""
        if len(self._starts) <= 4:
            found = [w for w in self._items.values() if w.footprint.start < stop and start < w.footprint.stop]
        else:
            low = bisect_left(self._starts, (start - self._longest, -1))
            high = bisect_left(self._starts, (stop, -1))
            near = (self._items[seq] for _, seq in self._starts[low:high])
            found = [w for w in near if start < w.footprint.stop]
        found.sort(reverse=True)
        return found


class State:
    """The writes in force at one moment of a walk through the program, for each storage.

    It serves for reads too, where one asks which of them a write must wait for.
    """

    def __init__(self, values: tuple[Value, ...] | list[Value]) -> None:
        self.values = values
        self._index: dict[int, IntervalIndex] = {}
        self._count = 0

    def write(self, call: int, value: int) -> Write:
        """Records a write of `value` by `call`. Older writes that it covers whole can reach nobody any more."""
        self.forget(value)
        return self.add(call, value)

    def forget(self, value: int) -> None:
        """Drops the accesses that `value` covers whole."""
        geometry = self.values[value]
        index = self._index.get(geometry.storage)
        if index is None:
            return
        where = footprint(geometry)
        for older in index.meeting(*where.bounds):
            if older.footprint == where or overlap(older.footprint, where) in _COVERED:
                index.remove(older)

    def add(self, call: int, value: int) -> Write:
        """Records an access that hides no older one."""
        geometry = self.values[value]
        self._count += 1
        write = Write(self._count, call, value, footprint(geometry))
        if write.footprint.numel:
            self._index.setdefault(geometry.storage, IntervalIndex()).add(write)
        return write

    def touching(self, value: int) -> list[Write]:
        """All writes in force that share a byte with `value`, newest first."""
        geometry = self.values[value]
        index = self._index.get(geometry.storage)
        if index is None:
            return []
        where = footprint(geometry)
        return [w for w in index.meeting(*where.bounds) if overlap(where, w.footprint) is not Overlap.NO_ALIAS]

    def reaching(self, value: int) -> list[Reach]:
        """The writes that a read of `value` sees now, newest first, ending at the first that covers it."""
        geometry = self.values[value]
        index = self._index.get(geometry.storage)
        if index is None:
            return []
        where = footprint(geometry)
        found: list[Reach] = []
        for write in index.meeting(*where.bounds):
            how = overlap(where, write.footprint)
            if how is Overlap.NO_ALIAS:
                continue
            found.append(Reach(write, how))
            if how is not Overlap.PARTIAL:
                break
        return found


_COVERED = frozenset({Overlap.MUST_ALIAS, Overlap.CONTAINED})


class MemorySSA:
    """The memory facts of one program.

    `accesses[i]`: what call i does. `memory`: storages whose contents change or exist at entry. `entry`: those that
    exist at entry. `owner`: the call that allocates each other storage. `returned`: storages of the outputs. `maker`:
    the call that makes each value; inputs and constants have none.
    """

    def __init__(self, program: Program) -> None:
        values = program.values
        self.program = program
        self.accesses: list[Access] = [access(values, call) for call in program.calls]
        self.entry = {values[i].storage for i in (*program.inputs, *program.constants)}
        self.memory = self.entry | {values[i].storage for found in self.accesses for i in found.writes}
        self.returned = {values[i].storage for i in refs(program.outputs)}
        self.owner: dict[int, int] = {}
        self.maker: dict[int, int] = {}
        self._reaching: dict[tuple[int, int], list[Reach]] | None = None
        self._stored: dict[int, int] | None = None
        known = set(program.inputs).union(program.constants)
        for i, call in enumerate(program.calls):
            for result in call.results:
                if result not in known:
                    known.add(result)
                    self.maker[result] = i
                    storage = values[result].storage
                    if storage not in self.entry:
                        self.owner.setdefault(storage, i)

    @classmethod
    def of(cls, program: Program) -> MemorySSA:
        """The facts of a program; kept for the program that was asked about last, since many a pass changes nothing."""
        global _last  # noqa: PLW0603 (one entry, replaced whole)
        found = _last  # read once: another thread may replace it at any time
        if found is None or found.program is not program:
            _last = found = cls(program)
        return found

    def is_memory(self, value: int) -> bool:
        """Whether the contents of this value depend on when one looks."""
        return self.program.values[value].storage in self.memory

    def stored(self, number: int) -> int | None:
        """The value that call `number` stores, if all that it does is to copy a value that never changes into memory.

        The value has its target's dtype and shape. None for any other call: of what it writes only memory knows.
        """
        if self._stored is None:
            self._stored = dict(self._find_stored())
        return self._stored.get(number)

    def _find_stored(self) -> Iterator[tuple[int, int]]:
        values = self.program.values
        for number, call in enumerate(self.program.calls):
            if call.op == "aten.copy_.default" and len(call.operands) == len(call.args) == 2 and not call.kwargs:
                target, source = call.operands
                a, b = values[target], values[source]
                plain = b.storage not in self.memory and a.dtype == b.dtype and a.shape == b.shape
                if plain and not footprint(a).self_overlaps:
                    yield number, source

    def reaching_writes(self) -> dict[tuple[int, int], list[Reach]]:
        """For each (call, value read in memory) the writes that it sees, where there are any. Found once."""
        if self._reaching is None:
            self._reaching = self._find_reaching()
        return self._reaching

    def _find_reaching(self) -> dict[tuple[int, int], list[Reach]]:
        state = State(self.program.values)
        found: dict[tuple[int, int], list[Reach]] = {}
        for i, what in enumerate(self.accesses):
            for value in what.reads:
                if self.is_memory(value) and (reach := state.reaching(value)):
                    found[i, value] = reach
            for value in what.writes:
                state.write(i, value)
        return found


_last: MemorySSA | None = None
