"""What a read of partly overwritten memory sees, and who would read the result of a call that is patched for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from executor.passes.boxes import element_wise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.memory_ssa import MemorySSA, Reach
    from executor.passes.boxes import Box
    from executor.program import Value


class Part(NamedTuple):
    """What a newer write put into a box of a read: the value stored, laid out like `target`."""

    box: Box
    stored: int
    target: Value


class Seen(NamedTuple):
    """What a read of memory sees: the value of the write that covers it, and the newer parts, from oldest to newest."""

    stored: int
    under: Reach
    parts: tuple[Part, ...]

    def at(self, box: Box) -> Part | None:
        """The part at this very box."""
        return next((part for part in self.parts if part.box == box), None)


def merged(seen: Sequence[Seen]) -> tuple[Box, ...] | None:
    """The boxes of a result that are to be patched, in an order that shows the newest parts of all operands.

    None if an operand holds, at a box of another one, something else than one part or what lies below all.
    """
    order = list(dict.fromkeys(part.box for one in seen for part in one.parts))
    for one in seen:
        own = [part.box for part in one.parts]
        for place, box in enumerate(order):
            if box not in own:
                if any(box.meets(other) for other in own):
                    return None
            elif any(newer.meets(box) and order.index(newer) < place for newer in own[own.index(box) + 1 :]):
                return None
    return tuple(order)


class Rereads:
    """How much of a result calls will read, straight or through others, that cannot be patched."""

    def __init__(self, memory: MemorySSA) -> None:
        self.memory = memory
        self._readers: dict[int, list[tuple[int, int]]] | None = None

    def of(self, number: int) -> int:
        """The bytes, for the result of this call."""
        if self._readers is None:
            self._readers = self._by_storage()
        program, values = self.memory.program, self.memory.program.values
        found, waiting, known = 0, [number], {number}
        while waiting:
            home = values[program.calls[waiting.pop()].results[0]].storage
            for i, v in self._readers.get(home, ()):
                call, what = program.calls[i], self.memory.accesses[i]
                if what.writes and self.memory.stored(i) is not None:
                    continue
                if not what.writes and element_wise(call, values) and values[call.results[0]].shape == values[v].shape:
                    waiting += [i] if i not in known else []
                    known.add(i)
                else:
                    found += values[v].numel * values[v].itemsize
        return found

    def _by_storage(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for i, what in enumerate(self.memory.accesses):
            for v in what.reads:
                found.setdefault(self.memory.program.values[v].storage, []).append((i, v))
        return found
