"""Compilers with one planted alias bug each, for tests of the harness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
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


class OpenSlices(Target):
    """Copies for `x[:]`, a slice without an end, which no statement draws."""

    name = "open-slices"
    needs_source = False

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        assert isinstance(fn, Program)
        copies = [
            msgspec.structs.replace(call, op="aten.clone.default", args=call.args[:1])
            if call.op == "aten.slice.Tensor" and call.args[3:4] == (2**63 - 1,)
            else call
            for call in fn.calls
        ]
        return msgspec.structs.replace(fn, calls=tuple(copies))


class Wobbling(Target):
    """Off by one unit in the last place, within any tolerance: up after an even number of calls, down after an odd one."""

    name = "wobbling"
    needs_source = False

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        assert isinstance(fn, Program)
        end = torch.tensor(math.inf if len(fn.calls) % 2 == 0 else -math.inf)

        def compiled(*args: Any) -> Any:
            out = fn(*args)
            homes = {leaf.untyped_storage().data_ptr() for leaf in args if isinstance(leaf, torch.Tensor)}
            if (
                isinstance(out, torch.Tensor)
                and out.dtype is torch.float32
                and out.is_contiguous()
                and out.untyped_storage().data_ptr() not in homes
            ):
                out.copy_(torch.nextafter(out, end))
            return out

        return compiled


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """As a pytest plugin (`-p tests.planted`): puts these under the names that `--fuzz-target` takes."""
    from executor import targets

    for planted in (Severed, Crashing, OpenSlices, Wobbling):
        targets._BUILT_IN[planted.name] = f"{planted.__module__}:{planted.__name__}"
