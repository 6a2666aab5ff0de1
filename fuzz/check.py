"""`check`: runs one function or program on a compiler under test, and compares everything with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from corpus.signature import Signature
from executor import interpreter, memory, printing, targets
from executor.args import to_python
from executor.errors import TraceError
from executor.memory import Memory
from executor.program import Inputs, Program
from executor.schema import accesses
from executor.targets import Target
from executor.tracing import Tracer
from fuzz import precision
from fuzz.hazards import sign
from fuzz.oracle import Close, Mismatch, compare
from fuzz.runs import attempt, quiet, run

TIME_LIMIT = 20.0  # seconds for one compilation and run on a target that may hang


@dataclass(frozen=True)
class Verdict:
    """What a check found. `mismatches` are the differences from eager, worst first; empty if there are none.

    `call` says which call of the compiled function went wrong, counting from 0. `program` is None if the function
    could not be traced. `refused` is what the target says that it does not support, if that is why it gave no result.
    """

    target: str
    mismatches: tuple[Mismatch, ...] = ()
    call: int = 0
    program: Program | None = field(default=None, repr=False)
    refused: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the target did all that eager does, or said that it does not support the program."""
        return not self.mismatches

    @property
    def symptoms(self) -> tuple[str, ...]:
        """The kinds of difference, each once, worst first."""
        return tuple(dict.fromkeys(mismatch.symptom for mismatch in self.mismatches))

    @property
    def signature(self) -> Signature | None:
        """The identity of the bug; None if all is well."""
        if self.ok:
            return None
        worst = self.mismatches[0]
        return sign(
            self.program,
            self.target,
            worst.symptom if not self.call else f"{worst.symptom} in a later call",
            worst.detail,
        )

    def __str__(self) -> str:
        if self.ok:
            return f"{self.target}: {f'refused: {self.refused}' if self.refused else 'ok'}"
        later = f" in call {self.call + 1} of the compiled function" if self.call else ""
        lines = [f"{self.target} differs from eager{later}:", *(f"  {mismatch}" for mismatch in self.mismatches)]
        return "\n".join([*lines, f"  signature: {self.signature}"])


@dataclass(frozen=True)
class Subject:
    """A function under test and its ways to be called: each builds fresh memory and the arguments that lie in it."""

    fn: Callable[..., Any]
    reference: Callable[..., Any]
    program: Program | None
    calls: tuple[Callable[[], tuple[Memory, list[Any]]], ...]
    mixed: tuple[int, ...] = ()


def check(
    subject: Callable[..., Any] | Program,
    args: Sequence[Any] = (),
    target: str | Target = targets.DEFAULT,
    *,
    exact: bool = True,
    calls: Sequence[Inputs] = (),
) -> Verdict:
    """Compares `target` with eager on a Python function and its arguments, or on a program.

    `args` are trees of tensors that may alias; whole storages are cloned, and the originals left alone. A program needs
    none: it says what its inputs are, and `calls` adds further calls of the same compiled function. Values are compared
    bit for bit; with `exact=False`, floating-point results are judged by their error against a float64 run.
    Raises `TargetError` if there is no such target; whatever the target itself raises is part of the verdict.
    """
    compiler = targets.get(target) if isinstance(target, str) else targets.adapt(target)
    if isinstance(subject, Program):
        made = program_subject(subject, calls, source=compiler.needs_source)
    else:
        made = function_subject(subject, args)
    return examine(made, compiler, exact=exact)


def examine(subject: Subject, compiler: Target, *, exact: bool = True) -> Verdict:
    """The verdict on a subject: compiled once, then called in each of its ways."""
    name = compiler.name
    seconds = TIME_LIMIT if compiler.unsafe else 0
    compiled, error = attempt(compiler.compile, (subject.fn, tuple(subject.calls[0]()[1])), seconds)
    call = compiled if error is None else _raiser(error)
    for k, build in enumerate(subject.calls):
        close = _judge(subject, build) if not exact else None
        ours, theirs = build(), build()
        eager = run(subject.reference, *ours)
        result = run(call, *theirs, seconds)
        refused = compiler.refusal(result.error) if result.error is not None else None
        if refused is not None:
            return Verdict(name, (), k, subject.program, refused)
        found = compare(
            eager, result, mixed=subject.mixed, undefined=_undefined(subject.program, eager.error), close=close
        )
        if found:
            return Verdict(name, tuple(found), k, subject.program)
    return Verdict(name, (), 0, subject.program)


def _raiser(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


def _judge(subject: Subject, build: Callable[[], tuple[Memory, list[Any]]]) -> Close:
    held, arguments = build()
    places = {id(tensor): k for k, tensor in enumerate(held.tensors)}
    return precision.judge(
        subject.reference,
        held,
        lambda wide: pytree.tree_map_only(torch.Tensor, lambda tensor: wide[places[id(tensor)]], arguments),
    )


def _undefined(program: Program | None, error: BaseException | None) -> bool:
    """Whether eager refused a write to a tensor that overlaps itself, so that memory may hold part of it."""
    if error is None or program is None or not program.calls:
        return False
    return any(program.values[i].footprint.self_overlaps for i in accesses(program, program.calls[-1]).writes)


def program_subject(program: Program, calls: Sequence[Inputs] = (), *, source: bool = True) -> Subject:
    """A program under test; with `source`, as a Python function that has source text of its own."""
    fn = printing.load(program) if source else program
    mixed = _mixed(program)
    return Subject(
        fn,
        lambda *args: interpreter.call(program, args, {}),
        program,
        tuple(_entry(program, inputs) for inputs in (program.entry, *calls)),
        mixed,
    )


def _entry(program: Program, inputs: Inputs, variant: int = 0) -> Callable[[], tuple[Memory, list[Any]]]:
    def build() -> tuple[Memory, list[Any]]:
        held = memory.allocate(inputs, variant)
        env: list[Any] = [None] * len(program.values)
        for index, tensor in zip(program.inputs, held.tensors, strict=True):
            env[index] = tensor
        return held, [to_python(param.value, env) for param in program.params]

    return build


def _mixed(program: Program) -> tuple[int, ...]:
    """The input storages on which values of several dtypes lie, by their position in `program.entry`."""
    dtypes: dict[int, set[str]] = {}
    for value in program.values:
        dtypes.setdefault(value.storage, set()).add(value.dtype)
    homes = sorted({program.values[i].storage for i in program.inputs})
    return tuple(k for k, home in enumerate(homes) if len(dtypes[home]) > 1)


def function_subject(fn: Callable[..., Any], args: Sequence[Any]) -> Subject:
    """A Python function under test, with arguments that are cloned by storage for each run."""
    leaves, structure = pytree.tree_flatten(list(args))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    originals = [leaves[k] for k in places]

    def build() -> tuple[Memory, list[Any]]:
        held = memory.clone(originals)
        filled = list(leaves)
        for k, tensor in zip(places, held.tensors, strict=True):
            filled[k] = tensor
        return held, pytree.tree_unflatten(filled, structure)

    return Subject(fn, fn, _traced(fn, args), (build,))


def _traced(fn: Callable[..., Any], args: Sequence[Any]) -> Program | None:
    """The function's program, also if eager refuses its last call; None if no program can hold it."""
    tracer = Tracer(fn, args, {})
    try:
        with quiet():
            return tracer.trace()
    except (TraceError, TypeError):
        return None
    except Exception as error:
        if error is tracer.recorder.refused:
            return tracer.refused()
        raise
