"""Guarded memory: contents, views, clones by storage, guards."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from executor.errors import ArgumentError
from executor.memory import (
    GUARD,
    Memory,
    allocate,
    clone,
    describe,
    dtype_name,
    fill_tensor,
    literal,
    literal_tensor,
    on_base,
    storage_tensor,
    to_bytes,
    value_of,
    whole,
)
from executor.program import Fill, Inputs, Iota, Literal, Storage, Value


def one(fill: Fill | None, nbytes: int, *values: Value) -> Memory:
    """Memory of one storage."""
    return allocate(Inputs((Storage(nbytes, fill),), values))


def same_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


@pytest.mark.parametrize(("fill", "count", "wanted"), [
    (Iota("float32"), 4, [1.0, 2.0, 3.0, 4.0]),
    (Iota("int64", -2, 3), 7, [-2, -1, 0, -2, -1, 0, -2]),
    (Iota("uint8", 254), 4, [254, 255, 0, 1]),
    (Iota("bool"), 7, [False, False, True, False, False, True, False]),
    (Iota("bool", 2, 2), 4, [False, True, False, True]),
    (Iota("complex64", 2), 3, [2 + 4j, 3 + 3j, 4 + 2j]),
    (Iota("float32"), 0, []),
    (Literal("float64", (1, 2.5, "inf", "-inf")), 4, [1.0, 2.5, math.inf, -math.inf]),
    (Literal("complex128", ("(1-2j)", 3, "infj")), 3, [1 - 2j, 3 + 0j, complex(0, math.inf)]),
    (Literal("bool", (True, False)), 2, [True, False]),
    (Literal("int64", (2**63 - 1, -(2**63))), 2, [2**63 - 1, -(2**63)]),
])  # fmt: skip
def test_fills(fill: Fill, count: int, wanted: list[Any]) -> None:
    flat = fill_tensor(fill, count)
    assert flat.tolist() == wanted
    assert dtype_name(flat.dtype) == fill.dtype


def test_signed_zeros_and_nan_survive_as_literals() -> None:
    numbers = torch.tensor([-0.0, math.nan, 1.5])
    assert to_bytes(fill_tensor(literal(numbers), 3)) == to_bytes(numbers)
    pair = torch.tensor([complex(-0.0, 1.0), complex(math.nan, -0.0)], dtype=torch.complex128)
    assert to_bytes(fill_tensor(literal(pair), 2)) == to_bytes(pair)


def test_a_literal_holds_the_whole_storage() -> None:
    base = torch.arange(6.0)
    assert literal(base[2:4]) == Literal("float32", (0.0, 1.0, 2.0, 3.0, 4.0, 5.0))


def test_memory_is_new_each_time() -> None:
    inputs = Inputs((Storage(16, Iota("float32")),), (Value(0, "float32", (4,), (1,)),))
    first = allocate(inputs)
    first.tensors[0].zero_()
    assert allocate(inputs).tensors[0].tolist() == [1.0, 2.0, 3.0, 4.0]


VIEWS = [
    Value(0, "float32", (12,), (1,)),
    Value(0, "float32", (3, 4), (4, 1)),
    Value(0, "float32", (2, 3), (1, 4), 1),
    Value(0, "float32", (3, 2), (0, 1), 5),
    Value(0, "float32", (), (), 11),
    Value(0, "float32", (0, 5), (5, 1), 7),
    Value(0, "int32", (12,), (1,)),
    Value(0, "float64", (3,), (2,), 1),
    Value(0, "uint8", (5,), (9,), 3),
    Value(0, "complex64", (2,), (3,), conj=True),
    Value(0, "float32", (3,), (2,), 1, neg=True),
    Value(0, "complex64", (3,), (2,), conj=True, neg=True),
]


@pytest.mark.parametrize("value", VIEWS)
def test_a_tensor_is_laid_out_as_its_value_says(value: Value) -> None:
    memory = one(Iota("float32"), 48, value)
    assert value_of(memory.tensors[0], 0) == value
    assert same_storage(memory.tensors[0], memory.bases[0])


def test_views_of_one_storage_share_it_and_others_do_not() -> None:
    whole_value = Value(0, "float32", (12,), (1,))
    inputs = Inputs((Storage(48, Iota("float32")), Storage(48, Iota("float32"))),
                    (*VIEWS, whole_value, Value(1, "float32", (12,), (1,))))  # fmt: skip
    *views, again, other = allocate(inputs).tensors
    assert all(same_storage(view, again) for view in views)
    assert not same_storage(other, again)
    assert again is not views[0]
    again[5] = -1.0
    assert views[1][1, 1].item() == -1.0
    assert views[3][0, 0].item() == -1.0
    assert other[5].item() == 6.0


def test_lazy_bits_negate_and_conjugate() -> None:
    conj = Value(0, "complex64", (2,), (1,), conj=True)
    neg = Value(0, "complex64", (2,), (1,), neg=True)
    a, b = one(Iota("complex64"), 16, conj, neg).tensors
    assert a.tolist() == [1 - 2j, 2 - 1j]
    assert b.tolist() == [-1 - 2j, -2 - 1j]
    assert to_bytes(a) == to_bytes(torch.tensor([1 - 2j, 2 - 1j]))


def test_twins_are_one_object() -> None:
    value = Value(0, "float32", (4,), (1,))
    inputs = Inputs((Storage(16, Iota("float32")),), (value, value, value), ((2, 0),))
    a, b, c = allocate(inputs).tensors
    assert a is c
    assert a is not b


def test_storages_without_bytes_are_told_apart() -> None:
    empty = Storage(0, Iota("float32"))
    inputs = Inputs((empty, empty), tuple(Value(k, "float32", (0,), (1,)) for k in (0, 1, 0)))
    memory = allocate(inputs)
    a, b, c = memory.tensors
    assert same_storage(a, c)
    assert not same_storage(a, b)
    assert memory.locate(a) is None
    assert memory.contents(0).size == 0
    assert memory.damaged() == []


def test_bytes_that_make_no_whole_element_are_there() -> None:
    memory = one(Iota("float32"), 14, Value(0, "float32", (3,), (1,)), Value(0, "uint8", (14,), (1,)))
    floats, raw = memory.tensors
    assert floats.tolist() == [1.0, 2.0, 3.0]
    assert raw[12:].tolist() == [0, 0]
    assert memory.contents(0).size == 14
    assert floats.untyped_storage().nbytes() == 14


def test_a_storage_without_fill_is_zero() -> None:
    assert one(None, 5, Value(0, "uint8", (5,), (1,))).contents(0).tolist() == [0] * 5


def test_contents_are_the_live_bytes() -> None:
    memory = one(Iota("int16"), 6, Value(0, "int16", (1,), (1,), 1))
    memory.tensors[0].fill_(-2)
    assert memory.contents(0).view(np.int16).tolist() == [1, -2, 3]


@pytest.mark.parametrize("offset", [-1, -GUARD, 12, 11 + GUARD])
def test_a_write_out_of_bounds_shows(offset: int) -> None:
    memory = one(Iota("uint8"), 12, Value(0, "uint8", (12,), (1,)))
    assert memory.damaged() == []
    buffer = memory._buffers[0]
    buffer[GUARD + offset] ^= 1
    assert memory.damaged() == [0]


def test_a_write_in_bounds_does_no_damage() -> None:
    inputs = Inputs((Storage(5, Iota("uint8")), Storage(48, Iota("float32"))),
                    (Value(0, "uint8", (5,), (1,)), Value(1, "float32", (12,), (1,))))  # fmt: skip
    memory = allocate(inputs)
    for tensor in memory.tensors:
        tensor.fill_(255)
    assert memory.damaged() == []


def test_every_storage_is_aligned_as_torch_aligns() -> None:
    storages = tuple(Storage(n, Iota("uint8")) for n in range(1, 40))
    memory = allocate(Inputs(storages, tuple(Value(k, "uint8", (1,), (1,)) for k in range(39))))
    assert {base.data_ptr() % GUARD for base in memory.bases} == {0}


def test_a_tensor_is_located_by_its_storage() -> None:
    inputs = Inputs((Storage(16, Iota("float32")), Storage(16, Iota("float32"))),
                    (Value(1, "float32", (2,), (1,), 2), Value(0, "int32", (4,), (1,))))  # fmt: skip
    memory = allocate(inputs)
    assert [memory.locate(tensor) for tensor in memory.tensors] == [1, 0]
    assert memory.locate(memory.tensors[0][1:]) == 1
    assert memory.locate(torch.ones(4)) is None


def aliased() -> list[torch.Tensor]:
    """Views of two storages, in several dtypes, with a gap and a twin."""
    base, other = torch.arange(12.0), torch.complex(torch.arange(8.0), torch.ones(8))
    row = base[3:6]
    return [
        base.view(3, 4).t(),
        row,
        row,
        base.view(torch.int32)[::5],
        other.conj()[1:],
        other.conj().imag,
        torch.empty(0),
    ]


def test_describe_tells_storages_values_and_twins() -> None:
    inputs = describe(aliased())
    assert [storage.nbytes for storage in inputs.storages] == [48, 64, 0]
    assert inputs.storages[0].fill == Literal("float32", tuple(map(float, range(12))))
    assert [value.storage for value in inputs.values] == [0, 0, 0, 0, 1, 1, 2]
    assert inputs.twins == ((2, 1),)
    assert inputs.values[3] == Value(0, "int32", (3,), (5,))
    assert inputs.values[4] == Value(1, "complex64", (7,), (1,), 1, conj=True)
    assert (inputs.values[5].neg, inputs.values[5].dtype, inputs.values[5].offset) == (True, "float32", 1)
    assert {storage.fill for storage in describe(aliased(), fill=False).storages} == {None}


def test_three_twins_are_paired_with_the_first() -> None:
    x = torch.ones(1)
    assert describe([x, x, x[:], x]).twins == ((1, 0), (3, 0))


def test_a_description_can_be_allocated() -> None:
    tensors = aliased()
    memory = allocate(describe(tensors))
    for made, given in zip(memory.tensors, tensors, strict=True):
        assert value_of(made, 0) == value_of(given, 0)
        assert to_bytes(made) == to_bytes(given)
    assert memory.contents(0).tobytes() == to_bytes(storage_tensor(tensors[0]))


def test_a_clone_keeps_the_sharing_and_leaves_the_originals_alone() -> None:
    tensors = aliased()
    before = [to_bytes(tensor) for tensor in tensors]
    memory = clone(tensors)
    for made, given in zip(memory.tensors, tensors, strict=True):
        assert value_of(made, 0) == value_of(given, 0)
        assert to_bytes(made) == to_bytes(given)
        assert not same_storage(made, given)
    assert memory.tensors[1] is memory.tensors[2]
    memory.tensors[1].fill_(-1)
    assert memory.tensors[0][3, 0].item() == memory.tensors[0][0, 1].item() == -1.0
    assert [to_bytes(tensor) for tensor in tensors] == before


def test_a_clone_holds_the_gaps_too() -> None:
    memory = clone([torch.arange(10.0)[::3]])
    assert memory.contents(0).view(np.float32).tolist() == list(range(10))


def test_a_clone_without_twins_makes_an_object_for_each_position() -> None:
    x = torch.ones(2)
    a, b = clone([x, x], twins=False).tensors
    assert a is not b
    assert same_storage(a, b)


def test_a_constant_is_new_each_time() -> None:
    storage, value = Storage(8, Literal("float32", (1.0, 2.0))), Value(0, "float32", (2,), (1,))
    literal_tensor(storage, value).zero_()
    assert literal_tensor(storage, value).tolist() == [1.0, 2.0]


def test_a_constant_needs_contents() -> None:
    with pytest.raises(ArgumentError, match="this one's `fill` is None"):
        literal_tensor(Storage(8), Value(0, "float32", (2,), (1,)))


def test_on_base_reads_other_dtypes_from_a_storage_of_any_size() -> None:
    base = torch.arange(7, dtype=torch.int16)
    assert value_of(on_base(base, Value(0, "float32", (3,), (1,))), 0) == Value(0, "float32", (3,), (1,))
    assert on_base(base, Value(0, "uint8", (2,), (1,), 12)).tolist() == [6, 0]


def test_whole_is_a_flat_value() -> None:
    assert whole(3, "float32", 5) == Value(3, "float32", (5,), (1,))


@pytest.mark.parametrize(
    "tensor",
    [torch.tensor(2.0), torch.arange(6.0).view(2, 3).t(), torch.ones(2).expand(3, 2), torch.arange(4.0)[1:2:2]],
)
def test_bytes_are_those_of_the_elements_in_order(tensor: torch.Tensor) -> None:
    assert to_bytes(tensor) == np.ascontiguousarray(tensor.numpy()).tobytes()


def test_an_empty_tensor_has_no_bytes() -> None:
    assert to_bytes(torch.empty(0, 3)) == b""


def test_contents_are_told_apart_by_the_signs_of_zeros() -> None:
    for zero in (0.0, -0.0, 0.0):
        inputs = Inputs((Storage(4, Literal("float32", (zero,))),), (Value(0, "float32", (1,), (1,)),))
        assert str(allocate(inputs).tensors[0].item()) == str(zero)
