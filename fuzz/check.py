"""`check`: runs one function or program on a compiler under test, and compares everything with eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from corpus.signature import Signature
from executor import targets
from executor.program import Inputs, Program
from executor.targets import Target
from fuzz import precision
from fuzz.hazards import sign
from fuzz.oracle import Close, Mismatch, compare
from fuzz.runs import attempt, run
from fuzz.subjects import Subject, Way, of_function, of_program, partly_written

NO_BOUNDS: Mapping[str, int] = MappingProxyType({})
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
    def symptom(self) -> str:
        """The worst kind of difference, and whether it showed in a later call only; empty if all is well."""
        if self.ok:
            return ""
        return f"{self.mismatches[0].symptom} in a later call" if self.call else self.mismatches[0].symptom

    @property
    def signature(self) -> Signature | None:
        """The identity of the bug; None if all is well."""
        if self.ok:
            return None
        worst = self.mismatches[0]
        return sign(self.program, self.target, self.symptom, worst.detail)

    def __str__(self) -> str:
        if self.ok:
            return f"{self.target}: {f'refused: {self.refused}' if self.refused else 'ok'}"
        later = f" in call {self.call + 1} of the compiled function" if self.call else ""
        lines = [f"{self.target} differs from eager{later}:", *(f"  {mismatch}" for mismatch in self.mismatches)]
        return "\n".join([*lines, f"  signature: {self.signature}"])


def check(
    subject: Callable[..., Any] | Program,
    args: Sequence[Any] = (),
    target: str | Target = targets.DEFAULT,
    *,
    exact: bool = True,
    calls: Sequence[Inputs] = (),
    bounds: Mapping[str, int] | None = None,
) -> Verdict:
    """Compares `target` with eager on a Python function and its arguments, or on a program.

    `args` are trees of tensors that may alias; whole storages are cloned, and the originals left alone. A program needs
    none: it says what its inputs are, and `calls` adds further calls of the same compiled function. Values are compared
    bit for bit; with `exact=False`, floating-point results are judged by their error against a float64 run.
    `bounds` are counts that the target's metrics must not exceed, such as {"barriers": 1}.
    Raises `TargetError` if there is no such target; whatever the target itself raises is part of the verdict.
    """
    compiler = targets.get(target) if isinstance(target, str) else targets.adapt(target)
    if isinstance(subject, Program):
        made = of_program(subject, calls, source=compiler.needs_source)
    else:
        made = of_function(subject, args)
    return examine(made, compiler, exact=exact, bounds=bounds or {})


def examine(
    subject: Subject, compiler: Target, *, exact: bool = True, bounds: Mapping[str, int] = NO_BOUNDS
) -> Verdict:
    """The verdict on a subject: compiled once, then called in each of its ways."""
    name = compiler.name
    seconds = TIME_LIMIT if compiler.unsafe else 0
    compiled, error = attempt(compiler.compile, (subject.fn, tuple(subject.ways[0].build()[1])), seconds)
    call = compiled if error is None else _raiser(error)
    for k, way in enumerate(subject.ways):
        close = _judge(subject, way) if not exact else None
        eager, result = run(subject.reference, *way.build()), run(call, *way.build(), seconds)
        refused = compiler.refusal(result.error) if result.error is not None else None
        if refused is not None:
            return Verdict(name, (), k, subject.program, refused)
        undefined = eager.error is not None and (k > 0 or partly_written(subject.program))
        found = compare(eager, result, mixed=way.mixed, undefined=undefined, close=close)
        if not found and bounds:
            found = list(_exceeded(compiler.metrics(call), bounds))
        if found:
            return Verdict(name, tuple(found), k, subject.program)
    return Verdict(name, (), 0, subject.program)


def _exceeded(counts: Mapping[str, int], bounds: Mapping[str, int]) -> Iterator[Mismatch]:
    for name, most in bounds.items():
        if counts.get(name, 0) > most:
            yield Mismatch("count", name, f"at most {most}", str(counts[name]), name)


def _raiser(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


def _judge(subject: Subject, way: Way) -> Close:
    held, arguments = way.build()
    places = {id(tensor): k for k, tensor in enumerate(held.tensors)}
    return precision.judge(
        subject.reference,
        held,
        lambda wide: pytree.tree_map_only(torch.Tensor, lambda tensor: wide[places[id(tensor)]], arguments),
    )
