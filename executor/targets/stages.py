"""The stages of our own compiler as targets, in the order of its passes: what is wrong first shows who is to blame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from executor.backends.eager import Eager
from executor.cost import CostModel
from executor.jit import Compiled, jit
from executor.pipeline import Chooser, Compilation, passes, uncompiled
from executor.targets.base import Target

if TYPE_CHECKING:
    from executor.pipeline import Aliases
    from executor.program import Program


class Stage(Target):
    """A part of our compiler, from its beginning."""

    needs_source = False

    def __init__(self, name: str, build: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.name, self._build = name, build

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:  # noqa: ARG002
        """See `Target.compile`."""
        return self._build(fn)


class _UpTo(Compiled):
    """Runs in eager what the first so many passes make of a program."""

    def __init__(self, fn: Callable[..., Any], aliases: Aliases, count: int) -> None:
        super().__init__(fn, "eager", aliases)
        self._count = count

    def _compile(self, program: Program) -> Compilation:
        if program.raises is None:
            for _, run in _passes(self.aliases)[: self._count]:
                program = run(program)
        return uncompiled(program)


def stages(name: str, aliases: Aliases) -> Mapping[str, Target]:
    """The stages before the backend of the target of this name: tracing, the cache of traces, each pass, the regions."""
    return {stage: Stage(f"{name}/{stage}", build) for stage, build in _stages(aliases)}


def _stages(aliases: Aliases) -> Iterator[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]]:
    yield "trace", _traced_anew
    yield "cache", lambda fn: jit(fn, backend="eager")
    seen: list[str] = []
    for count, (name, _) in enumerate(_passes(aliases), 1):
        yield f"{name} {seen.count(name) + 1}" if name in seen else name, lambda fn, n=count: _UpTo(fn, aliases, n)
        seen.append(name)
    yield "regions", lambda fn: jit(fn, backend=Eager(), aliases=aliases)


def _traced_anew(fn: Callable[..., Any]) -> Callable[..., Any]:
    def compiled(*args: Any) -> Any:
        return jit(fn, backend="eager")(*args)

    return compiled


def _passes(aliases: Aliases) -> list[tuple[str, Callable[[Program], Program]]]:
    return passes(Chooser(aliases, CostModel()))
