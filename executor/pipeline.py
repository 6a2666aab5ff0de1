"""The compiler from end to end: passes in order, partition, proof, steps. `jit` caches what `compile_program` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from executor.cost import CostModel, Estimate
from executor.executable import Executable
from executor.memory_ssa import MemorySSA
from executor.partition import Partition, partition
from executor.passes.blend import Blend, blend
from executor.passes.cleanup import common_subexpressions, dead_calls
from executor.passes.coalesce import coalesce
from executor.passes.forward import forward
from executor.passes.functional import out_of_place
from executor.passes.writeback import dead_stores
from executor.regions import Barrier, Layout, Region, linear
from executor.traces import Trace
from executor.verify import early_refusal, verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from executor.backends.base import Backend
    from executor.program import Program

Aliases = Literal["barrier", "blend", "auto"]


class Chooser:
    """Decides for each read that several writes reach whether to blend it. `estimates` are those of `auto`."""

    def __init__(self, aliases: Aliases, cost: CostModel) -> None:
        self.aliases, self.cost = aliases, cost
        self.estimates: list[Estimate] = []

    def __call__(self, plan: Blend) -> bool:
        """Whether to blend this read."""
        if self.aliases != "auto":
            return self.aliases == "blend"
        self.estimates.append(self.cost.estimate(plan))
        return self.estimates[-1].blends


def passes(choose: Chooser) -> list[tuple[str, Callable[[Program], Program]]]:
    """The passes in order, each with its name."""
    found: list[tuple[str, Callable[[Program], Program]]] = [
        ("out of place", out_of_place),
        ("forward", forward),
    ]
    if choose.aliases != "barrier":
        found.append(("blend", partial(blend, choose=choose)))
    found += [
        ("dead calls", dead_calls),
        ("common subexpressions", common_subexpressions),
        ("dead stores", dead_stores),
        ("dead calls", dead_calls),
        ("coalesce", coalesce),
    ]
    return found


@dataclass(frozen=True)
class Compilation:
    """One compiled program. The counts are those of the design: `copies` are late write-backs."""

    program: Program
    traces: tuple[Trace, ...]
    executable: Executable
    partition: Partition
    estimates: tuple[Estimate, ...] = field(default=())

    @property
    def regions(self) -> int:
        """How many regions the backend runs."""
        return sum(isinstance(step, Region) for step in self.executable.steps)

    @property
    def barriers(self) -> int:
        """How many boundaries between regions a hazard forces."""
        return sum(isinstance(step, Barrier) for step in self.executable.steps)

    @property
    def breaks(self) -> int:
        """How many boundaries between regions exist only because of a call that runs eagerly."""
        return max(self.regions - 1, 0) - self.barriers

    @property
    def copies(self) -> int:
        """How many values the host copies into memory."""
        return self.executable.copies


def compile_program(program: Program, backend: Backend, aliases: Aliases = "auto", cost: CostModel | None = None) -> Compilation:
    """Compiles a program that eager accepts. Raises `AliasRaceError` if the result were not free of races."""
    traces = [Trace("trace", program, 0.0, {})]
    choose = Chooser(aliases, cost or CostModel())
    for name, run in passes(choose):
        start = perf_counter()
        program = run(program)
        traces.append(Trace(name, program, (perf_counter() - start) * 1e3, {"calls": len(program.calls)}))
    start = perf_counter()
    memory = MemorySSA(program)
    found = with_early(partition(program, partial(backend.supports, program), memory), memory, backend)
    verify(found, memory)
    steps = Layout(found, memory).run()
    executable = Executable(program, steps, memory, backend)
    compilation = Compilation(program, (), executable, found, tuple(choose.estimates))
    counts = {name: getattr(compilation, name) for name in ("regions", "barriers", "breaks", "copies")}
    notes = tuple(str(estimate) for estimate in choose.estimates)
    traces.append(Trace("regions", linear(program, steps), (perf_counter() - start) * 1e3, counts, notes))
    return Compilation(program, tuple(traces), executable, found, tuple(choose.estimates))


def with_early(found: Partition, memory: MemorySSA, backend: Backend) -> Partition:
    """The partition with those write-backs early that are allowed to be and that the backend wants so."""
    for i in range(len(found.program.calls)):
        if memory.stored(i) is None or not backend.writes_early(found, memory, i):
            continue
        if early_refusal(found, memory, i) is None:
            found = found._replace(early=found.early | {i})
    return found
