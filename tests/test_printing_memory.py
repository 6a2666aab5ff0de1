"""Printed inputs are the same memory that the program's own inputs are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from executor.memory import allocate, to_bytes, value_of
from executor.printing import inputs
from executor.program import Inputs, Iota, Literal, Storage, Value, itemsize


def layouts() -> list[Inputs]:
    """Inputs of many kinds of contents, dtypes and views."""
    whole = Value(0, "float32", (12,), (1,))
    views = (
        whole, whole, Value(0, "float32", (3, 4), (4, 1)), Value(0, "float32", (3,), (2,), 2),
        Value(0, "float32", (10,), (1,), 2), Value(0, "float32", (2, 3), (0, 4), 1), Value(0, "float32", (4, 3), (1, 4)),
        Value(0, "float32", (), (), 5), Value(0, "float32", (1,), (1,), 5), Value(0, "float32", (0, 3), (3, 1), 4),
        Value(0, "int32", (12,), (1,)), Value(0, "uint8", (5,), (7,), 3), Value(0, "float64", (2,), (3,), 1),
        Value(0, "float32", (4,), (2,), 1, neg=True),
    )  # fmt: skip
    parts = (
        Value(0, "complex64", (4,), (1,), conj=True), Value(0, "float32", (8,), (1,)), Value(0, "complex128", (2,), (1,)),
        Value(0, "complex64", (2,), (2,), 1, conj=True, neg=True),
    )  # fmt: skip
    found = [
        Inputs((Storage(48, Iota("float32")),), (*views, views[2]), ((len(views), 2),)),
        Inputs((Storage(48, Iota("float32", -3, 5)),), views),
        Inputs((Storage(32, Iota("complex64", 2)),), parts),
        Inputs((Storage(32, Iota("complex64", 2, 3)),), parts),
        Inputs((Storage(12, Iota("float32")),), (Value(0, "float64", (), ()), Value(0, "int16", (6,), (1,)))),
        Inputs((Storage(14, Iota("float32")),), (Value(0, "uint8", (14,), (1,)), Value(0, "float32", (3,), (1,)))),
        Inputs((Storage(5),), (Value(0, "uint8", (5,), (1,)),)),
        Inputs((Storage(0, Iota("int64")),), (Value(0, "int64", (0,), (1,)), Value(0, "float32", (2, 0), (1, 1)))),
        Inputs(
            (Storage(8, Iota("int64")), Storage(8, Iota("int64"))), tuple(Value(k, "int64", (1,), (1,)) for k in (1, 0))
        ),
        _one(Literal("float32", (1.5, -0.0, "nan", "-inf"))),
        _one(Literal("complex64", ("(1+2j)", "(-0-0j)", "(nan+infj)"))),
        _one(Literal("int64", (2**62 + 1, -(2**63)))),
        _one(Literal("uint64", (2**64 - 1, 0))),
        _one(Literal("bool", (True, False, True))),
        _one(Iota("bool"), 7),
        _one(Iota("bool", 2, 4), 9),
    ]
    for dtype in ("uint8", "int8", "int16", "int32", "int64", "uint16", "float16", "bfloat16", "float32", "float64"):
        found += [_one(Iota(dtype, start), 10) for start in (1, -5, 120, 250, 2040, 32760, 2**24 - 3)]
    return [*found, _one(Iota("float8_e4m3fn"), 10)]


def _one(fill: Iota | Literal, count: int = 0) -> Inputs:
    count = len(fill.values) if isinstance(fill, Literal) else count
    return Inputs((Storage(count * itemsize(fill.dtype), fill),), (Value(0, fill.dtype, (count,), (1,)),))


def built(lines: list[str], names: list[str]) -> list[torch.Tensor]:
    """Executes the printed lines."""
    namespace: dict[str, Any] = {"torch": torch}
    exec("\n".join(lines), namespace)  # noqa: S102 (text that we made)
    return [namespace[name] for name in names]


@pytest.mark.parametrize("layout", layouts())
def test_printed_inputs_are_laid_out_filled_and_shared_as_allocated_ones(layout: Inputs) -> None:
    names = [f"x{k}" for k in range(len(layout.values))]
    found, memory = built(inputs(layout, names), names), allocate(layout)
    homes = [tensor.untyped_storage()._cdata for tensor in found]
    for k, (tensor, wanted) in enumerate(zip(found, memory.tensors, strict=True)):
        assert value_of(tensor, 0) == value_of(wanted, 0)
        assert [other is tensor for other in found] == [other is wanted for other in memory.tensors]
        storage = layout.values[k].storage
        assert [home == homes[k] for home in homes] == [value.storage == storage for value in layout.values]
        raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        assert to_bytes(raw) == memory.contents(storage).tobytes()


def test_printed_inputs_read_like_python() -> None:
    values = (Value(0, "float32", (3, 4), (4, 1)), Value(0, "float32", (3,), (2,), 2), Value(0, "int32", (12,), (1,)),
              Value(0, "float32", (2, 2), (1, 4), 1), Value(0, "float32", (3, 4), (4, 1)))  # fmt: skip
    layout = Inputs((Storage(48, Iota("float32")),), values, ((4, 0),))
    assert inputs(layout, ["a", "b", "c", "d", "e"]) == [
        "s0 = torch.arange(1, 13, dtype=torch.float32)",
        "a = s0.view(3, 4)",
        "b = s0[2:7:2]",
        "c = s0.view(torch.int32)",
        "d = s0.as_strided((2, 2), (1, 4), 1)",
        "e = a",
    ]


def test_storages_get_names_that_no_input_has() -> None:
    layout = Inputs((Storage(4, Iota("int32")),), (Value(0, "int32", (1,), (1,)),))
    assert inputs(layout, ["s0"]) == ["s_0 = torch.arange(1, 2, dtype=torch.int32)", "s0 = s_0.view(1)"]


def test_inputs_on_another_device_are_moved_there() -> None:
    layout = Inputs((Storage(4, Iota("int32"), "cuda:0"),), (Value(0, "int32", (1,), (1,)),))
    assert inputs(layout, ["a"])[1] == "s0 = s0.to('cuda:0')"
