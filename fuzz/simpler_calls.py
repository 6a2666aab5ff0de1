"""Steps of the reducer on calls and outputs: fewer of them, and plainer ones."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from executor.args import Arg, List, Ref, refs, rename
from executor.program import Call, Program
from executor.schema import accesses, effects
from fuzz.rewriting import compact, renamed, rerecord, returning
from fuzz.skeletons import ADDED

_LIST_ADDITION = "aten._foreach_add_.Scalar"


def bypassed(program: Program) -> Iterator[Program]:
    """Programs in which one call is left out and its operand stands for its result."""
    for k, call in enumerate(program.calls):
        if len(call.results) != 1 or not call.operands or call.results[0] in call.operands:
            continue
        (gone,), stand_in = call.results, call.operands[0]

        def new(index: int, gone: int = gone, stand_in: int = stand_in) -> Arg:
            return Ref(stand_in if index == gone else index)

        calls = tuple(renamed(other, new) for other in program.calls[:k] + program.calls[k + 1 :])
        changed = msgspec.structs.replace(program, calls=calls, outputs=rename(program.outputs, new))
        candidate = rerecord(changed, program.entry)
        if candidate is not None:
            yield candidate


def fewer_outputs(program: Program) -> Iterator[Program]:
    """Programs that return one value only, or one less."""
    outputs = list(refs(program.outputs))
    if len(outputs) > 1:
        for i in dict.fromkeys(outputs):
            yield compact(msgspec.structs.replace(program, outputs=Ref(i)))
        for k in range(len(outputs)):
            kept = outputs[:k] + outputs[k + 1 :]
            yield compact(msgspec.structs.replace(program, outputs=returning(kept, program)))


def plainer_calls(program: Program) -> Iterator[Program]:
    """Programs in which one pointwise call became the addition of its other operand, or of a number."""
    for k, call in enumerate(program.calls):
        plain = _plain(program, call)
        for args in _additions(call) if plain is not None else ():
            added = msgspec.structs.replace(call, op=plain or "", args=args, kwargs=())
            calls = (*program.calls[:k], added, *program.calls[k + 1 :])
            candidate = rerecord(msgspec.structs.replace(program, calls=calls), program.entry)
            if candidate is not None and candidate != program:
                yield candidate


def _plain(program: Program, call: Call) -> str | None:
    """The addition that could stand for a call which returns a tensor shaped like its first operand; None for others."""
    if not call.operands or len(call.results) != 1 or effects(call.op).views:
        return None
    first, result = program.values[call.operands[0]], program.values[call.results[0]]
    if first.shape != result.shape or call.op in ("aten.add.Tensor", "aten.add_.Tensor"):
        return None
    return "aten.add_.Tensor" if call.results[0] == call.operands[0] else "aten.add.Tensor"


def _additions(call: Call) -> Iterator[tuple[Arg, ...]]:
    first, *others = call.operands
    yield Ref(first), ADDED
    for other in others[:1]:
        yield Ref(first), Ref(other)


def plainer_lists(program: Program) -> Iterator[Program]:
    """Programs in which one call that writes a list of tensors became the addition of a number to one of them."""
    for k, call in enumerate(program.calls):
        if not call.op.startswith("aten._foreach_") or not accesses(program, call).writes:
            continue
        for i in dict.fromkeys(accesses(program, call).writes):
            plain = msgspec.structs.replace(call, op=_LIST_ADDITION, args=(List((Ref(i),)), ADDED), kwargs=())
            calls = (*program.calls[:k], plain, *program.calls[k + 1 :])
            candidate = (
                rerecord(msgspec.structs.replace(program, calls=calls), program.entry) if plain != call else None
            )
            if candidate is not None:
                yield candidate


def fewer_writes(program: Program) -> Iterator[Program]:
    """Programs in which one addition in place became one that gives a tensor of its own, for all that comes after it."""
    made = len(program.values)
    for k, call in enumerate(program.calls):
        if call.op != "aten.add_.Tensor":
            continue
        (written,) = call.results

        def new(index: int, written: int = written) -> Arg:
            return Ref(made if index == written else index)

        added = msgspec.structs.replace(call, op="aten.add.Tensor", results=(made,))
        calls = (*program.calls[:k], added, *(renamed(later, new) for later in program.calls[k + 1 :]))
        values, outputs = (*program.values, program.values[written]), rename(program.outputs, new)
        changed = msgspec.structs.replace(program, values=values, calls=calls, outputs=outputs)
        candidate = rerecord(changed, program.entry)
        if candidate is not None:
            yield candidate


def plainer_arguments(program: Program) -> Iterator[Program]:
    """Programs in which one integer among the arguments of a view became 0 or 1: a start, a step, a dimension."""
    for k, call in enumerate(program.calls):
        for place, arg in enumerate(call.args if effects(call.op).views else ()):
            for plain in (0, 1):
                if type(arg) is int and not 0 <= arg <= plain:
                    args = (*call.args[:place], plain, *call.args[place + 1 :])
                    calls = (*program.calls[:k], msgspec.structs.replace(call, args=args), *program.calls[k + 1 :])
                    candidate = rerecord(msgspec.structs.replace(program, calls=calls), program.entry)
                    if candidate is not None:
                        yield candidate
