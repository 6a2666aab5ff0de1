"""What a builder says about the layout of what it appends, against what eager lays out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch

from executor.args import Arg, List, Ref
from executor.builder import Builder
from executor.memory import dtype_name
from executor.program import Call, Program, Value
from executor.tracing import trace
from executor.validate import validate_geometry

DTYPES = (torch.bool, torch.bfloat16, torch.complex64)


def layouts(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Tensors of 0 to 4 dimensions, each of size 0, 1 or more, laid out in every way that a view can."""
    for rank in range(4):
        for shape in itertools.product((0, 1, 2, 3) if rank < 3 else (0, 1, 3), repeat=rank):
            dense = torch.zeros(shape, dtype=dtype)
            yield dense
            if rank:
                yield from (dense.mT if rank > 1 else dense, dense[-1:], dense[..., ::2], dense.flip(0))
                yield dense.unsqueeze(0).expand(2, *shape)
                yield torch.zeros((*shape[:-1], shape[-1] + 2), dtype=dtype)[..., 1 : shape[-1] + 1]
            if dtype.is_complex:
                yield from (dense.conj(), torch._neg_view(dense.mT if rank > 1 else dense).conj())
            elif dtype.is_floating_point:
                yield torch._neg_view(dense)
    for shape in itertools.product((0, 1, 2), repeat=4):
        yield torch.zeros(shape, dtype=dtype).to(memory_format=torch.channels_last)


def taken(tensor: torch.Tensor) -> Program:
    """A program that takes the tensor and does nothing."""
    return trace(lambda x: x, tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_their_views_scatters_and_constants_lie_as_eager_lays_them_out(dtype: torch.dtype) -> None:
    for tensor in layouts(dtype):
        builder = Builder(taken(tensor))
        dense = builder.dense(0)
        flat = builder.reshaped(dense, (tensor.numel(),))
        builder.reshaped(flat, (*tensor.shape, 1))
        value = builder.values[dense]
        builder.scattered(flat, 0, value)
        builder.scattered(flat, dense, value)
        builder.full(builder.values[0], tuple(tensor.shape), 1)
        builder.as_strided(dense, value, 0)
        validate_geometry(builder.finish())


NUMBERS: tuple[tuple[Arg, str], ...] = ((2, "int64"), (2.0, "float32"), (True, "int64"))


def appended(call: Call) -> Value:
    """The geometry of what the call returns on a tensor of whole numbers."""
    builder = Builder(taken(torch.zeros(3, dtype=torch.int64)))
    return builder.values[builder.emit(call.op, *call.args, kwargs=call.kwargs)]


@pytest.mark.parametrize(("number", "dtype"), NUMBERS)
def test_results_of_equal_numbers_of_other_types_are_told_apart(number: Arg, dtype: str) -> None:
    for call in (
        Call("aten.add.Scalar", (Ref(0), number)),
        Call("aten.clamp.default", (Ref(0),), (("min", number),)),
        Call("aten._foreach_add.ScalarList", (List((Ref(0),)), List((number,)))),
    ):
        assert appended(call).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_default_dtype_of_now(dtype: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert appended(Call("aten.true_divide.Scalar", (Ref(0), 2))).dtype == dtype_name(dtype)
    finally:
        torch.set_default_dtype(before)
