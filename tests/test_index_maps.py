"""Reads in terms of a write's dimensions, where each answer can be read off the strides."""

from __future__ import annotations

from executor.passes.index_maps import align
from executor.program import Value


def test_no_index_is_unique_where_strides_do_not_nest() -> None:
    write = Value(0, "float32", (2, 3), (3, 2))
    assert align(Value(0, "float32", (2,), (2,)), write) is None
