"""What a program under construction has in scope: its values, and how large their elements may have become.

Every element is an integer. A range is kept per storage, so that an operator is offered only where its results stay
exact in their dtype, and comparison can be bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from executor.geometry import Footprint, Overlap, overlap
from executor.interpreter import flatten, returned
from executor.limits import EVERYTHING, Limits
from executor.program import Iota, Storage, Value, itemsize
from executor.recorder import Recorder
from executor.schema import resolve
from strategies.dtypes import ANYTHING, EXACT, KNOWN, TRUTH, Range, symmetric

Operand = Any  # an argument of an operator: a number, a tensor, or a list of these


NEVER = 1 << 16  # more calls than any program has


class Enough(Exception):
    """A statement has as many calls as it may have."""


class Scope:
    """A recorder and the ranges of its storages. Values are named by their index in the program."""

    def __init__(self, limits: Limits = EVERYTHING) -> None:
        self.recorder = Recorder()
        self.limits = limits
        self.dtypes = [t for t, name in KNOWN.items() if limits.takes_dtype(name)]
        self.written: set[int] = set()  # storages
        self.inputs: list[int] = []
        self.fixed: set[int] = set()  # values whose tensor is passed twice: it must stay what it is
        self.until = NEVER  # calls, after which `emit` raises `Enough`
        self._ranges: list[Range] = []
        self._dtypes: list[torch.dtype] = []
        self._fills: dict[int, Iota] = {}
        self._gapped: set[int] = set()
        self._footprints: list[Footprint] = []  # of the recorder's values, as far as they were asked for
        self._overlapping: list[bool] = []

    def takes(self, op: str, dtype: torch.dtype | None = None) -> bool:
        """Whether the compiler under test takes the operator, and results of the dtype."""
        return op not in self.limits.banned_ops and (dtype is None or dtype in self.dtypes)

    @property
    def count(self) -> int:
        """The number of values in scope."""
        return len(self.recorder.values)

    def value(self, index: int) -> Value:
        """The geometry of a value; if its tensor has become another value, that one's."""
        return self.recorder.values[self.recorder.current(index)]

    def footprint(self, index: int) -> Footprint:
        """The addresses that a value touches."""
        place = self.recorder.current(index)
        if place >= len(self._footprints):
            self._look()
        return self._footprints[place]

    def overlaps(self, index: int) -> bool:
        """Whether two elements of the value share memory."""
        place = self.recorder.current(index)
        if place >= len(self._overlapping):
            self._look()
        return self._overlapping[place]

    def _look(self) -> None:
        """Takes the footprints of the values that are new."""
        new = [value.footprint for value in self.recorder.values[len(self._footprints) :]]
        self._footprints += new
        self._overlapping += [footprint.self_overlaps for footprint in new]

    def tensor(self, index: int) -> torch.Tensor:
        """The live tensor of a value, with the contents that it has here when the program runs."""
        return self.recorder.tensors[index]

    def range(self, index: int) -> Range:
        """Where the elements of the value lie."""
        home = self.value(index).storage
        own, dtype = self.recorder.tensors[index].dtype, self._dtypes[home]
        return self._ranges[home] if own is dtype or own.to_real() is dtype.to_real() else ANYTHING

    def exact(self, index: int) -> bool:
        """Whether arithmetic may begin with the value: its elements are integers, and its dtype holds such exactly."""
        return self.range(index).within(EXACT[self.tensor(index).dtype])

    def alike(self, shape: torch.Size, dtype: torch.dtype) -> list[int]:
        """The values of this shape and dtype."""
        tensors = self.recorder.tensors
        return [i for i, tensor in enumerate(tensors) if tensor.shape == shape and tensor.dtype is dtype]

    def whole(self, index: int) -> bool:
        """Whether all of the value's storage has contents that mean something: a fresh one may have gaps."""
        return self.value(index).storage not in self._gapped

    def distinct(self, index: int) -> bool:
        """Whether no two elements of the value are equal, for sure."""
        value = self.value(index)
        fill = self._fills.get(value.storage)
        counts = fill is not None and not fill.period and value.dtype == fill.dtype != "bool"
        return counts and value.storage not in self.written and not self.overlaps(index)

    def add_input(self, tensor: torch.Tensor, fill: Iota) -> int:
        """Registers an input on a storage that begins with these contents."""
        storage = tensor.untyped_storage()
        index = self.recorder.input(tensor, Storage(storage.nbytes(), fill))
        self.inputs.append(index)
        if len(self._ranges) < len(self.recorder.storages):
            self._fills[len(self._ranges)] = fill
            self._ranges.append(_range_of(fill, storage.nbytes() // itemsize(fill.dtype)))
            self._dtypes.append(getattr(torch, fill.dtype))
        return index

    def emit(self, op: str, *args: Operand, range: Range | None = None, **kwargs: Any) -> list[int]:  # noqa: A002
        """Runs and records a call. Returns its results' indices.

        A fresh or written storage takes `range`, a copy that of its original; of complex numbers, the parts that the
        call leaves as they are, or makes 0, are in the range too.
        A banned operator is passed over: the operands stand for its results. Raises `Enough` beyond `until` calls.
        """
        if op in self.limits.banned_ops:
            return [self.recorder.ref(tensor).index for tensor in flatten(args)]
        if len(self.recorder.calls) >= self.until:
            raise Enough
        first = self._of_first(args)
        out = returned(op, args, self.recorder.call(resolve(op), *args, **kwargs))
        if range is not None and any(tensor.is_complex() for tensor in out):
            range = symmetric(range.hull(first).magnitude)  # noqa: A001 - conjugates have negative parts
        results = [self.recorder.ref(tensor).index for tensor in out]
        for index in results:
            home = self.value(index).storage
            if home == len(self._ranges):
                self._dtypes.append(self.tensor(index).dtype)
                self._ranges.append(range if range is not None else first)
                value = self.value(index)
                if value.numel * value.itemsize < self.recorder.storages[home].nbytes:
                    self._gapped.add(home)
            elif range is not None:
                self.note(index, range)
            elif self.tensor(index).is_complex() and not self._dtypes[home].is_complex:
                self._dtypes[home] = self.tensor(index).dtype  # parts of numbers now, which conjugation negates
                self._ranges[home] = symmetric(self._ranges[home].magnitude)
        return results

    def _of_first(self, args: tuple[Operand, ...]) -> Range:
        """The range of the first operand, of which a view operator has made a copy; 0 alone if there is none."""
        tensors = flatten(args)
        return self.range(self.recorder.ref(tensors[0]).index) if tensors else Range(0, 0)

    def note(self, index: int, written: Range) -> None:
        """Remembers that elements in this range were written to a value."""
        home = self.value(index).storage
        self.written.add(home)
        if self._dtypes[home].is_complex:
            written = symmetric(written.magnitude)
        known = self.range(index) is not ANYTHING or self._ranges[home] == ANYTHING
        self._ranges[home] = self._ranges[home].hull(written) if known else ANYTHING

    def operands(self) -> Sequence[int]:
        """The values that a statement may begin with; what stands there twice is drawn as often."""
        return range(self.count)

    def returnable(self) -> Sequence[int]:
        """The values that a program may return, the latest first; what stands there twice is drawn as often."""
        return range(self.count - 1, -1, -1)

    def writable(self) -> list[int]:
        """Values that an in-place op may write: no two of their elements share memory."""
        return [i for i in range(self.count) if not self.overlaps(i)]

    def apart(self, target: int, operand: int) -> bool:
        """Whether the two have no byte in common."""
        if self.value(target).storage != self.value(operand).storage:
            return True
        return overlap(self.footprint(operand), self.footprint(target)) is Overlap.NO_ALIAS

    def may_read(self, target: int, operand: int) -> bool:
        """Whether eager lets a write to `target` read `operand`, with one outcome whatever the order of elements.

        Eager refuses operands that overlap a dense target in part even where each element reads only itself, so the
        operand has to be the target, element for element, or lie apart from it.
        """
        return self.apart(target, operand) or self.value(target) == self.value(operand)


def _range_of(fill: Iota, count: int) -> Range:
    if fill.dtype == "bool":
        return TRUTH
    last = fill.start + max((fill.period or count) - 1, 0)
    found = Range(fill.start, last)
    return symmetric(found.magnitude) if fill.dtype.startswith("complex") else found
