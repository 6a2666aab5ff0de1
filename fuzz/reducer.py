"""Makes a failing program smaller where Hypothesis cannot: it deletes an input or statement without renumbering draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from executor.args import Arg, Ref, Tuple, refs, rename
from executor.program import Program


def reduce(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program that still `fails` and of which no output, statement or input can be left out.

    `program` must fail itself. Greedy: one candidate at a time, beginning again after each success, so at most a
    quadratic number of runs in its few statements.
    """
    while True:
        smaller = next((candidate for candidate in candidates(program) if fails(candidate)), None)
        if smaller is None:
            return program
        program = smaller


def candidates(program: Program) -> Iterator[Program]:
    """Valid programs with one thing less, the largest savings first."""
    outputs = tuple(refs(program.outputs))
    for k in reversed(range(len(program.calls))):
        used = {i for call in program.calls[k + 1 :] for i in call.operands} | set(outputs)
        fresh = set(program.calls[k].results) - set(program.calls[k].operands)
        if used.isdisjoint(fresh):
            yield compact(msgspec.structs.replace(program, calls=program.calls[:k] + program.calls[k + 1 :]))
    for index in program.inputs:
        if _unused(program, index) and len(program.inputs) > 1:
            params = tuple(param for param in program.params if tuple(refs(param.value)) != (index,))
            if len(params) < len(program.params) and not program.twins:
                yield compact(msgspec.structs.replace(program, params=params))
    if len(outputs) > 1:
        for k in range(len(outputs)):
            kept = [Ref(i) for j, i in enumerate(outputs) if j != k]
            yield compact(msgspec.structs.replace(program, outputs=kept[0] if len(kept) == 1 else Tuple(tuple(kept))))
    for index in program.inputs:
        if outputs != (index,) and len(outputs) == 1:
            yield compact(msgspec.structs.replace(program, outputs=Ref(index)))


def _unused(program: Program, index: int) -> bool:
    return all(index not in call.operands for call in program.calls) and index not in tuple(refs(program.outputs))


def compact(program: Program) -> Program:
    """The same program without values and storages that nothing uses, renumbered in order."""
    used = {*program.inputs, *refs(program.outputs)}
    for call in program.calls:
        used.update(call.operands, call.results)
    constants = tuple(i for i in program.constants if i in used)
    kept = sorted(used)
    place = {index: k for k, index in enumerate(kept)}
    homes = sorted({program.values[i].storage for i in kept})
    home = {index: k for k, index in enumerate(homes)}

    def new(index: int) -> Arg:
        return Ref(place[index])

    return Program(
        storages=tuple(program.storages[i] for i in homes),
        values=tuple(msgspec.structs.replace(program.values[i], storage=home[program.values[i].storage]) for i in kept),
        params=tuple(msgspec.structs.replace(param, value=rename(param.value, new)) for param in program.params),
        calls=tuple(
            msgspec.structs.replace(
                call,
                args=tuple(rename(arg, new) for arg in call.args),
                kwargs=tuple((name, rename(arg, new)) for name, arg in call.kwargs),
                results=tuple(place[i] for i in call.results),
            )
            for call in program.calls
        ),
        outputs=rename(program.outputs, new),
        twins=program.twins,
        constants=tuple(place[i] for i in constants),
        raises=program.raises,
    )
