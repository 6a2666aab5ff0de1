"""Reads in terms of a write's dimensions, where each answer can be read off the strides."""

from __future__ import annotations

from executor.passes.index_maps import align, row_major_walk
from executor.program import Value


def test_no_index_is_unique_where_strides_do_not_nest() -> None:
    write = Value(0, "float32", (2, 3), (3, 2))
    assert align(Value(0, "float32", (2,), (2,)), write) is None


def test_the_last_element_lies_at_the_last_index() -> None:
    found = align(Value(0, "float32", (), (), 5), Value(0, "float32", (2, 3), (3, 1)))
    assert found is not None
    assert found.starts == [1, 2]


def test_a_walk_is_of_elements_of_the_same_dtype() -> None:
    write = Value(0, "float32", (2, 3), (3, 1))
    assert row_major_walk(Value(0, "float32", (3,), (1,), 3), write) == (3, (1,))
    assert row_major_walk(Value(0, "int32", (3,), (1,), 3), write) is None
    assert row_major_walk(Value(0, "float32", (0,), (1,), 3), write) is None
