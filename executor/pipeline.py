"""The compiler from end to end: passes in order, partition, proof, steps. `jit` caches what comes out."""

from __future__ import annotations

from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from executor.backends.base import Detail, Detailed
from executor.cost import CostModel, Estimate
from executor.executable import Executable
from executor.interpreter import run as interpret
from executor.memory_ssa import MemorySSA
from executor.partition import partition
from executor.passes.blend import Blend, blend
from executor.passes.cleanup import common_subexpressions, dead_calls
from executor.passes.coalesce import coalesce
from executor.passes.forward import forward
from executor.passes.functional import out_of_place
from executor.passes.hoist import Hoist, hoist
from executor.passes.patch import Patch, patch
from executor.passes.writeback import dead_stores
from executor.regions import Barrier, Layout, Region, linear
from executor.traces import Trace, describe, make
from executor.verify import early_refusal, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from executor.backends.base import Backend
    from executor.partition import Hazard, Partition
    from executor.program import Call, Program
    from executor.regions import Step

Aliases = Literal["barrier", "blend", "auto"]


class Chooser:
    """Decides for each read that several writes reach how to lower it. `estimates` are those of `auto`.

    `supports`: whether a backend takes a call of a program into its regions.
    """

    def __init__(
        self, aliases: Aliases, cost: CostModel, supports: Callable[[Program, Call], bool] = lambda *_: True
    ) -> None:
        self.aliases, self.cost, self.supports = aliases, cost, supports
        self.estimates: list[Estimate] = []

    def patches(self, plan: Patch) -> bool:
        """Whether to patch this call. The host reads memory as it is, so its calls gain nothing."""
        found = self.cost.patch(plan)
        if not found.patches or not self.supports(plan.program, plan.call):
            return False
        self.estimates.append(found)
        return True

    def hoists(self, plan: Hoist) -> bool:
        """Whether to compute this part alone."""
        return self.cost.hoists(plan)

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
    if choose.aliases == "auto":
        found += [
            ("patch", partial(patch, choose=choose.patches)),
            ("hoist", partial(hoist, choose=choose.hoists)),
        ]
    if choose.aliases != "barrier":
        found.append(("blend", partial(blend, choose=choose)))
    found += [
        ("dead calls", dead_calls),
        ("common subexpressions", common_subexpressions),
        ("dead stores", dead_stores),
        ("dead calls", dead_calls),
        ("coalesce", coalesce),
        ("dead calls", dead_calls),  # what was stored only where nobody looks
    ]
    return found


class Stage(NamedTuple):
    """The program after a pass, and how long that took."""

    name: str
    program: Program
    milliseconds: float = 0.0


class Compilation:
    """One compiled program. The counts are those of the design: `copies` are late write-backs.

    `stages`: the program as it was traced, then after each pass; what follows took `milliseconds`. `estimates` are the costs
    that `aliases="auto"` went by.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        executable: Executable | None = None,
        estimates: Sequence[Estimate] = (),
        milliseconds: float = 0.0,
    ) -> None:
        self.program = stages[-1].program
        self.estimates = tuple(estimates)
        self._stages, self._milliseconds = stages, milliseconds
        self.steps: list[Step] = executable.steps if executable else []
        self.copies: int = executable.copies if executable else 0
        self.run: Callable[[Sequence[torch.Tensor]], Any] = (
            executable.run if executable else partial(interpret, self.program)
        )
        self.regions = sum(isinstance(step, Region) for step in self.steps)
        found = [step for step in self.steps if isinstance(step, Barrier)]
        self.barriers = len(found)
        # Boundaries that no hazard forces exist because of calls that run eagerly.
        self.breaks = max(self.regions - 1 - self.barriers, 0)
        self.refused: tuple[tuple[Call, str], ...] = ()  # the calls that run on the host, with the reasons
        self.note = ""  # why this compilation was chosen, if there was another
        self._kernels = executable.kernels if executable else []

    @cached_property
    def traces(self) -> tuple[Trace, ...]:
        """The programs after each pass, in order, to read; the last one has the steps written out."""
        first, *others = self._stages
        found = [make(first.program, first.name)]
        found += [make(one.program, one.name, one.milliseconds, (("calls", len(one.program.calls)),)) for one in others]
        return (*found, *([self._written_out()] if others else []))

    def _written_out(self) -> Trace:
        program, marks = linear(self.program, self.steps)
        counts = tuple((name, int(getattr(self, name))) for name in ("regions", "barriers", "breaks", "copies"))
        trace = make(program, "regions", self._milliseconds, counts, tuple(map(str, self.estimates)))
        return msgspec.structs.replace(trace, marks=marks, frees=True)

    @property
    def regions_detail(self) -> list[Detail]:
        """What became of each region, in order; empty for a backend that generates no code."""
        return [kernel.detail() for _, kernel in self._kernels if isinstance(kernel, Detailed)]

    def explain(self) -> str:
        """For each barrier the accesses that forced it: who wrote what, who reads what, and where.

        Then the calls that the backend does not take, and why; and what was measured, if anything was.
        """
        lines = []
        for barrier in (step for step in self.steps if isinstance(step, Barrier)):
            lines.append(f"barrier before region {barrier.level}:")
            lines += [f"    {_explain(self.program, hazard)}" for hazard in barrier.hazards]
        lines = lines or ["no barriers"]
        if self.refused:
            lines += ["on the host:", *(f"    {_who(call)}: {why}" for call, why in self.refused)]
        for region, kernel in self._kernels:
            if isinstance(kernel, Detailed) and kernel.failure:
                lines.append(f"region {region.level} runs call by call, since its compiler failed: {kernel.failure}")
        return "\n".join([*lines, self.note] if self.note else lines)


def _refused(found: Partition, memory: MemorySSA, backend: Backend) -> tuple[tuple[Call, str], ...]:
    """The calls, stores apart, that are part of no region, and why."""
    calls = found.program.calls
    return tuple(
        (calls[i], "it has no out-of-place form" if what.writes else backend.refusal(found.program, calls[i]) or "")
        for i, what in enumerate(memory.accesses)
        if not (what.address or found.fused[i] or memory.stored(i) is not None)
    )


def _explain(program: Program, hazard: Hazard) -> str:
    values, calls = program.values, program.calls
    written, read = values[hazard.written], values[hazard.read]
    return (
        f"{_who(calls[hazard.reader])} reads {describe(program, read)}, "
        f"which {_who(calls[hazard.writer])} has written in part, at {describe(program, written)}"
    )


def _who(call: Call) -> str:
    return f"{call.op} ({call.source.file}:{call.source.line})" if call.source else call.op


def uncompiled(program: Program) -> Compilation:
    """A program that is interpreted as it is: the eager baseline, and programs that eager refuses."""
    return Compilation([Stage("trace", program)])


def compile_program(
    program: Program, backend: Backend, aliases: Aliases = "auto", cost: CostModel | None = None
) -> Compilation:
    """Compiles a program that eager accepts. Raises `AliasRaceError` if the result were not free of races."""
    stages = [Stage("trace", program)]
    choose = Chooser(aliases, cost or backend.cost, backend.supports)
    for name, run in passes(choose):
        start = perf_counter()
        program = run(program)
        stages.append(Stage(name, program, (perf_counter() - start) * 1e3))
    start = perf_counter()
    memory = MemorySSA.of(program)
    found = with_early(partition(program, partial(backend.supports, program), memory), memory, backend)
    verify(found, memory, backend.early_refusal)
    executable = Executable(program, Layout(found, memory).run(), memory, backend)
    compilation = Compilation(stages, executable, choose.estimates, (perf_counter() - start) * 1e3)
    compilation.refused = _refused(found, memory, backend)
    return compilation


def with_early(found: Partition, memory: MemorySSA, backend: Backend) -> Partition:
    """The partition with those write-backs early that are allowed to be and that the backend wants so."""
    for i in range(len(found.program.calls)):
        if memory.stored(i) is None or not backend.writes_early(found, memory, i):
            continue
        if early_refusal(found, memory, i) is None:
            found = found._replace(early=found.early | {i})
    return found
