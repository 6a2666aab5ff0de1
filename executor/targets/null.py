"""`null`: eager against eager, which must never differ. It measures the harness and proves that it cries no wolf."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from executor.limits import Limits
from executor.targets.base import Target


class Null(Target):
    """Compiles a function to itself."""

    name = "null"
    limits = Limits()
    needs_source = False

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:  # noqa: ARG002
        """`fn` itself."""
        return fn

    def script(self) -> list[str]:
        """See `Target.script`."""
        return ["compiled = program"]
