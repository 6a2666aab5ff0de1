"""Compilers with one planted alias bug each, for tests of the harness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from executor.program import Program
from executor.targets.base import Target


class Severed(Target):
    """Forgets that arguments share memory: clones each alone, then copies them back, the last one winning."""

    name = "severed"
    needs_source = False

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        def compiled(*args: torch.Tensor) -> Any:
            apart = [arg.clone() for arg in args]
            out = fn(*apart)
            for arg, own in zip(args, apart, strict=True):
                arg.copy_(own)
            return out

        return compiled


class Crashing(Target):
    """Raises for programs that transpose."""

    name = "crashing"
    needs_source = False

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        assert isinstance(fn, Program)
        if any(call.op in ("aten.t.default", "aten.transpose.int") for call in fn.calls):
            raise KeyError("transposed")
        return fn


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """As a pytest plugin (`-p tests.planted`): puts these under the names that `--fuzz-target` takes."""
    from executor import targets

    for planted in (Severed, Crashing):
        targets._BUILT_IN[planted.name] = f"{planted.__module__}:{planted.__name__}"
