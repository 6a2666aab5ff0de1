"""When each element of a region's values can be there, given when its reductions are computed: each of them once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from executor.elements import combines, elementwise
from executor.facts import access, facts
from executor.geometry import index_map
from executor.memory_ssa import footprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from executor.program import Call, Value

    # For each element of a value, in row-major order, a round of the kernel.
    Rounds = npt.NDArray[np.int64]

# For each element of a reduction's result the round in which threads compute it.
Turns = Callable[[int], "Rounds"]


def earliest(calls: Sequence[Call], values: Sequence[Value], turns: Turns) -> dict[int, Rounds]:
    """For each result of the calls the first round in which each of its elements can be there.

    A reduction's element is computed in the round that `turns` gives, or when all that the reduction waits for is there.
    What depends on it element by element waits for that element; what depends on it otherwise, for all of them.
    """
    found = _Earliest(values)
    for call in calls:
        if not access(values, call).address:
            found.add(call, turns)
    return found.rounds


class _Earliest:
    def __init__(self, values: Sequence[Value]) -> None:
        self.values = values
        self.rounds: dict[int, Rounds] = {}
        self.made: dict[int, list[int]] = {}  # the results on each storage

    def add(self, call: Call, turns: Turns) -> None:
        """The call's results, which wait for what its operands wait for."""
        operands = {v: self._of(v) for v in call.operands}
        last = max((int(one.max()) for one in operands.values() if len(one)), default=0)
        for r in call.results:
            value = self.values[r]
            self.rounds[r] = np.full(value.numel, last, dtype=np.int64)
            if combines(call, self.values):
                self.rounds[r] = np.maximum(turns(r), last)
            elif last and elementwise(call):
                self.rounds[r] = self._each(call, r, operands)
        for r in call.results:
            self.made.setdefault(self.values[r].storage, []).append(r)

    def _each(self, call: Call, result: int, operands: dict[int, Rounds]) -> Rounds:
        shape = self.values[result].shape
        if facts(call.op).move:
            return operands[call.operands[0]]
        each = [np.broadcast_to(one.reshape(self.values[v].shape), shape) for v, one in operands.items()]
        return np.asarray(np.max(each, axis=0).reshape(-1), dtype=np.int64)

    def _of(self, v: int) -> Rounds:
        """Of a value that may be a view of a result, or an input, which is there from the start."""
        value = self.values[v]
        results = self.made.get(value.storage, [])
        if v in self.rounds:
            return self.rounds[v]
        if len(results) == 1:
            where = index_map(footprint(value), footprint(self.values[results[0]]))
            if where is not None:
                return self.rounds[results[0]][where]
        last = max((int(self.rounds[r].max()) for r in results if self.values[r].numel), default=0)
        return np.full(value.numel, last, dtype=np.int64)
