"""A printed program as a live Python function."""

from __future__ import annotations

import itertools
import linecache
import weakref
from typing import TYPE_CHECKING, Any

import torch

from executor.printing.printer import function

if TYPE_CHECKING:
    from collections.abc import Callable

    from executor.program import Program

_numbers = itertools.count(1)


def load(program: Program) -> Callable[..., Any]:
    """The printed function, compiled. `inspect.getsource`, tracebacks and `torch.compile` see its text.

    The text lies in `linecache` under a file name of its own for as long as the function lives.
    """
    text = function(program)
    file = f"<aliasfuzz program {next(_numbers)}>"
    namespace: dict[str, Any] = {"torch": torch, "__name__": "aliasfuzz_program"}
    exec(compile(text, file, "exec"), namespace)  # noqa: S102 (text that we made)
    loaded: Callable[..., Any] = namespace.pop("program")  # left there, it would be garbage in a cycle
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    weakref.finalize(loaded, linecache.cache.pop, file, None).atexit = False
    return loaded
