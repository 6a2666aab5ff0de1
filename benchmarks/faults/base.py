"""What a planted fault is, and how it is switched on: functions of the compiler are replaced, which knows nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from executor import memory_ssa, pipeline
from executor.passes.functional import out_of_place
from executor.pipeline import Aliases
from executor.program import Program

Patches = tuple[tuple[Any, str, Any], ...]


class Fault(NamedTuple):
    """A mistake that somebody could make.

    `what` says in a sentence what the compiler does wrongly; `patches` are (owner, attribute, what stands there instead).
    `aliases` is how the compiler lowers partial overlaps while it has this fault. `gradients`: it shows only where inputs
    require grad.
    """

    what: str
    patches: Patches
    aliases: Aliases = "auto"
    gradients: bool = False


# Switches off the proof that would refuse what a fault makes.
UNVERIFIED: Patches = ((pipeline, "verify", lambda *_: None),)


def at_first(rewrite: Callable[[Program], Program]) -> Patches:
    """The compiler compiles a program that means something else."""
    return ((pipeline, "out_of_place", lambda program: out_of_place(rewrite(program))),)


@contextmanager
def switched_on(fault: Fault) -> Iterator[None]:
    """Plants a fault for the block."""
    with ExitStack() as stack:
        for owner, attribute, wrong in fault.patches:
            stack.enter_context(patch.object(owner, attribute, wrong))
        memory_ssa._last = None
        yield
    memory_ssa._last = None
