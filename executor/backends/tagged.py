"""Partitions run on *tagged* elements: each is the id of the expression that it came from, not a number.

With numbers a wrong schedule may give the right result by coincidence (zeros, equal elements, a sum that stays).
With tags it differs whenever any interpretation of the operators would: elementwise operators combine the tags of their
operands' elements, reductions those of the elements reduced, all others those of everything they read. Memory is held byte by byte, so that views of other dtypes
see what they would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from executor.args import Ref, refs, rename, to_python
from executor.elements import REDUCTIONS, elementwise
from executor.facts import facts
from executor.memory_ssa import MemorySSA, footprint
from executor.schema import bound, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from executor.program import Call, Program

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
        operands = call.operands
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
        first = next(iter(call.operands), result)
        if call.op == "aten.copy_.default" or (
            facts(call.op).move and elementwise(call) and value.shape == values[first].shape
        ):
            return self._moved(call.operands[-1], result, tags)
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
        operands = call.operands
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
    base, source = call.operands
    size, stride, offset = (to_python(arg, ()) for arg in call.args[2:])
    places = np.full((), offset, dtype=np.int64)
    for n, step in zip(size, stride, strict=True):
        places = np.add.outer(places, np.arange(n, dtype=np.int64) * step)
    found = tags[base].copy()
    found[places.reshape(-1)] = tags[source]
    return found
