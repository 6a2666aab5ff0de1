"""What `aliasfuzz reduce` works on: a saved case, or a Python function and its arguments; and how far it has got."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax

from corpus.case import Case
from corpus.signature import Signature
from corpus.store import find, read, save
from executor import printing
from executor.errors import AliasfuzzError
from executor.program import Program
from executor.targets import DEFAULT, Target
from executor.tracing import trace
from fuzz.blame import blamed
from fuzz.check import Verdict
from fuzz.pursuit import Judge, Pursuit
from fuzz.related import rerun
from fuzz.variants import calls

SECONDS_BETWEEN_LINES = 5.0
_ENDS = {
    "minimum": "nothing more can go",
    "time": "the time is up; more may go with a longer --shrink-budget",
    "steps": "the steps are used up; more may go with more --steps",
    "interrupted": "interrupted; more may go",
}


class ReduceError(AliasfuzzError):
    """There is nothing to reduce: no function, no arguments, or no failure. The message says which."""


def start(name: str, args: str | None, target: str | None) -> Case:
    """The case of this name; or a new one of the function "module:function" or "file.py:function".

    Raises `ReduceError` if there is no such function or nothing that makes its arguments, and `CorpusError` if there is
    no such case.
    """
    module, colon, function = name.rpartition(":")
    if not colon:
        found = read(find(name))
        return found if target is None else _on(found, target)
    home = _module(module)
    program = trace(_attribute(home, function), *_arguments(home, function, args))
    return Case(program=program.without_sources(), target=target or DEFAULT, state="fixed")


def _on(case: Case, target: str) -> Case:
    return Case(
        program=case.program, target=target, state="fixed", calls=case.calls, exact=case.exact, relation=case.relation
    )


def _module(name: str) -> ModuleType:
    path = Path(name)
    sys.path.insert(0, str(path.parent if path.suffix == ".py" else Path.cwd()))
    try:
        return importlib.import_module(path.stem if path.suffix == ".py" else name)
    except Exception as error:
        raise ReduceError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        del sys.path[0]


def _attribute(module: ModuleType, name: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise ReduceError(f"{module.__name__} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def _arguments(module: ModuleType, function: str, name: str | None) -> Sequence[Any]:
    """What the function beside it returns that makes its arguments."""
    names = [name] if name else [f"{function}_args", "args"]
    maker = next((made for one in names if callable(made := getattr(module, one, None))), None)
    if maker is None:
        raise ReduceError(
            f"nothing makes the arguments of {function}: define {names[0]}() beside it, which returns them as a list or "
            "tuple, or name another function by --args"
        )
    made = maker()
    if not isinstance(made, list | tuple):
        raise ReduceError(f"{names[0]}() returns a {type(made).__name__}, not a list or tuple of arguments")
    return made


def failure(case: Case, target: Target) -> Verdict:
    """How the target fails on a case. Raises `ReduceError` if it does not."""
    verdict = rerun(case, target)
    if verdict.ok:
        raise ReduceError(f"nothing to reduce: {verdict}")
    return verdict


def judge(case: Case, target: Target) -> Judge:
    """The verdict on programs that the case may become; called again if the case is."""

    def verdict(program: Program) -> Verdict:
        further = calls(program, target) if case.calls else ()
        return rerun(msgspec.structs.replace(case, program=program, calls=further), target)

    return verdict


@contextmanager
def watched(console: Console) -> Iterator[Callable[[int, Pursuit], None]]:
    """Shows how far a reduction has got: a line that changes on a terminal, one every few seconds elsewhere."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("reducing", total=None)
        yield lambda step, pursuit: progress.update(task, description=_state(step, pursuit))


class _Lines:
    """Prints a line now and then."""

    def __init__(self, console: Console) -> None:
        self._console, self._last = console, time.monotonic()

    def __call__(self, step: int, pursuit: Pursuit) -> None:
        if time.monotonic() > self._last + SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self._console.print(_state(step, pursuit))


class Kept(NamedTuple):
    """A failure that was saved: its verdict, and its file."""

    verdict: Verdict
    path: Path


def keep(pursuit: Pursuit, subject: str) -> list[Kept]:
    """Saves the smallest program, and those of other bugs that were met: one of each signature, the subject's first."""
    target = pursuit.target
    assert target is not None, "a reduction has a target"
    found: dict[Signature | None, Verdict] = {}
    for verdict in (pursuit.signed(), *(blamed(other, target) for other in pursuit.others.values())):
        found.setdefault(verdict.signature, verdict)
    return [Kept(verdict, _save(verdict, target, subject)) for verdict in found.values()]


def lines(kept: list[Kept], why: str) -> Iterator[RenderableType]:
    """What to print about what was saved."""
    first, *others = kept
    assert first.verdict.program is not None, "only failures of programs are reduced"
    yield Syntax(printing.listing(first.verdict.program), "python", background_color="default")
    yield escape(str(first.verdict))
    yield _ENDS[why]
    yield f"saved as {first.path}"
    for other in others:
        yield f"met on the way: {escape(str(other.verdict.signature))}"
        yield f"saved as {other.path}"


def as_data(kept: list[Kept], why: str) -> dict[str, Any]:
    """The same for machines: why it ended ("minimum", "time", "steps" or "interrupted"), and the cases."""
    return {"why": why, "cases": [_case(*each) for each in kept]}


def _case(verdict: Verdict, path: Path) -> dict[str, Any]:
    assert verdict.program is not None, "only failures of programs are reduced"
    assert verdict.signature is not None, "a failure has a signature"
    return {
        "path": str(path),
        "signature": verdict.signature.digest,
        "text": str(verdict),
        "statements": len(verdict.program.calls),
        "program": printing.listing(verdict.program),
    }


def _save(verdict: Verdict, target: Target, subject: str) -> Path:
    assert verdict.program is not None, "only failures of programs are reduced"
    case = Case(
        program=verdict.program.without_sources(),
        target=target.name,
        state="open",
        versions=target.versions(),
        signature=verdict.signature,
        calls=verdict.calls if verdict.call else (),
        exact=verdict.exact,
        relation=verdict.relation,
        found=time.strftime("%Y-%m-%d"),
        note=f"Reduced from {Path(subject).name}.",
    )
    return save(case)


def _state(step: int, pursuit: Pursuit) -> str:
    program = pursuit.smallest
    return f"{step} programs tried: {len(program.calls)} calls, {len(program.inputs)} inputs"
