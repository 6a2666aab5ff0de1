"""The adversary: runs regions on the CPU under hostile schedules, drawn by a seed from all that may happen.

What may happen inside a region, all of it seen on real fusers:

1. kernels run in any topological order of the dataflow, their elements interleaved;
2. a value may be computed anew from the region's inputs at any later moment; threads that wait for a reduction load what
   they need when they go on, after the early write-backs of those that did not;
3. an early write-back lands at any moment after its value is known, also before other reads of its target: of other
   threads', and of its own thread's through an input for which the value does not wait;
4. an output that is reached from an input by moving elements alone, or whose value is written back early, may be handed
   out as that input's own memory;
5. a late write-back is made by the host after all kernels, in program order.

With late write-backs alone nothing changes while a region runs, so that 1 and 2 cannot show; 4 does, and is used
wherever it may be. With early ones the elements are computed in rounds: each round evaluates everything anew from the
memory of that moment, writes a random share of the elements back, and keeps them, from what it had loaded until then
and loads since.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import torch

from executor.args import to_python
from executor.backends.base import Backend, Kernel
from executor.calls import Calls, Runner, prepare
from executor.cost import BYTES_PER_SECOND, CostModel
from executor.elements import crosses, squeezed
from executor.facts import access, facts, loads
from executor.schema import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.memory_ssa import MemorySSA
    from executor.partition import Partition
    from executor.program import Call
    from executor.regions import Region

ROUNDS = 3


class WeakMemory(Backend):
    """`seed` draws the schedules. `early`: the share of allowed early write-backs that are made so."""

    name = "weak_memory"
    # So that of the small programs that it is for, some are patched and others blended.
    cost = CostModel(seconds_per_call=0.0, seconds_per_blend=64 / BYTES_PER_SECOND)

    def __init__(self, seed: int = 0, early: float = 0.5) -> None:
        self.seed, self.early = seed, early
        self._random = random.Random(seed)

    def writes_early(self, found: Partition, memory: MemorySSA, store: int) -> bool:
        """A coin."""
        del found, memory, store
        return self._random.random() < self.early

    def compile(self, region: Region) -> Kernel:
        """The region under one schedule, drawn now, so that every call of the kernel replays it."""
        schedule = random.Random(self._random.randrange(1 << 30))
        calls = topological(region.calls, schedule)
        shared = {v: moves(region, v) for v in region.aliases if schedule.random() < 0.5}
        if region.early:
            rounds = _Rounds(region, [prepare(call) for call in calls], schedule.randrange(1 << 30))
            return _handing_out(region, rounds, shared)
        compute = Calls(calls, region.inputs, region.outputs)
        return _handing_out(region, compute, shared) if shared else compute


def topological(calls: Sequence[Call], schedule: random.Random) -> list[Call]:
    """The calls in a random order that respects their dataflow."""
    makers = {result: i for i, call in enumerate(calls) for result in call.results}
    waits = [{makers[v] for v in call.operands if v in makers} for call in calls]
    followers: list[list[int]] = [[] for _ in calls]
    for i, needed in enumerate(waits):
        for j in needed:
            followers[j].append(i)
    ready = [i for i, needed in enumerate(waits) if not needed]
    order = []
    while ready:
        i = ready.pop(schedule.randrange(len(ready)))
        order.append(calls[i])
        for j in followers[i]:
            waits[j].discard(i)
            if not waits[j]:
                ready.append(j)
    return order


Step = tuple["Call", int]  # a call, and which of its results goes on
Moves = tuple[int, list[Step]]


def moves(region: Region, output: int) -> Moves:
    """An input of the region, and what moves its elements to the output: views, and copies that may be left out."""
    early = {value: target for target, value in region.early}
    chain: list[Step] = []
    makers = {result: (call, k) for call in region.calls for k, result in enumerate(call.results)}
    v = output
    while v not in region.inputs:
        if v in early:
            return early[v], chain[::-1]
        chain.append(makers[v])
        v = makers[v][0].operands[0]
    return v, chain[::-1]


def _handing_out(region: Region, compute: Kernel, shared: dict[int, Moves]) -> Kernel:
    """The same kernel, which hands out views of inputs instead of some outputs that have the same elements."""
    places = [(region.outputs.index(v), region.inputs.index(source), chain) for v, (source, chain) in shared.items()]

    def kernel(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        made = compute(inputs)
        for place, source, chain in places:
            try:
                view = _view_of(inputs[source], chain)
            except RuntimeError:  # no view can be had of this layout
                continue
            if view.shape == made[place].shape:
                made[place] = view
        return made

    return kernel


def _view_of(tensor: torch.Tensor, chain: list[Step]) -> torch.Tensor:
    """The input with the chain's views applied and its copies left out, as a tensor object of its own."""
    tensor = tensor.detach()
    for call, result in chain:
        if not facts(call.op).move:
            out = resolve(call.op)(tensor, *[to_python(arg, ()) for arg in call.args[1:]])
            tensor = out if isinstance(out, torch.Tensor) else out[result]
        elif call.op == "aten.reshape.default":
            tensor = tensor.view(to_python(call.args[1], ()))
    return tensor


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


class _Rounds:
    """A kernel with early write-backs: each round computes from the memory of its moment, and keeps some elements."""

    def __init__(self, region: Region, runners: list[Runner], seed: int) -> None:
        self.region, self.runners, self.seed = region, runners, seed
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

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs; the early write-backs are made."""
        schedule = torch.Generator().manual_seed(self.seed)
        memory: list[Any] = [None] * self._count
        for index, tensor in zip(self.region.inputs, inputs, strict=True):
            memory[index] = tensor
        seen = list(memory)
        _evaluated(self.runners, seen, first=True)
        kept: dict[int, torch.Tensor] = {v: seen[v].clone() for v in self._wanted}
        turns = self._turns(kept, schedule)
        for turn in range(ROUNDS):
            mine = {v: turns[v] == turn for v in self._wanted}
            if turn:  # what the first round computes is kept as it is
                self._keep(kept, mine, list(memory), self._wanted)
            self._store(memory, kept, mine, later=self._later and (turn + self.seed) % 2 == 0)
        return [kept[v] for v in self.region.outputs]

    def _turns(self, values: dict[int, torch.Tensor], schedule: torch.Generator) -> dict[int, torch.Tensor]:
        """For each element the round in which it is kept."""
        turns: dict[int, torch.Tensor] = {}
        of_shape: dict[tuple[int, ...], torch.Tensor] = {}
        for v, tensor in values.items():
            # One thread computes an element of all values of this shape, dimensions of size 1 left out.
            shape = squeezed(tuple(tensor.shape))
            if shape not in of_shape:
                # Each round its share, so that two elements already are computed one after the other.
                of_shape[shape] = (torch.randperm(math.prod(shape), generator=schedule) % ROUNDS).reshape(shape)
            turn = of_shape[shape].reshape(tensor.shape)
            turns[v] = torch.full_like(turn, ROUNDS - 1) if v in self._waiting else turn
        return turns

    def _keep(
        self, kept: dict[int, torch.Tensor], mine: dict[int, torch.Tensor], seen: list[Any], values: Sequence[int]
    ) -> None:
        """Computes everything from what is `seen`, and keeps those elements of the values that are `mine`."""
        if _evaluated(self.runners, seen, first=False):
            for v in values:
                kept[v] = torch.where(mine[v], seen[v], kept[v])

    def _store(
        self, memory: list[Any], kept: dict[int, torch.Tensor], mine: dict[int, torch.Tensor], *, later: bool
    ) -> None:
        """Writes the elements that are `mine` back. `later`: what a stored value does not wait for is loaded after that."""
        seen = list(memory)  # what the threads have loaded so far; the rest is memory as it is when they do
        for target, value in self.region.early:
            if later:
                for v in self._loaded[value]:
                    seen[v] = seen[v].clone() if seen[v] is memory[v] else seen[v]
                self._keep(kept, mine, seen, [value])
            memory[target].copy_(torch.where(mine[value], kept[value], memory[target]))
        if later:
            self._keep(kept, mine, seen, self.region.outputs)


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
