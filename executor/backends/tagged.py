"""Partitions run on *tagged* elements: each is the id of the expression that it came from, not a number.

With numbers a wrong schedule may give the right result by coincidence (zeros, equal elements, a sum that stays).
With tags it differs whenever any interpretation of the operators would: elementwise operators combine the tags of their
operands' elements, reductions those of the elements reduced, all others those of everything they read. Memory is held byte by byte, so that views of other dtypes
see what they would.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from executor.args import Ref, refs, rename, to_python
from executor.elements import REDUCTIONS, crosses, elementwise, squeezed
from executor.facts import facts, loads, operand_list
from executor.geometry import Overlap, overlap
from executor.memory_ssa import MemorySSA, footprint
from executor.schema import bound, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from executor.partition import Partition
    from executor.program import Call, Program, Value

    Tags = npt.NDArray[np.int64]

_BYTES = 16  # an element's bytes are numbered within its tag; no dtype has more
Observation = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]


class Interner:
    """Equal expressions, equal ids."""

    def __init__(self) -> None:
        self._ids: dict[object, int] = {}
        self._dtypes: dict[int, str] = {}

    def id(self, expression: object, dtype: str) -> int:
        """The id of an expression whose value has this dtype."""
        found = self._ids.setdefault((expression, dtype), len(self._ids))
        self._dtypes[found] = dtype
        return found

    def element(self, parts: tuple[int, ...], dtype: str) -> int:
        """The id of the element that these bytes are: an element as it was written, or something made of pieces."""
        whole, first = divmod(parts[0], _BYTES)
        if first == 0 and self._dtypes.get(whole) == dtype and all(p == parts[0] + k for k, p in enumerate(parts)):
            return whole
        return self.id(("bytes", parts), dtype)


class Machine:
    """Memory of tags for one program, and what its calls do to it."""

    def __init__(self, program: Program, interner: Interner) -> None:
        self.program, self.ids = program, interner
        self.memory: dict[int, Tags] = {}
        for v in (*program.inputs, *program.constants):
            self.bytes_of(program.values[v].storage)

    def observe(self) -> Observation:
        """What one sees in the end: the outputs' elements, and every byte of the storages that existed at entry."""
        values = self.program.values
        entry = dict.fromkeys(values[v].storage for v in (*self.program.inputs, *self.program.constants))
        outputs = tuple(tuple(self.read(v).tolist()) for v in refs(self.program.outputs))
        return outputs, tuple(tuple(self.memory[storage].tolist()) for storage in entry)

    def read(self, v: int, memory: dict[int, Tags] | None = None) -> Tags:
        """The elements of a value in row-major order, from this machine's memory or a copy of it."""
        value = self.program.values[v]
        copied = None if memory is None else memory.get(value.storage)
        storage = self.bytes_of(value.storage) if copied is None else copied
        size = value.itemsize
        places = footprint(value).offsets() * size
        parts = storage[places[:, None] + np.arange(size)]
        lazy = ("conj",) * value.conj + ("neg",) * value.neg
        found = [self.ids.element(tuple(row), value.dtype) for row in parts.tolist()]
        return np.array([self.ids.id((lazy, tag), value.dtype) for tag in found] if lazy else found, dtype=np.int64)

    def write(self, v: int, tags: Tags, only: npt.NDArray[np.bool_] | None = None) -> None:
        """Stores elements in row-major order, all or `only` some; the last wins where the value overlaps itself."""
        value = self.program.values[v]
        size = value.itemsize
        places = footprint(value).offsets() * size
        if only is not None:
            places, tags = places[only], tags[only]
        self.bytes_of(value.storage)[places[:, None] + np.arange(size)] = tags[:, None] * _BYTES + np.arange(size)

    def step(self, call: Call, memory: dict[int, Tags] | None = None, given: dict[int, Tags] | None = None) -> None:
        """Runs a call. It reads from `memory` where given; `given` are operands that are known."""
        written = facts(call.op).written
        operands = operand_list(call)
        known = given or {}
        tags = {v: known[v] if v in known else self.read(v, memory) for v in dict.fromkeys(operands)}
        results = dict.fromkeys((*call.results, *((v for v in operands[:1]) if written else ())))
        for number, v in enumerate(results):
            self.write(v, self._computed(call, v, number, tags))

    def _computed(self, call: Call, result: int, number: int, tags: dict[int, Tags]) -> Tags:
        values, value = self.program.values, self.program.values[result]
        if call.op == "aten.full.default":
            return np.full(value.numel, self.ids.id(_skeleton(call), value.dtype), dtype=np.int64)
        if call.op == "aten.as_strided_scatter.default":
            return _scattered(call, tags)
        first = next(iter(operand_list(call)), result)
        if call.op == "aten.copy_.default" or (
            facts(call.op).move and elementwise(call) and value.shape == values[first].shape
        ):
            return self._moved(operand_list(call)[-1], result, tags)
        shape, rows = (_skeleton(call), number), self._combined(call, result, tags)
        return np.array([self.ids.id((shape, row), value.dtype) for row in rows], dtype=np.int64)

    def _moved(self, source: int, result: int, tags: dict[int, Tags]) -> Tags:
        a, b = self.program.values[source], self.program.values[result]
        moved = _broadcast(tags[source], a.shape, b.shape)
        if a.dtype == b.dtype:
            return moved
        return np.array([self.ids.id(("cast", tag), b.dtype) for tag in moved.tolist()], dtype=np.int64)

    def _combined(self, call: Call, result: int, tags: dict[int, Tags]) -> Iterable[object]:
        """For each element of the result what it is computed from."""
        values, value = self.program.values, self.program.values[result]
        operands = operand_list(call)
        if torch.Tag.pointwise in resolve(call.op).tags and not facts(call.op).written:
            each = [_broadcast(tags[v], values[v].shape, value.shape).tolist() for v in operands]
            return zip(*each, strict=True) if each else ((),) * value.numel
        if call.op.split(".")[1] in REDUCTIONS:
            return map(tuple, tags[operands[0]][_reduced(call, values[operands[0]].shape)].tolist())
        everything = () if facts(call.op).metadata else tuple(tuple(tags[v].tolist()) for v in operands)
        return ((i, everything) for i in range(value.numel))

    def bytes_of(self, storage: int) -> Tags:
        """The tags of a storage's bytes, to read and to write; its own initial ones if nothing was written there."""
        if storage not in self.memory:
            nbytes = self.program.storages[storage].nbytes
            tags = [self.ids.id(("initial", storage, i), "uint8") * _BYTES for i in range(nbytes)]
            self.memory[storage] = np.array(tags, dtype=np.int64)
        return self.memory[storage]


def in_program_order(program: Program, interner: Interner) -> Observation:
    """What the program means."""
    machine, accesses = Machine(program, interner), MemorySSA(program).accesses
    for call, what in zip(program.calls, accesses, strict=True):
        if not what.address:
            machine.step(call)
    return machine.observe()


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
    read = (v for call in crossing for v in operand_list(call))
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
        self.stores = [operand_list(self.program.calls[i]) for i in early]
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
            for v in operand_list(call) if spreads and crosses(call, self.values) else ():
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
        homes = {values[v].storage for v in operand_list(call)}
        if homes & touched or any(_meets(values[v], values[t]) for v in operand_list(call) for t in targets):
            touched.update(values[r].storage for r in call.results)
        others = any(
            made[home] != squeezed(values[r].shape) for home in homes & touched & made.keys() for r in call.results
        )
        if crosses(call, values) or others or homes & waiting:
            waiting.update(values[r].storage for r in call.results)
            yield from call.results
        made.update((values[r].storage, squeezed(values[r].shape)) for r in call.results)


def _meets(a: Value, b: Value) -> bool:
    return a.storage == b.storage and overlap(footprint(a), footprint(b)) is not Overlap.NO_ALIAS


def _moved_from(program: Program, fused: list[int], v: int, targets: set[int]) -> int | None:
    """The early target whose elements a result holds as they were, which a fuser may then hand out instead."""
    values = program.values
    makers = {r: program.calls[i] for i in fused for r in program.calls[i].results}
    while v in makers and facts(makers[v].op).move:
        source = operand_list(makers[v])[0]
        if (values[source].dtype, values[source].shape) != (values[v].dtype, values[v].shape):
            return None
        v = source
    return next((target for target in targets if values[target] == values[v]), None)


def _skeleton(call: Call) -> object:
    """The call without its operands: what distinguishes it from others on the same elements."""
    args = tuple(rename(arg, lambda _: Ref(0)) for arg in call.args)
    return call.op, repr(args), repr([(name, rename(arg, lambda _: Ref(0))) for name, arg in call.kwargs])


def _broadcast(tags: Tags, shape: tuple[int, ...], target: tuple[int, ...]) -> Tags:
    return np.broadcast_to(tags.reshape(shape), target).reshape(-1)


def _reduced(call: Call, shape: tuple[int, ...]) -> Tags:
    """For each result of a reduction the row-major positions of the elements that it combines."""
    given = next((to_python(arg, ()) for name, arg in bound(call) if name == "dim"), None)
    listed = given if isinstance(given, Sequence) else [] if given is None else [given]
    dims = sorted({dim % len(shape) for dim in listed} if shape else set()) or list(range(len(shape)))
    places = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    left = math.prod(n for dim, n in enumerate(shape) if dim not in dims)
    return np.moveaxis(places, dims, range(-len(dims), 0)).reshape(left, math.prod(shape[dim] for dim in dims))


def _scattered(call: Call, tags: dict[int, Tags]) -> Tags:
    base, source = operand_list(call)
    size, stride, offset = (to_python(arg, ()) for arg in call.args[2:])
    places = np.full((), offset, dtype=np.int64)
    for n, step in zip(size, stride, strict=True):
        places = np.add.outer(places, np.arange(n, dtype=np.int64) * step)
    found = tags[base].copy()
    found[places.reshape(-1)] = tags[source]
    return found
