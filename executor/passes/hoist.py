"""Hoisting: a small part of what element-wise calls compute is computed from the same part of their operands.

Who only needs `sin(a)[0, 0]` gets `sin(a[0, 0])`, which need not wait for the whole. It is computed where the whole is, so
that it reads the same memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from executor.builder import Builder, renamed
from executor.memory_ssa import MemorySSA
from executor.passes.boxes import box_of, element_wise, restricted, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from executor.passes.boxes import Box
    from executor.program import Call, Program, Value

# A part that takes more calls is left to the region that computes the whole.
_MOST_CALLS = 16


class Boxed(NamedTuple):
    """A box of the result of an element-wise call."""

    result: int
    box: Box


class Hoist(NamedTuple):
    """A view of a box of a larger value, and all boxes that have to be computed for it."""

    part: Value
    whole: Value
    of: Boxed
    needed: frozenset[Boxed]


def hoist(program: Program, choose: Callable[[Hoist], bool]) -> Program:
    """The same program with those small parts of values computed alone that can be, and that `choose` wants so."""
    memory = MemorySSA.of(program)
    views = [
        (i, v)
        for i, what in enumerate(memory.accesses)
        if not what.writes
        for v in what.reads
        if not memory.is_memory(v) and memory.accesses[memory.maker[v]].address
    ]
    if not views:
        return program
    found = _Hoisting(memory)
    wanted: dict[int, dict[int, Boxed]] = {}
    for i, v in views:
        plan = found.plan(v)
        if plan is not None and choose(plan):
            wanted.setdefault(i, {})[v] = plan.of
    return found.run(wanted) if wanted else program


class _Hoisting:
    """What is computed of parts, each once: right behind the call that computes the whole."""

    def __init__(self, memory: MemorySSA) -> None:
        self.memory, self.program = memory, memory.program
        self.builder = Builder(self.program)
        self.values = self.builder.values
        self._behind: dict[int, list[Call]] = {}
        self._made: dict[Boxed, int] = {}

    def plan(self, view: int) -> Hoist | None:
        """How to compute what a view shows; None if it is not a small part of a value, or cannot be computed alone."""
        result = self._computed(view)
        if result is None or self.values[view].numel >= self.values[result].numel:
            return None
        box = box_of(self.values[view], self.values[result])
        needed: set[Boxed] = set()
        if box is None or not self._gather(Boxed(result, box), needed):
            return None
        return Hoist(self.values[view], self.values[result], Boxed(result, box), frozenset(needed))

    def run(self, wanted: dict[int, dict[int, Boxed]]) -> Program:
        """The program in which each of these calls gets these of its operands as computed alone."""
        builder = self.builder
        chunks: list[list[Call]] = []
        for i, call in enumerate(self.program.calls):
            builder.calls, new = [], {}
            for view, part in wanted.get(i, {}).items():
                whole = self.values[part.result]
                new[view] = shown(builder, self._part(part), self.values[view], whole, call.source)
            builder.replace_operands(call, new)
            chunks.append(builder.calls)
        builder.calls = [call for i, chunk in enumerate(chunks) for call in (*chunk, *self._behind.get(i, ()))]
        return builder.finish()

    def _computed(self, view: int) -> int | None:
        """The result of an element-wise call of which this is a view, if it never changes."""
        owner = None if self.memory.is_memory(view) else self.memory.owner.get(self.values[view].storage)
        if owner is None or not element_wise(self.program.calls[owner], self.values):
            return None
        return self.program.calls[owner].results[0]

    def _operands(self, part: Boxed) -> list[tuple[int, Box]]:
        """The operands of the call that computes a value, each with the box of it that a box of the value needs."""
        call = self.program.calls[self.memory.maker[part.result]]
        return [(v, part.box.under(self.values[v].shape)) for v in dict.fromkeys(call.operands)]

    def _gather(self, part: Boxed, found: set[Boxed]) -> bool:
        """Adds all boxes that have to be computed for this one. False if there are too many, or some cannot be."""
        found.add(part)
        if len(found) > _MOST_CALLS:
            return False
        for v, box in self._operands(part):
            if self._at_hand(v, box):
                continue
            inner = self._inner(v, box)
            if inner is None or not (inner in found or self._gather(inner, found)):
                return False
        return True

    def _at_hand(self, operand: int, box: Box) -> bool:
        """Whether an operand, or a view of it, is there without computing anything large."""
        if self.memory.is_memory(operand):
            return True
        if box.counts != self.values[operand].shape:
            return False
        maker = self.program.calls[self.memory.owner[self.values[operand].storage]]
        few = self.values[operand].numel
        return all(self.values[v].numel <= few for v in (*maker.operands, *maker.results))

    def _inner(self, operand: int, box: Box) -> Boxed | None:
        """The box of a result of which a box of an operand is a view."""
        result = self._computed(operand)
        inner = None if result is None else box_of(box.within(self.values[operand]), self.values[result])
        return None if result is None or inner is None else Boxed(result, inner)

    def _part(self, part: Boxed) -> int:
        """A box, computed alone; its calls stand behind that of the whole."""
        if part in self._made:
            return self._made[part]
        builder, maker = self.builder, self.memory.maker[part.result]
        call, new = self.program.calls[maker], {}
        inner = {v: self._inner(v, box) for v, box in self._operands(part) if not self._at_hand(v, box)}
        made = {v: self._part(one) for v, one in inner.items() if one is not None}
        here, builder.calls = builder.calls, self._behind.setdefault(maker, [])
        for v, box in self._operands(part):
            one = inner.get(v)
            if one is None:
                new[v] = restricted(builder, v, box, call.source)
            else:
                geometry = box.within(self.values[v])
                new[v] = shown(builder, made[v], geometry, self.values[one.result], call.source)
        other = renamed(call, new)
        self._made[part] = builder.emit(call.op, *other.args, kwargs=other.kwargs, source=call.source)
        builder.calls = here
        return self._made[part]
