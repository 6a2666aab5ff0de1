"""The stages of our own compiler as targets, in the order of its passes: what is wrong first shows who is to blame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from executor.backends.eager import Eager
from executor.backends.weak_memory import WeakMemory
from executor.jit import Compiled, jit
from executor.limits import Limits
from executor.pipeline import Chooser, Compilation, passes, uncompiled
from executor.targets.base import Target
from executor.targets.believed import believed

if TYPE_CHECKING:
    from executor.pipeline import Aliases
    from executor.program import Program


# Both make values of what is read from written memory, by the same analysis: which one a mistake there shows in is chance.
_PART_OF = {"blend": "forward"}


class Stage(Target):
    """A part of our compiler, from its beginning."""

    needs_source = False
    limits = Limits(metadata_mutation=False)  # those of the whole

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


class _Believed(Compiled):
    """Runs in eager what the first pass makes of a program, each read replaced by what memory SSA says that it sees."""

    def _compile(self, program: Program) -> Compilation:
        if program.raises is not None:
            return uncompiled(program)
        compilation = uncompiled(_passes(self.aliases)[0][1](program))
        compilation.run = partial(believed, compilation.program)
        return compilation


def stages(name: str, aliases: Aliases) -> Mapping[str, Target]:
    """The stages before the backend of the target of this name: tracing, each pass, the regions."""
    return {stage: Stage(f"{name}/{stage}", build) for stage, build in _stages(aliases)}


def _stages(aliases: Aliases) -> Iterator[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]]:
    yield "trace", lambda fn: jit(fn, backend="eager")
    counts: dict[str, int] = {}
    for count, (name, _) in enumerate(_passes(aliases), 1):
        stage = _PART_OF.get(name, name)
        counts[f"{stage} again" if stage in counts and stage == name else stage] = count
    for stage, count in counts.items():
        yield stage, partial(_UpTo, aliases=aliases, count=count)
        if stage == "out of place":  # the analysis that all other passes rest on
            yield "memory SSA", partial(_Believed, backend="eager", aliases=aliases)
    yield "regions", lambda fn: jit(fn, backend=Eager(), aliases=aliases)


def _passes(aliases: Aliases) -> list[tuple[str, Callable[[Program], Program]]]:
    return passes(Chooser(aliases, WeakMemory.cost))
