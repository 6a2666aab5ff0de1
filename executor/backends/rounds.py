"""Kernels that make early write-backs, run in rounds: who computes, loads and stores what before whom.

Each round evaluates everything anew from the memory of its moment, writes a random share of the elements back, and keeps
them, from what it had loaded until then and loads since. A reduction's elements are computed once, each in its round, and
what waits for them comes later.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from executor.backends.order import earliest
from executor.calls import Runner, prepare
from executor.elements import combines, crosses, squeezed
from executor.facts import access, loads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.backends.order import Rounds
    from executor.program import Call
    from executor.regions import Region

ROUNDS = 3
Elements = dict[int, torch.Tensor]


def _evaluated(runners: list[Runner], env: list[Any], *, first: bool) -> bool:
    """Runs the calls. In a later round an index may be out of bounds, or a divisor 0, computed from what was written since.

    No thread of a kernel would compute it then; what is left keeps the elements of the first round, which it may too.
    """
    try:
        for run in runners:
            run(env)
    except (IndexError, RuntimeError):
        if first:
            raise
        return False
    return True


class InRounds:
    """A kernel with early write-backs: each round computes from the memory of its moment, and keeps some elements."""

    def __init__(self, region: Region, calls: Sequence[Call], seed: int) -> None:
        self.region, self.calls, self.seed = region, calls, seed
        self.runners = [prepare(call) for call in calls]
        values, early = region.program.values, [value for _, value in region.early]
        self._count = len(values)
        self._wanted = tuple(dict.fromkeys((*region.outputs, *early)))
        self._waiting = _waiting(region)
        self._loaded = {value: loads(region.calls, values, [value]) for value in early}
        read = loads(region.calls, values, self._wanted)
        # Whether some input that lies on a target's storage may be loaded after a store to it: so it is in every other round.
        self._later = any(
            values[v].storage == values[target].storage
            for target, value in region.early
            for v in read - self._loaded[value]
        )
        self._reductions = [i for i, call in enumerate(calls) if _is_at_stake(region, call)]

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs; the early write-backs are made."""
        schedule = _Threads(self.seed)
        memory: list[Any] = [None] * self._count
        for index, tensor in zip(self.region.inputs, inputs, strict=True):
            memory[index] = tensor
        runners = list(self.runners)
        there = self._there(schedule) if self._reductions else {}
        together = _Together(there)
        for i in self._reductions:
            runners[i] = together.computed(self.calls[i], runners[i])
        seen = list(memory)
        _evaluated(runners, seen, first=True)
        kept: dict[int, torch.Tensor] = {v: seen[v].clone() for v in self._wanted}
        turns = self._turns(kept, schedule, there)
        for together.turn in range(ROUNDS):
            turn = together.turn
            mine = {v: turns[v] == turn for v in self._wanted}
            if turn:  # what the first round computes is kept as it is
                self._keep(runners, kept, mine, list(memory), self._wanted)
            self._store(runners, memory, kept, mine, later=self._later and (turn + self.seed) % 2 == 0)
        return [kept[v] for v in self.region.outputs]

    def _there(self, threads: _Threads) -> dict[int, Rounds]:
        """When reductions can be there: at once, or as other values, or at last where no early write-back waits for it."""
        values, calls = self.region.program.values, self.calls
        waited = _needed(self.region, [value for _, value in self.region.early])
        at_once = self.seed % 2 == 0

        def rounds(v: int) -> Rounds:
            turns = threads.turns(values[v].shape).reshape(-1).numpy()
            if values[v].storage not in waited:
                return np.full_like(turns, ROUNDS - 1)
            return np.zeros_like(turns) if at_once else turns

        return earliest(calls, values, rounds)

    def _turns(
        self, values: dict[int, torch.Tensor], schedule: _Threads, there: dict[int, Rounds]
    ) -> dict[int, torch.Tensor]:
        """For each element the round in which it is kept."""
        turns: dict[int, torch.Tensor] = {}
        for v, tensor in values.items():
            shape = tuple(tensor.shape)
            turn = schedule.turns(shape)
            turns[v] = torch.full_like(turn, ROUNDS - 1) if v in self._waiting else turn
            if v in there:
                turns[v] = torch.maximum(turns[v], torch.from_numpy(there[v]).reshape(shape))
        return turns

    def _keep(
        self, runners: list[Runner], kept: Elements, mine: Elements, seen: list[Any], values: Sequence[int]
    ) -> None:
        """Computes everything from what is `seen`, and keeps those elements of the values that are `mine`."""
        if _evaluated(runners, seen, first=False):
            for v in values:
                kept[v] = torch.where(mine[v], seen[v], kept[v])

    def _store(self, runners: list[Runner], memory: list[Any], kept: Elements, mine: Elements, *, later: bool) -> None:
        """Writes the elements that are `mine` back. `later`: what a stored value does not wait for is loaded after that."""
        seen = list(memory)  # what the threads have loaded so far; the rest is memory as it is when they do
        for target, value in self.region.early:
            if later:
                for v in self._loaded[value]:
                    seen[v] = seen[v].clone() if seen[v] is memory[v] else seen[v]
                self._keep(runners, kept, mine, seen, [value])
            memory[target].copy_(torch.where(mine[value], kept[value], memory[target]))
        if later:
            self._keep(runners, kept, mine, seen, self.region.outputs)


class _Threads:
    """In which round each thread computes, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._schedule = torch.Generator().manual_seed(seed)
        self._of_shape: dict[tuple[int, ...], torch.Tensor] = {}

    def turns(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Of the threads that compute values of a shape; sizes of 1 tell none apart."""
        short = squeezed(shape)
        if short not in self._of_shape:
            # Each round its share, so that two elements already are computed one after the other.
            turns = torch.randperm(math.prod(short), generator=self._schedule) % ROUNDS
            self._of_shape[short] = turns.reshape(short)
        return self._of_shape[short].reshape(shape)


class _Together:
    """Reductions, each element of which is computed once: in its round (`there`), from the memory of that moment."""

    def __init__(self, there: dict[int, Rounds]) -> None:
        self.there, self.turn = there, 0
        self._made: dict[int, torch.Tensor] = {}
        self._known: dict[int, torch.Tensor] = {}

    def computed(self, call: Call, run: Runner) -> Runner:
        """What runs the call, and brings back the elements that there are."""
        [v] = call.results

        def together(env: list[Any]) -> None:
            run(env)
            if v in self._made:
                env[v] = torch.where(self._known[v], self._made[v], env[v])
            self._made[v] = env[v]
            self._known[v] = torch.from_numpy(self.there[v] <= self.turn).reshape(env[v].shape)

        return together


def _needed(region: Region, wanted: Sequence[int]) -> set[int]:
    """The storages of all that the region computes on the way to some values, and theirs."""
    values = region.program.values
    needed = {values[v].storage for v in wanted}
    for call in reversed(region.calls):
        if any(values[r].storage in needed for r in call.results):
            needed.update(values[v].storage for v in call.operands)
    return needed


def _is_at_stake(region: Region, call: Call) -> bool:
    """Whether a call is a reduction of what the kernel itself overwrites."""
    values = region.program.values
    return combines(call, values) and any(
        values[v].meets(values[target]) for v in loads(region.calls, values, call.results) for target, _ in region.early
    )


def _waiting(region: Region) -> set[int]:
    """The outputs that wait for a reduction, and that the kernel does not store itself."""
    waiting: set[int] = set()  # storages; to look at a value's shape is not to wait for it
    values = region.program.values
    for call in region.calls:
        what = access(values, call)
        if (crosses(call, values) and not what.address) or any(values[v].storage in waiting for v in what.reads):
            waiting.update(values[v].storage for v in call.results)
    early = {value for _, value in region.early}
    return {v for v in region.outputs if values[v].storage in waiting and v not in early}
