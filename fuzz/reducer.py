"""Makes a failing program smaller on its own terms: statements out, inputs and outputs dropped, sizes down.

Hypothesis shrinks the draws behind a program, well but in hundreds of runs. This works on the program itself, by delta
debugging (Zeller and Hildebrandt, 2002: chunks of statements, halved while none can go), so that a compiler that takes a
tenth of a second a program still gives a small case in a few seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from executor.program import Program
from fuzz.definedness import is_defined
from fuzz.rewriting import without
from fuzz.simpler_calls import (
    bypassed,
    fewer_outputs,
    fewer_writes,
    plainer_arguments,
    plainer_calls,
    plainer_lists,
)
from fuzz.simpler_gradients import fewer_blocks, fewer_gradients, plainer_backward
from fuzz.simpler_inputs import (
    fewer_inputs,
    merged_inputs,
    named,
    plainer_contents,
    plainer_dtypes,
    smaller_inputs,
)
from fuzz.skeletons import FORMS, Rank, skeletons

Fails = Callable[[Program], bool]
Step = Callable[[Program], Iterator[Program]]

STEPS: tuple[Step, ...] = (
    bypassed, fewer_outputs, fewer_inputs, merged_inputs, plainer_contents, smaller_inputs, plainer_dtypes, plainer_calls,
    plainer_lists, fewer_writes, plainer_arguments, plainer_backward, fewer_gradients, fewer_blocks, named,
)  # fmt: skip


def reduce(program: Program, fails: Fails, relations: Collection[str] = ()) -> Program:
    """A program that still `fails`, and that none of the steps here can make smaller.

    `program` must fail itself. Steps are tried until none succeeds; each only ever makes the program smaller or plainer.
    The plainest programs are tried for how its accesses lie, and for other `relations` (see `fuzz.skeletons`).
    If its outcome does not depend on the order in which elements are visited, that of what is tried does not either.
    """
    if is_defined(program):
        return _reduced(program, lambda candidate: is_defined(candidate) and fails(candidate), relations)
    return _reduced(program, fails, relations)


def _reduced(program: Program, fails: Fails, relations: Collection[str]) -> Program:
    rank: Rank = (len(FORMS), 0)
    while True:
        before = program
        program = _fewer_statements(program, fails)
        for step in STEPS:
            program = _greedy(program, step, fails)
        if program == before:
            program, rank = _plainest(program, fails, rank, relations)
        if program == before:
            return program


def _plainest(program: Program, fails: Fails, best: Rank, relations: Collection[str]) -> tuple[Program, Rank]:
    """The first skeleton of the program that fails and is no longer, of a better rank than the last, with its rank."""
    for rank, candidate in skeletons(program, relations):
        if rank >= best:
            break
        if len(candidate.calls) <= len(program.calls) and fails(candidate):
            return candidate, rank
    return program, best


def _greedy(program: Program, step: Step, fails: Fails) -> Program:
    """Takes the first candidate of `step` that fails, again and again."""
    while (smaller := next((candidate for candidate in step(program) if fails(candidate)), None)) is not None:
        program = smaller
    return program


def _fewer_statements(program: Program, fails: Fails) -> Program:
    size = max(len(program.calls) // 2, 1)
    while program.calls:
        smaller = next((c for c in _without_chunks(program, size) if fails(c)), None)
        if smaller is not None:
            program = smaller
        elif size == 1:
            break
        else:
            size //= 2
        size = max(min(size, len(program.calls)), 1)
    return program


def _without_chunks(program: Program, size: int) -> Iterator[Program]:
    for start in reversed(range(0, len(program.calls), size)):
        yield without(program, set(range(start, start + size)))
