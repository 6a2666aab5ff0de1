"""Hostile schedules of a partition on tagged elements: when each element is computed, loaded and stored."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from executor.backends.tagged import Machine
from executor.elements import crosses, squeezed
from executor.facts import facts, loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from executor.backends.tagged import Interner, Observation, Tags
    from executor.partition import Partition
    from executor.program import Program


@dataclass(frozen=True)
class Schedule:
    """When each element is computed, in regions with early write-backs, and whether outputs are their input's memory.

    `turns(shape)`: for each element of all values of one shape, which one thread computes, the round in which it does.
    Dimensions of size 1 are left out: they tell no threads apart. `spreads`: what other threads compute or read
    (values of other shapes, elements that are reduced) is as it was in their round, and what waits for a reduction, or
    for what they make of an early target, is there in the last one; else each thread computes all that it needs anew.
    `loads_late`: a thread loads what a value to store does not wait for after it has stored that.
    """

    rounds: int
    turns: Callable[[tuple[int, ...]], Tags]
    shares: bool
    spreads: bool
    loads_late: bool = False


def drawn(seed: int, rounds: int = 3) -> Schedule:
    """A random schedule."""
    schedule = random.Random(seed)

    def turns(shape: tuple[int, ...]) -> Tags:
        return np.array([schedule.randrange(rounds) for _ in range(math.prod(shape))], dtype=np.int64)

    coins = [schedule.random() < 0.5 for _ in range(3)]
    return Schedule(rounds, lru_cache(maxsize=None)(turns), *coins)


def every_schedule(found: Partition) -> Iterator[Schedule]:
    """All schedules of two rounds: each element of each shape in either of them. For a few elements only."""
    if not found.early:
        yield drawn(0)
        return
    values = found.program.values
    calls = found.program.calls
    crossing = [call for call in calls if crosses(call, values)]
    read = (v for call in crossing for v in call.operands)
    shapes = dict.fromkeys(squeezed(values[v].shape) for v in (*(r for call in calls for r in call.results), *read))
    for shares, spread, late in itertools.product((False, True), repeat=3):
        for bits in itertools.product((0, 1), repeat=sum(math.prod(shape) for shape in shapes)):
            left = iter(bits)
            table = {
                shape: np.array(list(itertools.islice(left, math.prod(shape))), dtype=np.int64) for shape in shapes
            }
            yield Schedule(2, table.__getitem__, shares, spread, late)


def under(found: Partition, interner: Interner, schedule: Schedule) -> Observation:
    """What one sees of the partition under a hostile schedule. It needn't be a legal one."""
    program = found.program
    machine = Machine(program, interner)
    for level in sorted({level for level in found.levels if level is not None}):
        here = [i for i, at in enumerate(found.levels) if at == level]
        fused = [i for i in here if found.fused[i]]
        early = [i for i in here if i in found.early]
        if early:
            _in_rounds(machine, program, fused, early, schedule)
        else:
            # Nothing changes while the region runs: it reads what its values were at its start.
            made = {program.values[r].storage for i in fused for r in program.calls[i].results}
            entry = {storage: tags.copy() for storage, tags in machine.memory.items() if storage not in made}
            for i in fused:
                machine.step(program.calls[i], entry)
        for i in here:
            if not found.fused[i] and i not in found.early:
                machine.step(program.calls[i])
    return machine.observe()


class _Kernel:
    """Threads of a region with early write-backs, which compute from memory as it is at their turn."""

    def __init__(self, machine: Machine, fused: list[int], early: list[int], schedule: Schedule) -> None:
        self.machine, self.program, self.schedule = machine, machine.program, schedule
        self.values = values = machine.program.values
        self.calls = [self.program.calls[i] for i in fused]
        self.stores = [self.program.calls[i].operands for i in early]
        self.targets = {target for target, _ in self.stores}
        self.results = [r for call in self.calls for r in call.results]
        self.turns = {v: schedule.turns(squeezed(values[v].shape)) for v in (*self.results, *self.targets)}
        if schedule.spreads:
            last = schedule.rounds - 1
            waiting = _waiting(self.program, fused, self.targets)
            self.turns.update((r, np.full(values[r].numel, last)) for r in waiting)
        self._made: dict[int, Tags] = {}
        self._read: dict[tuple[int, int], Tags] = {}

    def run(self) -> dict[int, Tags]:
        """The results; the write-backs are made. Each round keeps the elements whose turn it is, and writes those back."""
        kept: dict[int, Tags] = {}
        for turn in range(self.schedule.rounds):
            loaded: dict[int, Tags] = {}
            now = self._computed(turn, loaded)
            for target, value in self.stores:
                if self.schedule.loads_late:
                    needed = loads(self.calls, self.values, [value]) - loaded.keys()
                    loaded |= {v: self.machine.read(v) for v in needed}
                    now[value] = self._computed(turn, loaded)[value]
                self.machine.write(target, now[value], self.turns[target] == turn)
            if self.schedule.loads_late:
                now = self._computed(turn, loaded)
            kept = {v: np.where(self.turns[v] == turn, now[v], kept.get(v, now[v])) for v in self.results}
        return kept

    def _computed(self, turn: int, loaded: dict[int, Tags]) -> dict[int, Tags]:
        """All results, from what was loaded and, for the rest, from memory as it is now."""
        spreads = self.schedule.spreads
        for i, call in enumerate(self.calls):
            for v in call.operands if spreads and crosses(call, self.values) else ():
                mine = self.schedule.turns(squeezed(self.values[v].shape)) >= turn
                self._read[i, v] = np.where(mine, self.machine.read(v), self._read.get((i, v), 0))
            self.machine.step(call, given=loaded | {v: tags for (j, v), tags in self._read.items() if i == j})
            for r in call.results if spreads else ():
                self._made[r] = np.where(self.turns[r] >= turn, self.machine.read(r), self._made.get(r, 0))
                self.machine.write(r, self._made[r])
        return {v: self.machine.read(v) for v in self.results}


def _in_rounds(machine: Machine, program: Program, fused: list[int], early: list[int], schedule: Schedule) -> None:
    """Runs a region with early write-backs, and hands out what it computed, or the early target that holds the same."""
    kernel = _Kernel(machine, fused, early, schedule)
    for v, tags in kernel.run().items():
        source = _moved_from(program, fused, v, kernel.targets)
        machine.write(v, machine.read(source) if schedule.shares and source is not None else tags)


def _waiting(program: Program, fused: list[int], targets: set[int]) -> Iterator[int]:
    """The results that wait for other threads: for a reduction, or for what these compute from an early target."""
    values = program.values
    made: dict[int, tuple[int, ...]] = {}
    waiting: set[int] = set()
    touched: set[int] = set()
    for i in fused:
        call = program.calls[i]
        homes = {values[v].storage for v in call.operands}
        if homes & touched or any(values[v].meets(values[t]) for v in call.operands for t in targets):
            touched.update(values[r].storage for r in call.results)
        others = any(
            made[home] != squeezed(values[r].shape) for home in homes & touched & made.keys() for r in call.results
        )
        if crosses(call, values) or others or homes & waiting:
            waiting.update(values[r].storage for r in call.results)
            yield from call.results
        made.update((values[r].storage, squeezed(values[r].shape)) for r in call.results)


def _moved_from(program: Program, fused: list[int], v: int, targets: set[int]) -> int | None:
    """The early target whose elements a result holds as they were, which a fuser may then hand out instead."""
    values = program.values
    makers = {r: program.calls[i] for i in fused for r in program.calls[i].results}
    while v in makers and facts(makers[v].op).move:
        source = makers[v].operands[0]
        if (values[source].dtype, values[source].shape) != (values[v].dtype, values[v].shape):
            return None
        v = source
    return next((target for target in targets if values[target] == values[v]), None)
