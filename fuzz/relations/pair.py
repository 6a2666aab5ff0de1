"""A compiler's results for a program compared with its results for a rewriting of it."""

from __future__ import annotations

import torch

from executor.program import Program
from executor.targets import Target
from fuzz.check import TIME_LIMIT, float64_judge
from fuzz.oracle import Mismatch
from fuzz.precision import Judge
from fuzz.relations import RELATIONS, rewritten
from fuzz.relations.agreement import disagreements
from fuzz.runs import Run, attempt, run
from fuzz.state import State
from fuzz.subjects import Subject, of_program


def compared(
    program: Program, relation: str, compiler: Target, *, seconds: float | None = None
) -> tuple[Mismatch, ...]:
    """The differences between what the compiler makes of a program and of its rewriting by the relation of this name.

    Floating-point values may differ by what one of the two may err, judged by a float64 run. Empty if the relation does not
    apply or a run fails: that is for `fuzz.check.check` to judge. Each compilation and call may take `seconds` as in
    `fuzz.check.examine`. Raises `RelationError` if there is no such relation.
    """
    other = rewritten(program, relation)
    if other is None:
        return ()
    limit = 0 if not compiler.unsafe else TIME_LIMIT if seconds is None else seconds
    subject = of_program(program, source=compiler.needs_source)
    eager = run(subject.reference, *subject.ways[0].build())
    first = _run(subject, compiler, limit)
    second = _run(of_program(other, source=compiler.needs_source), compiler, limit)
    if eager.error is not None or first.error is not None or second.error is not None:
        return ()
    measure = _Measure(float64_judge(subject, subject.ways[0]), eager)
    return tuple(disagreements(RELATIONS[relation], program, other, first, second, measure))


def _run(subject: Subject, compiler: Target, limit: float) -> Run:
    memory, arguments = subject.ways[0].build()
    state = State()
    compiled = attempt(compiler.compile, (subject.fn, tuple(subject.ways[0].build()[1])), limit, state)
    if compiled.error is not None:
        return Run(memory, (), None, compiled.error)
    return run(compiled.value, memory, arguments, limit, state)


class _Measure:
    """How near two results have to be, given eager's own. See `fuzz.relations.agreement.Near`."""

    def __init__(self, judge: Judge, eager: Run) -> None:
        self._judge, self._eager = judge, eager

    def __call__(self, k: int, one: torch.Tensor, other: torch.Tensor) -> bool:
        outputs, inputs = self._eager.leaves, self._eager.memory.tensors
        # The judge counts the outputs, then the storages, then the inputs.
        place = k if k < len(outputs) else k + len(self._eager.memory.bases)
        return self._judge.alike(place, (*outputs, *inputs)[k], one, other)
