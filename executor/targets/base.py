"""What a compiler under test has to offer, and the defaults for those that offer less."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import torch

from executor.errors import TargetError
from executor.limits import Limits


@runtime_checkable
class Target(Protocol):
    """A compiler under test. Only `name` and `compile` are without a default.

    `about` says in a line what it is, and `limits` what it takes. `unsafe` means that it may hang or crash:
    campaigns run it in a process of its own, and `check` under a time limit.
    `needs_source` means that `fn` must be a Python function with source text, not just any callable.
    `stages` are parts of the compiler that run alone, each a target that goes one step further than the one before; the
    last is the whole. A failure is blamed on the first that fails too. {"frontend": ..., "optimizer": ...}, say, where
    the first runs in eager what the frontend made of a function. The target of a stage is named "NAME/STAGE".
    `fine_stages` says that each is a single step: where a failure begins then tells more about the bug than how it shows.
    """

    name: str
    about: str = ""
    limits: Limits = Limits(metadata_mutation=False, gradients=False)  # who takes more says so
    unsafe: bool = False
    needs_source: bool = True
    stages: Mapping[str, Target] = MappingProxyType({})
    fine_stages: bool = False

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        """A callable that does what `fn` does; it may compile at once for `example_args` or when it is called.

        It must not run `fn` on `example_args` themselves.
        """
        ...

    def metrics(self, compiled: Callable[..., Any]) -> dict[str, int]:  # noqa: ARG002 - a default for all
        """Counts that describe what `compiled`, which has been called, became; lower is better."""
        return {}

    def tally(self) -> dict[str, int]:
        """What the target did in this process since it was asked last, by name: what a campaign's totals should say of it."""
        return {}

    def versions(self) -> dict[str, str]:
        """The packages on which the target's behaviour depends, with their versions."""
        return {"torch": str(torch.__version__)}

    def script(self) -> list[str]:
        """Source lines for a stand-alone script that has a function `program`: they bind `compiled` to it, compiled.

        They import what they need, and nothing of ours unless the compiler under test is ours.
        Raises `TargetError` if the target cannot be used from a script.
        """
        raise TargetError(f"target {self.name!r} says no way to use it from a script")

    def refusal(self, error: BaseException) -> str | None:  # noqa: ARG002 - a default for all
        """What the compiler says that it does not support, if `error` is its documented way to say so; else None."""
        return None

    def reset(self) -> None:
        """Drops what the compiler remembers of earlier programs."""
        return


class Adapter(Target):
    """A third party's target, with the defaults for what it lacks. Raises `TargetError` if it is none."""

    def __init__(self, inner: Any) -> None:
        name, build = getattr(inner, "name", None), getattr(inner, "compile", None)
        if not isinstance(name, str) or not name or not callable(build):
            raise TargetError(f"{inner!r} is no target: it needs a `name` (a string) and `compile(fn, example_args)`")
        self.name = name
        self._inner = inner
        for optional in (
            "about",
            "limits",
            "unsafe",
            "needs_source",
            "stages",
            "fine_stages",
            "metrics",
            "tally",
            "versions",
            "script",
            "refusal",
            "reset",
        ):
            if hasattr(inner, optional):
                setattr(self, optional, getattr(inner, optional))

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        """See `Target.compile`."""
        return self._inner.compile(fn, example_args)  # type: ignore[no-any-return]


def adapt(target: Any) -> Target:
    """`target` itself if it is complete, else with the defaults for what it lacks. Raises `TargetError` if it is none."""
    # A protocol that is checked at run time looks for each of its members, and this is asked for every program.
    complete = Target in type(target).__mro__ or isinstance(target, Target)
    return target if complete else Adapter(target)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignores the warnings of a compiler under test, whose users see them and we don't judge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
