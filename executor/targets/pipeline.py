"""Our own compiler as a target: `jit` with one of its backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from executor.backends.base import Backend
from executor.jit import Compiled, Name, jit
from executor.limits import Limits
from executor.pipeline import Aliases
from executor.targets.base import Target
from executor.targets.stages import stages


class Pipeline(Target):
    """`executor.jit` with a backend and a way to lower partial overlaps."""

    needs_source = False
    limits = Limits(metadata_mutation=False)  # a value of a compiled program has one geometry
    fine_stages = True

    def __init__(self, name: str, backend: Name | Backend, aliases: Aliases = "auto", about: str = "") -> None:
        self.name, self.about = name, about
        self._backend = backend
        self._aliases = aliases
        self.stages: Mapping[str, Target] = {**stages(name, aliases), "backend": self} if backend != "eager" else {}

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:  # noqa: ARG002
        """A function that compiles itself for each layout and alias pattern that it is called with."""
        return jit(fn, backend=self._backend, aliases=self._aliases)

    def metrics(self, compiled: Callable[..., Any]) -> dict[str, int]:
        """Regions, barriers, breaks and late copies of what the last call ran; and kernels, where there are any."""
        if not isinstance(compiled, Compiled) or compiled.last is None:
            return {}
        counts = {name: getattr(compiled.last, name) for name in ("regions", "barriers", "breaks", "copies")}
        details = compiled.last.regions_detail
        if details:
            counts["kernels"] = sum(len(detail.kernels) for detail in details) + counts["copies"]
        return counts

    def tally(self) -> dict[str, int]:
        """What the backend counts, if it counts anything."""
        return self._backend.tally() if isinstance(self._backend, Backend) else {}

    def script(self) -> list[str]:
        """See `Target.script`; the compiler under test is ours, so it is imported."""
        backend = self._backend if isinstance(self._backend, str) else self._backend.name
        return ["from aliasfuzz import jit", f"compiled = jit(program, backend={backend!r}, aliases={self._aliases!r})"]


def eager() -> Pipeline:
    """Traced, then interpreted call by call."""
    return Pipeline("pipeline:eager", "eager", about="our compiler's tracer, then eager call by call")


def weak_memory() -> Pipeline:
    """Compiled, and run under hostile schedules: the default target."""
    return Pipeline(
        "pipeline", "weak_memory", about="our compiler, run under hostile schedules on the CPU: the default"
    )
