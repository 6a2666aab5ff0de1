"""Printed programs as live functions: their source can be seen, and they leave nothing behind."""

from __future__ import annotations

import gc
import inspect
import linecache
import traceback
import weakref

import pytest
import torch

from executor.printing import function, load
from tests.behaviour import outcome, written_views
from tests.overloads import record


def test_the_loaded_function_shows_its_source_in_inspect_and_tracebacks() -> None:
    program = written_views()
    printed = load(program)
    linecache.checkcache()
    assert inspect.getsource(printed) == function(program)
    with pytest.raises(RuntimeError) as caught:
        printed(torch.ones(5), torch.ones(5))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == "c = a.view(12)"


def test_two_loaded_functions_have_sources_of_their_own() -> None:
    one, other = load(written_views()), load(record("aten.neg.default(x)"))
    assert one.__code__.co_filename != other.__code__.co_filename
    assert inspect.getsource(other) == "def program(x):\n    a = -x\n    return [a]\n"


def test_a_dead_function_leaves_nothing_behind() -> None:
    program = written_views()
    before = len(linecache.cache)
    gc.disable()
    try:
        functions = [load(program) for _ in range(100)]
        assert len(linecache.cache) == before + 100
        dead = [weakref.ref(printed) for printed in functions]
        functions.clear()
        assert not any(ref() for ref in dead)
        assert len(linecache.cache) == before
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore")
def test_torch_compile_takes_a_loaded_function() -> None:
    program = written_views()
    compiled = torch.compile(load(program), backend="eager", fullgraph=True)
    assert outcome(compiled, program) == outcome(program, program)
