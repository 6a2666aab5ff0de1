"""Changes to a program that leave it whole: calls left out, values renumbered, the same calls on other inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec
import torch

from executor import memory
from executor.args import Arg, Ref, Tuple, refs, rename, to_python
from executor.errors import TraceError
from executor.interpreter import returned
from executor.program import Call, Inputs, Program
from executor.recorder import Recorder
from executor.schema import changes_metadata, resolve
from fuzz.runs import quiet


def without(program: Program, gone: set[int]) -> Program:
    """The program without the calls at these positions and all that need their results.

    Outputs that are gone with them are dropped; if all are, the first input is returned.
    """
    lost: set[int] = set()
    calls: list[Call] = []
    for k, call in enumerate(program.calls):
        if k in gone or not lost.isdisjoint(call.operands):
            lost.update(set(call.results) - set(call.operands))
        else:
            calls.append(call)
    outputs = [i for i in refs(program.outputs) if i not in lost]
    raises = program.raises if calls and calls[-1] is program.calls[-1] else None
    shorter = msgspec.structs.replace(program, calls=tuple(calls), raises=raises)
    tree = program.outputs if len(outputs) == len(list(refs(program.outputs))) else returning(outputs, shorter)
    return compact(msgspec.structs.replace(shorter, outputs=tree))


def returning(outputs: list[int], program: Program) -> Arg:
    """An outputs tree: the one value, a tuple of several, or the first input, as it is then, if there is none."""
    if len(outputs) > 1:
        return Tuple(tuple(Ref(i) for i in outputs))
    return Ref(outputs[0] if outputs else last_value(program, program.inputs[0]))


def last_value(program: Program, index: int) -> int:
    """The value that the tensor object of a value is after the last call: another one if its metadata changed."""
    for call in program.calls:
        if call.results and changes_metadata(call.op) and call.operands[0] == index:
            (index,) = call.results
    return index


def renamed(call: Call, new: Callable[[int], Arg]) -> Call:
    """The call on other values; in-place results follow their operand."""
    args = tuple(rename(arg, new) for arg in call.args)
    kwargs = tuple((name, rename(arg, new)) for name, arg in call.kwargs)
    results = tuple(i for result in call.results for i in refs(new(result)))
    return msgspec.structs.replace(call, args=args, kwargs=kwargs, results=results)


def rerecord(program: Program, inputs: Inputs) -> Program | None:
    """The same calls on other inputs, with the geometry that eager gives them; None if eager refuses another one of them.

    A program whose last call eager refuses stays one.
    """
    if program.constants:
        return None
    if any(inputs.values[later] != inputs.values[earlier] for later, earlier in inputs.twins):
        return None
    apart = msgspec.structs.replace(inputs, twins=())  # each input is a value of its own
    recorder = Recorder()
    env: list[object] = [None] * len(program.values)
    if any(value.end > inputs.storages[value.storage].nbytes for value in inputs.values):
        return None  # a value that overlapped itself needs more room once it is contiguous
    given: dict[int, int] = {}
    done = 0  # calls that give what they gave
    for index, tensor, value in zip(program.inputs, memory.allocate(apart).tensors, inputs.values, strict=True):
        given[index] = recorder.input(tensor, inputs.storages[value.storage])
        env[index] = tensor
    with quiet(), contextlib.suppress(RuntimeError, IndexError, ValueError, TraceError):
        for call in program.calls:
            _again(recorder, call, env)
            done += 1
    if done + (program.raises is not None) != len(program.calls) or _refusal(recorder) != program.raises:
        return None
    place = [recorder.ref(value).index if value is not None else -1 for value in env]  # type: ignore[arg-type]

    def new(index: int) -> Arg:
        return Ref(place[index])

    params = [
        msgspec.structs.replace(param, value=rename(param.value, lambda index: Ref(given[index])))
        for param in program.params
    ]
    again = recorder.program(
        params, rename(program.outputs, new), inputs.twins, leaves=inputs.leaves, rooted=inputs.rooted
    )
    return msgspec.structs.replace(again, backward=program.backward)


def _refusal(recorder: Recorder) -> str | None:
    return type(recorder.refused).__name__ if recorder.refused is not None else None


def _again(recorder: Recorder, call: Call, env: list[object]) -> None:
    args = [to_python(arg, env) for arg in call.args]
    kwargs = {name: to_python(arg, env) for name, arg in call.kwargs}
    with torch.no_grad() if call.no_grad else contextlib.nullcontext():
        out = recorder.call(resolve(call.op), *args, **kwargs)
    for index, tensor in zip(call.results, returned(call.op, args, out), strict=True):
        env[index] = tensor


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

    return msgspec.structs.replace(
        program,
        storages=tuple(program.storages[i] for i in homes),
        values=tuple(msgspec.structs.replace(program.values[i], storage=home[program.values[i].storage]) for i in kept),
        params=tuple(msgspec.structs.replace(param, value=rename(param.value, new)) for param in program.params),
        calls=tuple(renamed(call, new) for call in program.calls),
        outputs=rename(program.outputs, new),
        constants=tuple(place[i] for i in constants),
    )


def with_inputs_left(program: Program, left: Sequence[int]) -> Program:
    """The program, whose parameters hold only the inputs at these positions now, with what it says of each position."""

    def still(positions: Sequence[int]) -> tuple[int, ...]:
        return tuple(left.index(position) for position in positions if position in left)

    twins = tuple(pair for old in program.twins if len(pair := still(old)) == 2)
    return msgspec.structs.replace(program, twins=twins, leaves=still(program.leaves), rooted=still(program.rooted))
