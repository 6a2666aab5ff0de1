"""`Story`: a case's failing call, run again in eager step by step, and on the target, with names for all storages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aliasfuzz.pictures.cells import dtype_of
from aliasfuzz.pictures.differences import Difference, difference
from aliasfuzz.pictures.sides import Contents, Side, moments, side, target_run
from aliasfuzz.pictures.statements import Script, script
from corpus.case import Case
from executor import targets
from executor.args import refs
from executor.program import Inputs, Value
from fuzz.check import Verdict
from fuzz.runs import run
from fuzz.subjects import Subject, of_program

# After these there is nothing of the target's to look at.
NO_RESULT = frozenset({"crash", "memory-limit", "timeout", "exception"})


class Story(NamedTuple):
    """The call that is shown, counted from 0, and what happened in it.

    `shared` are the names of the storages of the inputs. `names` are those of the storages, by their number in the program, and `dtypes` those of their cells, by name.
    `moments` are eager's storages at first and after each statement. `target` is None where the target left no result, or
    was not run.
    """

    call: int
    shared: Sequence[str]
    script: Script
    names: dict[int, str]
    dtypes: dict[str, str]
    moments: Sequence[Contents]
    eager: Side
    target: Side | None
    difference: Difference | None

    def values(self, name: str) -> list[Value]:
        """The values that lie on a storage."""
        return [value for value in self.script.program.values if self.names.get(value.storage) == name]


def story(case: Case, verdict: Verdict | None) -> Story:
    """Runs the case's failing call, or its first. `verdict` is what the target did, or None if it cannot be run.

    The target runs in this process, under a time limit, and only if it did so before and gave a wrong result.
    """
    call = verdict.call if verdict is not None else 0
    subject = of_program(case.program, case.calls)
    held, arguments = subject.ways[call].build()
    inputs = (case.program.entry, *case.calls)[call]
    traced = script(case.program, arguments)
    names = _names(traced, inputs)
    filled = {f"s{k}": storage.fill.dtype for k, storage in enumerate(inputs.storages) if storage.fill is not None}
    program = traced.program
    dtypes = {
        name: dtype_of([value for value in program.values if value.storage == number], filled.get(name))
        for number, name in names.items()
    }
    mine = {k: f"s{k}" for k in range(len(inputs.storages))}
    fresh = {k: names[program.values[i].storage] for k, i in enumerate(refs(program.outputs))}
    eager = side(run(subject.reference, *subject.ways[call].build()), mine, fresh)
    there = _there(subject, verdict, mine, fresh)
    apart = difference(eager, there, [*mine.values()], dtypes, exact=case.exact) if there is not None else None
    return Story(call, [*mine.values()], traced, names, dtypes, list(moments(traced, held)), eager, there, apart)


def _names(traced: Script, inputs: Inputs) -> dict[int, str]:
    """Storages of inputs are called as in the program's listing, those that the program allocates in the same manner."""
    program = traced.program
    given = zip(program.inputs, inputs.values, strict=True)
    names = {program.values[i].storage: f"s{value.storage}" for i, value in given}
    for value in program.values:
        names.setdefault(value.storage, f"s{len(names)}")
    return names


def _there(subject: Subject, verdict: Verdict | None, mine: dict[int, str], fresh: dict[int, str]) -> Side | None:
    if verdict is None or verdict.ok or not NO_RESULT.isdisjoint(verdict.symptoms):
        return None
    left = target_run(targets.get(verdict.target), subject, verdict.call)
    return side(left, mine, fresh) if left.error is None else None
