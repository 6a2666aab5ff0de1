"""What a program under construction has in scope: its values, and how large their elements may have become.

Every element is an integer. A bound on its magnitude is kept per storage, so that an operator is offered only where its
results stay exact in their dtype, and comparison can be bit for bit.
"""

from __future__ import annotations

from typing import Any

import torch

from executor.geometry import Overlap, overlap
from executor.interpreter import flatten
from executor.program import Iota, Storage, Value
from executor.recorder import Recorder
from executor.schema import resolve
from strategies.dtypes import EXACT

Operand = int | float | list[int] | torch.Tensor | list[torch.Tensor] | None


class Scope:
    """A recorder and the bounds of its storages. Values are named by their index in the program."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.written: set[int] = set()  # storages
        self._bounds: list[int] = []

    @property
    def count(self) -> int:
        """The number of values in scope."""
        return len(self.recorder.values)

    def value(self, index: int) -> Value:
        """The geometry of a value."""
        return self.recorder.values[index]

    def tensor(self, index: int) -> torch.Tensor:
        """The live tensor of a value; its contents mean nothing."""
        return self.recorder.tensors[index]

    def bound(self, index: int) -> int:
        """No element of the value's storage is larger in magnitude than this."""
        return self._bounds[self.recorder.values[index].storage]

    def limit(self, index: int) -> int:
        """The bound up to which the value's dtype is exact."""
        return EXACT[self.tensor(index).dtype]

    def add_input(self, tensor: torch.Tensor, fill: Iota) -> int:
        """Registers an input on a storage that begins with these contents."""
        storage = tensor.untyped_storage()
        index = self.recorder.input(tensor, Storage(storage.nbytes(), fill))
        if len(self._bounds) < len(self.recorder.storages):
            count = storage.nbytes() // tensor.itemsize
            self._bounds.append(max(abs(fill.start), abs(fill.start + max((fill.period or count) - 1, 0))))
        return index

    def emit(self, op: str, *args: Operand, bound: int | None = None, **kwargs: Any) -> list[int]:
        """Runs and records a call; a fresh or written storage takes `bound`. Returns its results' indices."""
        out = self.recorder.call(resolve(op), *args, **kwargs)
        results = [self.recorder.ref(tensor).index for tensor in flatten(out)]
        for index in results:
            home = self.value(index).storage
            if home == len(self._bounds):
                self._bounds.append(bound or 0)
            elif bound is not None:
                self.written.add(home)
                self._bounds[home] = max(self._bounds[home], bound)
        return results

    def writable(self) -> list[int]:
        """Values that an in-place op may write: no two of their elements share memory."""
        return [i for i in range(self.count) if not self.value(i).footprint.self_overlaps]

    def may_read(self, target: int, operand: int) -> bool:
        """Whether eager lets a write to `target` read `operand`, with one outcome whatever the order of elements.

        Eager refuses operands that overlap a dense target in part even where each element reads only itself, so the
        operand has to be the target, element for element, or lie apart from it.
        """
        written, read = self.value(target), self.value(operand)
        if written.storage != read.storage or overlap(read.footprint, written.footprint) is Overlap.NO_ALIAS:
            return True
        return (written.shape, written.strides, written.offset) == (read.shape, read.strides, read.offset)
