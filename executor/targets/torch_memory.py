"""What torch.compile keeps of each compilation for as long as the process lives, and how to let go of it.

Nobody compiles thousands of functions in one process but a fuzzer; without this a worker grows by 70 kB a program. Every
item was found in torch 2.13 and is no behaviour of compiled code. `torch.compiler.reset` frees none of them.
"""

from __future__ import annotations

import gc
import linecache

from torch._dynamo import funcname_cache, guards, pgo
from torch._dynamo.utils import get_metrics_context
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import graph_module
from torch.fx.experimental.symbolic_shapes import ShapeEnv


def release() -> None:
    """Frees what is left of compilations that are over. Takes 0.1 s, so it is not for each program."""
    _break_cycles()
    FakeTensorMode.cache_clear()
    # Two stack traces a compilation, for an error message about metrics.
    getattr(get_metrics_context(), "_edits", []).clear()
    _forget_sources()
    # Two caches without bound: by code object, by source file.
    for module, name in ((guards, "code_framelocals_names_reversed_cached"), (pgo, "_hash_containing_file")):
        if (cached := getattr(module, name, None)) is not None:
            cached.cache_clear()


def _break_cycles() -> None:
    """Empties the shape environments of compilations whose inputs were views, which could never be collected.

    A fake view holds its base in C++, where Python's collector does not look, the base its mode, the mode its shape
    environment, and that a list of the fakes.
    """
    for found in gc.get_objects():
        if type(found) is ShapeEnv and found.tracked_fakes is not None:
            found.tracked_fakes.clear()


def _forget_sources() -> None:
    """Drops the source text of generated graphs, kept for tracebacks, and what was found out about files that are none."""
    loader = getattr(graph_module, "_loader", None)
    if loader is not None:
        loader.eval_cache.clear()
    for file in [name for name in linecache.cache if name.startswith("<eval_with_key>")]:
        del linecache.cache[file]
    for file in [name for name in funcname_cache.cache if name.startswith("<")]:
        del funcname_cache.cache[file]
