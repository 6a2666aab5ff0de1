"""What the programs of a run were like, counted: operators, dtypes, how inputs and accesses lie, what became of them.

Counting takes time from the programs. Operators and dtypes are counted in each; how a program's accesses lie is looked at
in one of `EVERY`, chosen by its digest, so that the same run counts the same. Programs that shrinking makes are not
counted: they say what failures are like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import msgspec

from executor.facts import access, facts
from executor.jit import Compiled
from executor.pipeline import Compilation
from executor.program import Program, Value
from executor.regions import Region
from executor.targets import Target
from executor.targets.base import Adapter
from fuzz.hazards import Hazard, hazards, relation

EVERY = 4
APART = "different storages"
OVERLAPPING = ("must", "contained", "partial")

# What a program may have; a run in which few do proves little.
OVERLAP = "a read and a write of two tensors overlap"
PARTIAL = "a read and a write of two tensors overlap in part"
SHARED = "inputs share a storage"
THROUGH_VIEW = "a write through a view"
BARRIER = "a barrier"
FUSION = "a region of several calls"
BLEND = "a blend"
OF_MEMORY, OF_COMPILATION = (OVERLAP, PARTIAL, SHARED, THROUGH_VIEW), (BARRIER, FUSION, BLEND)


class Coverage(msgspec.Struct, kw_only=True):
    """Counts over some programs.

    `programs` is how many were drawn; `operators` counts the calls of each overload, and `dtypes` the programs that have
    values of each. `looked_at` is in how many of them memory was looked at: `inputs` counts their pairs of inputs by how
    they lie, `dependences` the pairs of accesses by kind and by how they lie. `compiled` is of how many the compilation is
    known. `features` counts the programs that have a thing, of those that were looked at or whose compilation is known.
    `tally` is what the target counted itself, see `Target.tally`; shrinking is part of that.
    """

    programs: int = 0
    looked_at: int = 0
    compiled: int = 0
    features: dict[str, int] = {}
    operators: dict[str, int] = {}
    dtypes: dict[str, int] = {}
    inputs: dict[str, int] = {}
    dependences: dict[str, int] = {}
    tally: dict[str, int] = {}

    def __add__(self, other: Coverage) -> Coverage:
        summed: dict[str, Any] = {}
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            summed[name] = mine + theirs if isinstance(mine, int) else dict(Counter(mine) + Counter(theirs))
        return Coverage(**summed)

    def share(self, feature: str) -> float | None:
        """The share of programs that have a feature, from 0 to 1; None if it was looked for in none."""
        of = self.compiled if feature in OF_COMPILATION else self.looked_at
        return self.features.get(feature, 0) / of if of else None


class Counts:
    """Counts programs one by one, memory in one of `every`; `take` gives the counts since it was asked last."""

    def __init__(self, every: int = EVERY) -> None:
        self._every = every
        self._start()

    def _start(self) -> None:
        self._programs = self._looked_at = self._compiled = 0
        self._features, self._operators, self._dtypes = Counter[str](), Counter[str](), Counter[str]()
        self._inputs, self._dependences = Counter[str](), Counter[str]()

    def see(self, program: Program, compilation: Compilation | None = None) -> None:
        """Counts a program, and what our compiler made of it if it did."""
        self._programs += 1
        self._operators.update([call.op for call in program.calls])
        self._dtypes.update({value.dtype for value in program.values})
        if compilation is not None:
            self._compiled += 1
            self._features.update(of_compilation(compilation))
        if int(program.digest[-8:], 16) % self._every == 0:
            self._look(program)

    def _look(self, program: Program) -> None:
        self._looked_at += 1
        found = list(hazards(program))
        pairs = [lie(program.values[a], program.values[b]) for a, b in combinations(program.inputs, 2)]
        self._inputs.update(pairs)
        self._dependences.update([f"{hazard.kind}, {hazard.relation}" for hazard in found])
        self._features.update(_of_memory(program, found, pairs))

    def take(self) -> Coverage:
        """The counts so far; the next ones begin at 0."""
        taken = Coverage(
            programs=self._programs,
            looked_at=self._looked_at,
            compiled=self._compiled,
            features=dict(self._features),
            operators=dict(self._operators),
            dtypes=dict(self._dtypes),
            inputs=dict(self._inputs),
            dependences=dict(self._dependences),
        )
        self._start()
        return taken


def lie(a: Value, b: Value) -> str:
    """How two inputs lie, in words; one of them is contained in the other if either is."""
    found = relation(a, b)
    return APART if found == "none" else relation(b, a) if found == "partial" else found


def _of_memory(program: Program, found: Sequence[Hazard], pairs: Sequence[str]) -> Iterator[str]:
    reads = {hazard.relation for hazard in found if hazard.kind != "write-after-write"}
    if not reads.isdisjoint(OVERLAPPING):
        yield OVERLAP
    if "partial" in reads:
        yield PARTIAL
    if any(pair != APART for pair in pairs):
        yield SHARED
    done = [(call, access(program.values, call)) for call in program.calls]
    views = {i for call, what in done if what.address and facts(call.op).views for i in call.results}
    if any(i in views for _, what in done for i in what.writes):
        yield THROUGH_VIEW


def of_compilation(compilation: Compilation) -> Iterator[str]:
    """Which features our compiler's output has."""
    if compilation.barriers:
        yield BARRIER
    if any(isinstance(step, Region) and _computing(step) > 1 for step in compilation.steps):
        yield FUSION
    calls = {trace.name: len(trace.calls) for trace in compilation.traces}
    if calls.get("blend", 0) > calls.get(
        "hoist", calls.get("forward", 0)
    ):  # a blend computes what a read of memory was
        yield BLEND


def _computing(region: Region) -> int:
    """How many calls of a region are of operators that compute elements, not addresses."""
    return sum(not facts(call.op).views for call in region.calls)


class Watched(Adapter):
    """A target as it is, but that one can look at what it compiled last."""

    def __init__(self, inner: Target) -> None:
        super().__init__(inner)
        self._compiled: Callable[..., Any] | None = None

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        """See `Target.compile`."""
        self._compiled = super().compile(fn, example_args)
        return self._compiled

    def take(self) -> Compilation | None:
        """What served the last call of what was compiled since this was asked before, if the target is our compiler.

        None for a program that was not compiled, but interpreted.
        """
        compiled, self._compiled = self._compiled, None
        last = compiled.last if isinstance(compiled, Compiled) else None
        return last if last is not None and last.steps else None
