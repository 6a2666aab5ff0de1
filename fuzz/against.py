"""One compiler, or version, measured against another: what both get wrong alike is nobody's news."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from executor import targets
from executor.errors import TargetError
from executor.program import Program
from executor.targets import Target
from fuzz.check import Verdict
from fuzz.isolation import contained

Judge = Callable[[Program], Verdict]


def parse(text: str) -> tuple[str, str]:
    """A target's name and a Python interpreter, from "thunder" or "thunder@/venv/bin/python"; "" for this interpreter.

    Raises `TargetError` if there is no such target or no such program.
    """
    name, _, python = text.partition("@")
    targets.get(name)
    if python and shutil.which(python) is None:
        raise TargetError(
            f"{python!r} is no program; after the @ stands the Python of an environment that has aliasfuzz and {name}"
        )
    return name, python


@contextmanager
def opened(text: str, *, seconds: float, memory: int, stacks: Path) -> Iterator[Target]:
    """The other compiler, ready to judge: in a process of its own if it is unsafe or of another interpreter."""
    name, python = parse(text)
    with contained(
        targets.get(name), always=bool(python), seconds=seconds, memory=memory, stacks=stacks, python=python
    ) as other:
        yield other


def against(judge: Judge, other: Judge) -> Judge:
    """Judges likewise, but passes over failures that the other judge finds too, in the same place with the same result."""

    def verdict(program: Program) -> Verdict:
        found = judge(program)
        if found.ok:
            return found
        twin = other(program)
        if _look(found) == _look(twin):
            return replace(found, mismatches=(), refused=f"{twin.target} differs from eager alike")
        return found

    return verdict


def _look(verdict: Verdict) -> tuple[object, ...]:
    return verdict.call, tuple((m.symptom, m.where, m.detail, m.actual) for m in verdict.mismatches)
