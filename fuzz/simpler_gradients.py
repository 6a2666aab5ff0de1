"""Steps of the reducer on gradients: fewer inputs that require them, no `no_grad`, and a caller who goes backward once."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from executor.program import Backward, Program
from fuzz.rewriting import rerecord

_PLAIN = Backward()


def fewer_gradients(program: Program) -> Iterator[Program]:
    """Programs of which no input requires grad, or one less, or one is a leaf that was none."""
    entry = program.entry
    if not (program.leaves or program.rooted):
        return
    yield msgspec.structs.replace(_with(program, (), ()), backward=None)
    for position in (*program.leaves, *program.rooted):
        kept = [tuple(k for k in group if k != position) for group in (program.leaves, program.rooted)]
        yield from _recorded(program, *kept)
    for position in program.rooted:
        if all(position not in pair for pair in entry.twins):
            kept_rooted = tuple(k for k in program.rooted if k != position)
            yield from _recorded(program, tuple(sorted((*program.leaves, position))), kept_rooted)


def _with(program: Program, leaves: tuple[int, ...], rooted: tuple[int, ...]) -> Program:
    calls = tuple(msgspec.structs.replace(call, no_grad=False) for call in program.calls)
    return msgspec.structs.replace(program, leaves=leaves, rooted=rooted, calls=calls)


def _recorded(program: Program, leaves: tuple[int, ...], rooted: tuple[int, ...]) -> Iterator[Program]:
    """The program with these, if there are some left and eager takes it so."""
    if leaves or rooted:
        candidate = rerecord(program, msgspec.structs.replace(program.entry, leaves=leaves, rooted=rooted))
        if candidate is not None:
            yield candidate


def fewer_blocks(program: Program) -> Iterator[Program]:
    """Programs in which calls that were under `no_grad` are not: all of them, or one."""
    without = [k for k, call in enumerate(program.calls) if call.no_grad]
    for chosen in ([without] if len(without) > 1 else []) + [[k] for k in without]:
        calls = tuple(
            msgspec.structs.replace(call, no_grad=call.no_grad and k not in chosen)
            for k, call in enumerate(program.calls)
        )
        candidate = rerecord(msgspec.structs.replace(program, calls=calls), program.entry)
        if candidate is not None:
            yield candidate


def plainer_backward(program: Program) -> Iterator[Program]:
    """Programs whose caller goes backward in a plainer way: once from all results, or as before but for one thing."""
    plan = program.backward
    if plan is None:
        return
    yield msgspec.structs.replace(program, backward=None)
    for name in Backward.__struct_fields__:
        if getattr(plan, name) != getattr(_PLAIN, name):
            plainer = msgspec.structs.replace(plan, **{name: getattr(_PLAIN, name)})
            if plainer != _PLAIN:
                yield msgspec.structs.replace(program, backward=plainer)
