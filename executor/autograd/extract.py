"""A part of what was recorded as a program of its own: some calls, from some values to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from executor.args import Arg, Ref, Tuple, rename
from executor.program import Call, Param, Program, Storage, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.recorder import Recorder


def extract(
    recorder: Recorder, calls: Sequence[Call], params: Sequence[tuple[str, int]], outputs: Sequence[int | None]
) -> Program:
    """The program that runs these calls on named values and returns a tuple of others, or of None.

    Its values and storages are numbered anew. Grad mode is no matter any more: it runs below autograd.
    """
    part = _Part(recorder)
    named = tuple(Param(name, part.ref(v)) for name, v in params)
    known = {v for _, v in params}.union(*(call.results for call in calls))
    constants = [v for v in recorder.constants if v not in known and any(v in call.operands for call in calls)]
    held = tuple(part.value(v) for v in constants)
    body = tuple(part.call(call) for call in calls)
    tree = Tuple(tuple(None if v is None else part.ref(v) for v in outputs))
    return Program(tuple(part.storages), tuple(part.values), named, body, tree, constants=held)


class _Part:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._values: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self.values: list[Value] = []
        self.storages: list[Storage] = []

    def value(self, index: int) -> int:
        """The new number of a value."""
        if index not in self._values:
            old = self._recorder.values[index]
            if old.storage not in self._storages:
                self._storages[old.storage] = len(self.storages)
                self.storages.append(self._recorder.storages[old.storage])
            self._values[index] = len(self.values)
            self.values.append(msgspec.structs.replace(old, storage=self._storages[old.storage]))
        return self._values[index]

    def ref(self, index: int) -> Arg:
        """A reference to a value."""
        return Ref(self.value(index))

    def call(self, call: Call) -> Call:
        """The call on the values' new numbers."""
        args = tuple(rename(arg, self.ref) for arg in call.args)
        kwargs = tuple((key, rename(arg, self.ref)) for key, arg in call.kwargs)
        return Call(call.op, args, kwargs, tuple(self.value(v) for v in call.results), call.source)
