"""`check`: runs one function or program on a compiler under test, and compares everything with eager."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from corpus.signature import Signature
from executor import printing, targets
from executor.errors import ArgumentError, TraceError
from executor.memory import Memory
from executor.program import Inputs, Program
from executor.targets import Target
from fuzz import precision
from fuzz.gradients import followed
from fuzz.oracle import (
    Close,
    Mismatch,
    brief,
    compare,
    compare_backward,
    is_dense,
    kind_of_leaf,
    refused_at_once,
)
from fuzz.provenance import accused
from fuzz.runs import Endless, Run, attempt, run
from fuzz.state import DRAWN, State
from fuzz.subjects import Subject, Way, of_function, of_program, partly_written

NO_BOUNDS: Mapping[str, int] = MappingProxyType({})
TIME_LIMIT = 20.0  # seconds for one compilation and run on a target that may hang
RUN_TWICE = 16  # eager runs twice on one program in so many


@dataclass(frozen=True)
class Verdict:
    """What a check found. `mismatches` are the differences from eager, worst first; empty if there are none.

    `call` says which call of the compiled function went wrong, counting from 0. `program` is None if the function
    could not be traced. `refused` is what the target says that it does not support, if that is why it gave no result.
    `raised` is the exception with which eager ended, in words. `unstable` says why nothing can be said about the target:
    eager differs from itself, or is far from what float64 gives. `calls` are the further calls that were to be made, and `exact` says whether
    values had to be equal bit for bit. `relation` names the rewriting of the program from which the target itself differs, though
    it does what eager does with each (see `fuzz.related`). `blamed` is the signature with the stage, once that is known (see `fuzz.blame`).
    """

    target: str
    mismatches: tuple[Mismatch, ...] = ()
    call: int = 0
    program: Program | None = field(default=None, repr=False)
    refused: str | None = None
    raised: str | None = None
    unstable: str | None = None
    calls: tuple[Inputs, ...] = field(default=(), repr=False)
    exact: bool = True
    relation: str = ""
    blamed: Signature | None = field(default=None, repr=False)

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
        """The identity of the bug, without the stage unless that was looked for; None if all is well."""
        if self.ok or self.blamed is not None:
            return self.blamed
        worst = self.mismatches[0]
        if self.program is None:
            return Signature(self.target, self.symptom, worst.detail)
        found = accused(self.program, None if self.call else worst)
        return Signature(self.target, self.symptom, worst.detail, "", found.accesses, found.relation)

    def __str__(self) -> str:
        if self.ok:
            return f"{self.target}: {self._reservation()}"
        later = f" in call {self.call + 1} of the compiled function" if self.call else ""
        whom = f"itself under {self.relation}" if self.relation else "eager"
        lines = [f"{self.target} differs from {whom}{later}:", *(f"  {mismatch}" for mismatch in self.mismatches)]
        return "\n".join([*lines, f"  signature: {self.signature}"])

    def _reservation(self) -> str:
        if self.unstable is not None:
            return f"cannot be judged: {self.unstable}"
        if self.refused is not None:
            return f"refused: {self.refused}"
        return f"ok, both raise {self.raised}" if self.raised else "ok"


class Elsewhere(ABC):
    """A target that has programs judged in another process."""

    @abstractmethod
    def judge(self, program: Program, calls: Sequence[Inputs], bounds: Mapping[str, int], *, exact: bool) -> Verdict:
        """What `check` gives for this target."""

    @abstractmethod
    def compare(self, program: Program, relation: str) -> tuple[Mismatch, ...]:
        """What `fuzz.relations.pair.compared` gives for this target."""


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
    none: it says what its inputs are (given some, it runs on those), and `calls` adds further calls of the same compiled function. Values are compared
    bit for bit; with `exact=False`, floating-point results are judged by their error against a float64 run.
    `bounds` are counts that the target's metrics must not exceed, such as {"barriers": 1}.
    Raises `TargetError` if there is no such target, `TraceError` for a tensor that is not dense or requires grad, and
    `ArgumentError` for arguments that make no call, or a function that is seen to keep state or returns a tensor that is
    not dense; whatever the target itself raises is part of the verdict.
    """
    compiler = targets.get(target) if isinstance(target, str) else targets.adapt(target)
    if isinstance(compiler, Elsewhere) and isinstance(subject, Program) and not args:
        return compiler.judge(subject, calls, bounds or {}, exact=exact)
    if isinstance(subject, Program) and not args:
        made = of_program(subject, calls, source=compiler.needs_source)
    elif isinstance(subject, Program):
        made = of_function(printing.load(subject) if compiler.needs_source else subject, args)
    else:
        _check_call(subject, args)
        made = of_function(subject, args)
    return replace(examine(made, compiler, exact=exact, bounds=bounds or {}), calls=tuple(calls), exact=exact)


def examine(
    subject: Subject,
    compiler: Target,
    *,
    exact: bool = True,
    bounds: Mapping[str, int] = NO_BOUNDS,
    seconds: float | None = None,
) -> Verdict:
    """The verdict on a subject: compiled once, then called in each of its ways.

    Each compilation and call of a target that is not safe may take `seconds`: `TIME_LIMIT` unless told otherwise, for ever if 0.
    """
    limit = 0 if not compiler.unsafe else TIME_LIMIT if seconds is None else seconds
    state, given = State(), subject.ways[0].build()
    compiled = attempt(compiler.compile, (subject.fn, tuple(given[1])), limit, state)
    call = compiled.value if compiled.error is None else _raiser(compiled.error)
    trial = _Trial(compiler, subject, call, limit, state, exact)
    changed, raised = compiled.changed, None
    for k in range(len(subject.ways)):
        verdict, error = trial.made(k, changed, given if k == 0 else subject.ways[k].build())
        if verdict.ok and bounds and (verdict.unstable, verdict.refused) == (None, None):
            verdict = replace(verdict, mismatches=tuple(_exceeded(compiler.metrics(call), bounds)))
        if not verdict.ok or verdict.unstable is not None or verdict.refused is not None:
            return verdict
        changed, raised = (), raised if k else error
    return Verdict(compiler.name, program=subject.program, raised=brief(raised) if raised is not None else None)


@dataclass(frozen=True)
class _Trial:
    """A compiled function, to be called in the ways of its subject, each time beside eager."""

    compiler: Target
    subject: Subject
    call: Callable[..., Any]
    limit: float
    state: State
    exact: bool

    def made(
        self, k: int, changed: tuple[str, ...], given: tuple[Memory, list[Any]]
    ) -> tuple[Verdict, BaseException | None]:
        """The verdict on call k, with what is given to the compiled function; and what eager raised.

        Before it the compiler has `changed` settings.
        """
        way, subject = self.subject.ways[k], self.subject
        close = float64_judge(subject, way) if not self.exact else None
        eager = run(subject.reference, *way.build(), 0, self.state)
        _check_eager(eager)
        if k == 0 and eager.error is not None and subject.program is not None and subject.program.raises is None:
            return self._verdict(k, unstable=f"eager raises {brief(eager.error)}, for what the inputs hold"), None
        result = run(self.call, *given, self.limit, self.state)
        result = result._replace(changed=(*changed, *result.changed))
        undefined = eager.error is not None and (k > 0 or partly_written(subject.program))
        found = compare(eager, result, mixed=way.mixed, undefined=undefined, close=close)
        eager = followed(eager, subject.backward, 0, self.state, watched=self.exact)
        if found and self._refused_at_once(k, eager, result):
            found = []
        elif not found:
            result = followed(result, subject.backward, self.limit, self.state, like=eager)
            limits = self.compiler.limits
            found = compare_backward(
                eager,
                result,
                mixed=way.mixed,
                close=close,
                none_gradients=limits.none_gradients,
                refusing=limits.written_results,
            )
        refused = _refusal(self.compiler, subject, _raised(result))
        unstable = self._unstable(k, eager, close, differs=bool(found)) if refused is None else None
        found = found if refused is None and unstable is None else []
        return self._verdict(k, found, refused=refused, unstable=unstable), _raised(eager)

    def _verdict(
        self, k: int, found: Sequence[Mismatch] = (), *, refused: str | None = None, unstable: str | None = None
    ) -> Verdict:
        return Verdict(self.compiler.name, tuple(found), k, self.subject.program, refused=refused, unstable=unstable)

    def _refused_at_once(self, k: int, eager: Run, result: Run) -> bool:
        """Whether eager refuses to go backward, from all results if not as it did, as the compiler refused the call."""
        if result.error is None or eager.passed is None:
            return False
        if eager.passed.error is None:
            eager = followed(run(self.subject.reference, *self.subject.ways[k].build()), None)
        return refused_at_once(eager, result)

    def _unstable(self, k: int, eager: Run, close: precision.Judge | None, *, differs: bool) -> str | None:
        """Why nothing can be said about the compiler, if that is so; looked for where it differs, and now and then."""
        if eager.passed is not None and eager.passed.inexact:
            return "gradients are larger than is exact in their dtypes"
        if not (differs or _sampled(self.subject, k)):
            return None
        unstable = _unstable(self.subject, self.subject.ways[k], eager, close)
        return close.doubt(eager) if unstable is None and differs and close is not None else unstable


def _raised(run: Run) -> BaseException | None:
    """The exception of the call, or else of going backward from what it gave."""
    return run.error if run.error is not None or run.passed is None else run.passed.error


def _refusal(compiler: Target, subject: Subject, error: BaseException | None) -> str | None:
    """What the compiler says that it does not support. Ours says it of functions only: it has to take any program.

    That is, any within its limits, which a function's need not be.
    """
    if error is None:
        return None
    if isinstance(error, TraceError | ArgumentError) and (
        subject.program is None or compiler.limits.refuse(subject.program) is not None
    ):
        return str(error)
    return compiler.refusal(error)


def _check_call(fn: object, args: object) -> None:
    """Raises `ArgumentError` for what would fail in eager and compiled alike, and so look right."""
    if not callable(fn):
        raise ArgumentError(f"check takes a function or a Program, not {fn!r} of type {type(fn).__name__}")
    if not isinstance(args, list | tuple):
        raise ArgumentError(
            f"args is a {type(args).__name__}; it is the list of the function's arguments, such as [x] for one tensor"
        )


def _check_eager(eager: Run) -> None:
    """Raises `ArgumentError` for what eager leaves that nothing can be compared with."""
    if isinstance(eager.error, Endless):
        raise ArgumentError(f"the function cannot be checked: {eager.error}")
    if not DRAWN.isdisjoint(eager.changed):
        raise ArgumentError("the function draws random numbers; pass them as an argument")
    for leaf in eager.leaves:
        if isinstance(leaf, torch.Tensor) and not is_dense(leaf):
            raise ArgumentError(f"the function returns a {kind_of_leaf(leaf)}; only dense tensors are compared")


def _sampled(subject: Subject, call: int) -> bool:
    """Whether eager runs twice though nothing differs: on a few programs, always the same."""
    return call == 0 and subject.program is not None and int(subject.program.digest, 16) % RUN_TWICE == 0


def _unstable(subject: Subject, way: Way, eager: Run, close: Close | None) -> str | None:
    """How eager differs from itself, in words; None if it does not. Then a difference says nothing about the compiler.

    A function that does is at fault, so for one this raises `ArgumentError`.
    """
    again = followed(run(subject.reference, *way.build()), subject.backward, like=eager)
    differences = compare(eager, again, mixed=way.mixed, close=close)
    differences = differences or compare_backward(eager, again, mixed=way.mixed, close=close)
    if differences and subject.fn is subject.reference:
        raise ArgumentError(
            f"the function differs from itself when it is run again in eager ({differences[0]}): it keeps state, or "
            "draws random numbers; pass what changes as an argument"
        )
    return f"eager differs from itself ({differences[0]})" if differences else None


def _exceeded(counts: Mapping[str, int], bounds: Mapping[str, int]) -> Iterator[Mismatch]:
    for name, most in bounds.items():
        if counts and name not in counts:
            raise ArgumentError(f"the bound {name!r} is no metric of this target; it has {', '.join(counts)}")
        if counts.get(name, 0) > most:
            yield Mismatch("count", name, f"at most {most}", str(counts[name]), name)


def _raiser(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


def float64_judge(subject: Subject, way: Way) -> precision.Judge:
    """What judges results of this call that are not exact."""
    held, arguments = way.build()
    places = {id(tensor): k for k, tensor in enumerate(held.tensors)}
    return precision.Judge(
        subject.reference,
        held,
        lambda wide: pytree.tree_map_only(torch.Tensor, lambda tensor: wide[places[id(tensor)]], arguments),
        subject.backward,
    )
