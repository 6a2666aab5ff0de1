"""Footprints, overlaps and index maps, against a brute-force twin that lists every byte of every element."""

from __future__ import annotations

import itertools
import math
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from functools import lru_cache

import numpy as np
import pytest
import torch

from executor import geometry
from executor.geometry import (
    CommonElement,
    Footprint,
    Overlap,
    WriteKind,
    common_element,
    index_map,
    overlap,
    write_kind,
)

PAIRS = 20_000
DTYPES = {"uint8": 1, "bool": 1, "int16": 2, "float16": 2, "float32": 4, "int32": 4, "complex64": 8, "float64": 8}


def f32(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Footprint:
    return Footprint(4, shape, strides, offset, "float32")


def of(tensor: torch.Tensor) -> Footprint:
    """The footprint of a real tensor."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    place = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
    return Footprint(tensor.itemsize, *place, dtype, tensor.is_conj(), tensor.is_neg())


# The brute-force twin. It shares no code with the module, and no idea: only the definitions.


@lru_cache(maxsize=64)
def elements(footprint: Footprint) -> list[tuple[tuple[int, ...], range]]:
    """Each index, in row-major order, with the bytes of its element."""
    indices = itertools.product(*map(range, footprint.shape))
    return [(index, element_bytes(footprint, index)) for index in indices]


def element_bytes(footprint: Footprint, index: tuple[int, ...]) -> range:
    start = footprint.offset + sum(i * s for i, s in zip(index, footprint.strides, strict=True))
    return range(start * footprint.itemsize, (start + 1) * footprint.itemsize)


def all_bytes(footprint: Footprint) -> list[int]:
    return [byte for _, at in elements(footprint) for byte in at]


def twin_overlap(read: Footprint, write: Footprint) -> Overlap:
    if not set(all_bytes(read)) & set(all_bytes(write)):
        return Overlap.NO_ALIAS
    if read.dtype != write.dtype:
        return Overlap.PARTIAL
    read_at, write_at = ([at for _, at in elements(side)] for side in (read, write))
    if read_at == write_at and (read.conj, read.neg) == (write.conj, write.neg):
        return Overlap.MUST_ALIAS
    return Overlap.CONTAINED if set(read_at) <= set(write_at) else Overlap.PARTIAL


def twin_index_map(read: Footprint, write: Footprint) -> list[int] | None:
    last = {at: position for position, (_, at) in enumerate(elements(write))}
    found = [last.get(at, -1) for _, at in elements(read)]
    return found if found and -1 not in found and read.dtype == write.dtype else None


def twin_common_element(a: Footprint, b: Footprint) -> CommonElement | None:
    for index_a, at_a in elements(a):
        for index_b, at_b in elements(b):
            if common := set(at_a) & set(at_b):
                return CommonElement(min(common), index_a, index_b)
    return None


def twin_self_overlaps(footprint: Footprint) -> bool:
    return max(Counter(all_bytes(footprint)).values(), default=0) > 1


def twin_order_dependent(read: Footprint, write: Footprint) -> bool:
    """For a write without internal overlap."""
    writer = {byte: index for index, at in elements(write) for byte in at}
    missing = len(write.shape) - len(read.shape)
    if missing < 0 or any(n not in (1, m) for n, m in zip(read.shape, write.shape[missing:], strict=True)):
        return not writer.keys().isdisjoint(all_bytes(read))
    for index in itertools.product(*map(range, write.shape)):
        read_index = tuple(0 if n == 1 else i for i, n in zip(index[missing:], read.shape, strict=True))
        if any(writer.get(byte, index) != index for byte in element_bytes(read, read_index)):
            return True
    return False


# Random views, of up to 64 bytes and 36 elements.


def random_base(rng: random.Random) -> Footprint:
    dtype, itemsize = rng.choice(list(DTYPES.items()))
    shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 3)))
    strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return Footprint(itemsize, shape, strides, rng.randint(0, 3), dtype)


def random_view(rng: random.Random, base: Footprint) -> Footprint:
    for _ in range(rng.randint(0, 3)):
        base = rng.choice([sliced, sliced, transposed, selected, retyped, expanded, strided, unfolded, relabelled])(
            rng, base
        )
    return base


def sliced(rng: random.Random, view: Footprint) -> Footprint:
    if not view.shape:
        return view
    dim = rng.randrange(len(view.shape))
    low = rng.randint(0, max(0, view.shape[dim] - 1))
    step = rng.choice([1, 1, 2, 3])
    size = len(range(low, rng.randint(low, view.shape[dim]) if rng.random() < 0.2 else view.shape[dim], step))
    shape = (*view.shape[:dim], size, *view.shape[dim + 1 :])
    strides = (*view.strides[:dim], view.strides[dim] * step, *view.strides[dim + 1 :])
    return replace(view, shape=shape, strides=strides, offset=view.offset + low * view.strides[dim])


def transposed(rng: random.Random, view: Footprint) -> Footprint:
    order = rng.sample(range(len(view.shape)), len(view.shape))
    return replace(view, shape=tuple(view.shape[i] for i in order), strides=tuple(view.strides[i] for i in order))


def selected(rng: random.Random, view: Footprint) -> Footprint:
    if 0 in view.shape or not view.shape:
        return view
    dim = rng.randrange(len(view.shape))
    offset = view.offset + rng.randrange(view.shape[dim]) * view.strides[dim]
    without = view.shape[:dim] + view.shape[dim + 1 :], view.strides[:dim] + view.strides[dim + 1 :]
    return replace(view, shape=without[0], strides=without[1], offset=offset)


def retyped(rng: random.Random, view: Footprint) -> Footprint:
    """`Tensor.view(dtype)`: to smaller elements along a last dimension of stride 1, or to the same size."""
    dtype = rng.choice([name for name, itemsize in DTYPES.items() if itemsize <= view.itemsize])
    ratio = view.itemsize // DTYPES[dtype]
    if ratio > 1 and (view.strides[-1:] != (1,) or view.numel * ratio > 36):
        return view
    shape = (*view.shape[:-1], view.shape[-1] * ratio) if ratio > 1 else view.shape
    strides = (*(s * ratio for s in view.strides[:-1]), 1) if ratio > 1 else view.strides
    return Footprint(DTYPES[dtype], shape, strides, view.offset * ratio, dtype)


def expanded(rng: random.Random, view: Footprint) -> Footprint:
    size = rng.randint(0, 3)
    at = rng.randint(0, len(view.shape))
    if view.numel * size > 36:
        return view
    return replace(
        view, shape=(*view.shape[:at], size, *view.shape[at:]), strides=(*view.strides[:at], 0, *view.strides[at:])
    )


def strided(rng: random.Random, view: Footprint) -> Footprint:
    """`as_strided`: anything."""
    ndim = rng.randint(0, 3)
    shape = tuple(rng.randint(1, 3) for _ in range(ndim))
    return replace(view, shape=shape, strides=tuple(rng.randint(0, 6) for _ in range(ndim)), offset=rng.randint(0, 4))


def unfolded(rng: random.Random, view: Footprint) -> Footprint:
    dims = [i for i, n in enumerate(view.shape) if n > 1]
    if not dims:
        return view
    dim, step = rng.choice(dims), rng.randint(1, 2)
    windows = (view.shape[dim] - 2) // step + 1
    if view.numel * 2 > 36:
        return view
    shape = (*view.shape[:dim], windows, *view.shape[dim + 1 :], 2)
    return replace(
        view,
        shape=shape,
        strides=(*view.strides[:dim], view.strides[dim] * step, *view.strides[dim + 1 :], view.strides[dim]),
    )


def relabelled(rng: random.Random, view: Footprint) -> Footprint:
    """The same addresses: other strides where the size is 1, a split dimension, a lazy bit."""
    strides = tuple(rng.randint(0, 9) if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True))
    view = replace(view, strides=strides, neg=rng.random() < 0.2, conj=rng.random() < 0.1)
    if view.shape and view.shape[0] % 2 == 0:
        shape = (2, view.shape[0] // 2, *view.shape[1:])
        view = replace(view, shape=shape, strides=(view.strides[0] * (view.shape[0] // 2), *view.strides))
    return view


def random_pairs(seed: int, count: int) -> Iterator[tuple[Footprint, Footprint]]:
    """Views of one base, views of each other, and unrelated ones."""
    rng = random.Random(seed)
    for _ in range(count):
        base = random_base(rng)
        write = random_view(rng, base)
        yield random_view(rng, rng.choice([base, write, write, random_base(rng)])), write


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Footprint, Footprint]]:
    return list(random_pairs(20260727, PAIRS))


def test_overlap_and_index_map_agree_with_the_twin(pairs: list[tuple[Footprint, Footprint]]) -> None:
    seen: Counter[Overlap] = Counter()
    for read, write in pairs:
        expected = twin_overlap(read, write)
        assert overlap(read, write) is expected, (read, write)
        found = index_map(read, write)
        assert (None if found is None else found.tolist()) == twin_index_map(read, write), (read, write)
        assert (found is None) is (expected in (Overlap.NO_ALIAS, Overlap.PARTIAL)), (read, write)
        seen[expected] += 1
    assert min(seen[answer] for answer in Overlap) > PAIRS // 20, seen


def test_self_overlap_and_sets_agree_with_the_twin(pairs: list[tuple[Footprint, Footprint]]) -> None:
    seen: Counter[bool] = Counter()
    for footprint, _ in pairs:
        listed = elements(footprint)
        expected = twin_self_overlaps(footprint)
        assert footprint.self_overlaps is expected, footprint
        assert footprint.offsets().tolist() == [at.start // footprint.itemsize for _, at in listed]
        byte_set = sorted(set(all_bytes(footprint)))
        assert footprint.byte_set().tolist() == byte_set
        lowest = footprint.offset * footprint.itemsize
        assert footprint.bounds == (lowest, byte_set[-1] + 1 if byte_set else lowest), footprint
        assert footprint.numel == len(listed)
        assert footprint.dense is (not expected and len(byte_set) == footprint.stop - footprint.start), footprint
        seen[expected] += 1
    assert min(seen.values()) > PAIRS // 20, seen


def test_common_element_agrees_with_the_twin(pairs: list[tuple[Footprint, Footprint]]) -> None:
    for a, b in pairs[::4]:
        assert common_element(a, b) == twin_common_element(a, b), (a, b)


def test_write_kind_agrees_with_the_twin(pairs: list[tuple[Footprint, Footprint]]) -> None:
    seen: Counter[WriteKind] = Counter()
    for read, write in pairs:
        expected = WriteKind.DEFINED
        if twin_self_overlaps(write):
            expected = WriteKind.SELF_OVERLAPPING
        elif twin_order_dependent(read, write):
            expected = WriteKind.ORDER_DEPENDENT
        assert write_kind(write, [read]) is expected, (read, write)
        seen[expected] += 1
    assert min(seen[kind] for kind in WriteKind) > PAIRS // 20, seen


def test_the_solver_decides_what_is_too_large_to_list(
    monkeypatch: pytest.MonkeyPatch, pairs: list[tuple[Footprint, Footprint]]
) -> None:
    """Without the list, all answers but containment in a write that doesn't nest stay exact."""
    monkeypatch.setattr(geometry, "LISTED", 0)
    for read, write in pairs[1::4]:
        geometry._exact_overlap.cache_clear()
        geometry._self_overlaps.cache_clear()
        assert write.self_overlaps is twin_self_overlaps(write), write
        expected = twin_overlap(read, write)
        if expected is Overlap.CONTAINED and geometry._gaps(write) is None:
            expected = Overlap.PARTIAL
        assert overlap(read, write) is expected, (read, write)
    geometry._exact_overlap.cache_clear()
    geometry._self_overlaps.cache_clear()


ROW_MAJOR, COLUMN_MAJOR = f32((4, 6), (6, 1)), f32((6, 4), (1, 6))


@pytest.mark.parametrize(
    ("read", "write", "expected"),
    [
        # Order and shape.
        (ROW_MAJOR, ROW_MAJOR, Overlap.MUST_ALIAS),
        (f32((24,), (1,)), ROW_MAJOR, Overlap.MUST_ALIAS),
        (f32((2, 2, 1, 3, 2), (12, 6, 99, 2, 1)), ROW_MAJOR, Overlap.MUST_ALIAS),
        (COLUMN_MAJOR, ROW_MAJOR, Overlap.CONTAINED),
        (f32((2, 2), (2, 2)), f32((2, 2), (2, 3)), Overlap.PARTIAL),
        (f32((6, 4), (4, 1)), f32((6, 4), (5, 1)), Overlap.PARTIAL),
        (f32((2, 3), (3, 1)), f32((3, 2), (1, 3)), Overlap.CONTAINED),
        # Windows: whole, inside, across an end, next to each other.
        (f32((3,), (1,), 2), f32((3,), (1,), 2), Overlap.MUST_ALIAS),
        (f32((2,), (1,), 2), f32((3,), (1,), 2), Overlap.CONTAINED),
        (f32((2,), (1,), 3), f32((3,), (1,), 2), Overlap.CONTAINED),
        (f32((3,), (1,), 3), f32((3,), (1,), 2), Overlap.PARTIAL),
        (f32((3,), (1,), 1), f32((3,), (1,), 2), Overlap.PARTIAL),
        (f32((4,), (1,), 2), f32((3,), (1,), 2), Overlap.PARTIAL),
        (f32((3,), (1,), 5), f32((3,), (1,), 2), Overlap.NO_ALIAS),
        (f32((2,), (1,), 0), f32((3,), (1,), 2), Overlap.NO_ALIAS),
        # Columns of a 5 x 4 matrix, and a gap of the write at each level.
        (f32((5,), (4,), 1), f32((5,), (4,), 0), Overlap.NO_ALIAS),
        (f32((5, 2), (4, 2), 1), f32((5, 2), (4, 2), 0), Overlap.NO_ALIAS),
        (f32((5, 2), (4, 1), 1), f32((5, 3), (4, 1), 0), Overlap.CONTAINED),
        (f32((5, 2), (4, 1), 2), f32((5, 3), (4, 1), 0), Overlap.PARTIAL),
        (f32((2,), (9,), 0), f32((3, 3), (8, 1), 0), Overlap.CONTAINED),
        (f32((2,), (11,), 0), f32((3, 3), (8, 1), 0), Overlap.PARTIAL),
        (f32((2,), (7,), 0), f32((3, 3), (8, 1), 0), Overlap.PARTIAL),
        # Strides that nest without leaving a gap (0 3 4 7), and strides that don't nest (0 2 3 4 5 7).
        (f32((2,), (1,), 3), f32((2, 2), (4, 3)), Overlap.CONTAINED),
        (f32((2,), (1,), 4), f32((2, 2), (4, 3)), Overlap.PARTIAL),
        (f32((2,), (5,), 2), f32((2, 3), (3, 2)), Overlap.CONTAINED),
        (f32((2,), (4,), 2), f32((2, 3), (3, 2)), Overlap.PARTIAL),
        # Scalars and sizes of 1 with any stride.
        (f32((), (), 7), f32((), (), 7), Overlap.MUST_ALIAS),
        (f32((), (), 7), f32((1, 1), (5, 9), 7), Overlap.MUST_ALIAS),
        (f32((), (), 7), f32((), (), 8), Overlap.NO_ALIAS),
        (f32((), (), 7), ROW_MAJOR, Overlap.CONTAINED),
        (ROW_MAJOR, f32((), (), 7), Overlap.PARTIAL),
        # Expanded reads and writes.
        (f32((3,), (0,), 7), f32((), (), 7), Overlap.CONTAINED),
        (f32((3,), (0,), 7), f32((3, 1), (0, 1), 7), Overlap.MUST_ALIAS),
        (f32((), (), 7), f32((3,), (0,), 7), Overlap.CONTAINED),
        (f32((2, 3), (0, 1)), f32((3, 2), (1, 0)), Overlap.CONTAINED),
        (f32((2, 3), (0, 0), 7), f32((6,), (0,), 7), Overlap.MUST_ALIAS),
        # Empty tensors touch nothing, in the middle of another as anywhere.
        (f32((0,), (1,), 7), ROW_MAJOR, Overlap.NO_ALIAS),
        (ROW_MAJOR, f32((3, 0), (1, 1), 7), Overlap.NO_ALIAS),
        (f32((0,), (1,)), f32((0,), (1,)), Overlap.NO_ALIAS),
    ],
)
def test_overlap_of_one_dtype(read: Footprint, write: Footprint, expected: Overlap) -> None:
    assert overlap(read, write) is expected
    assert twin_overlap(read, write) is expected


@pytest.mark.parametrize(
    ("read", "write", "expected"),
    [
        (Footprint(4, (3,), (1,), 0, "int32"), f32((3,), (1,)), Overlap.PARTIAL),
        (Footprint(2, (6,), (1,), 0, "int16"), f32((3,), (1,)), Overlap.PARTIAL),
        (Footprint(2, (), (), 3, "int16"), f32((3,), (1,)), Overlap.PARTIAL),
        (f32((3,), (1,)), Footprint(8, (2,), (1,), 0, "complex64"), Overlap.PARTIAL),
        # The low and the high halves of float32s: the second touches bytes 2 and 3 of each, the third the next ones.
        (Footprint(2, (3,), (2,), 1, "int16"), f32((3,), (1,)), Overlap.PARTIAL),
        (Footprint(2, (3,), (2,), 1, "int16"), Footprint(2, (3,), (2,), 0, "float16"), Overlap.NO_ALIAS),
        (Footprint(2, (2,), (1,), 2, "int16"), f32((), ()), Overlap.NO_ALIAS),
        (Footprint(2, (2,), (1,), 1, "int16"), f32((), ()), Overlap.PARTIAL),
        # Real and imaginary parts of complex64s, and odd bytes between even ones.
        (f32((4,), (2,), 1), f32((4,), (2,), 0), Overlap.NO_ALIAS),
        (Footprint(1, (4,), (8,), 3, "uint8"), f32((4,), (2,), 1), Overlap.NO_ALIAS),
        (Footprint(1, (4,), (8,), 4, "uint8"), f32((4,), (2,), 1), Overlap.PARTIAL),
        (Footprint(2, (0,), (1,), 1, "int16"), f32((3,), (1,)), Overlap.NO_ALIAS),
    ],
)
def test_overlap_across_dtypes(read: Footprint, write: Footprint, expected: Overlap) -> None:
    assert overlap(read, write) is expected
    assert overlap(write, read) is expected
    assert index_map(read, write) is None
    assert (common_element(read, write) is None) is (expected is Overlap.NO_ALIAS)


@pytest.mark.parametrize("bit", ["conj", "neg"])
def test_lazy_bits_must_agree_for_must_alias_only(bit: str) -> None:
    plain = Footprint(8, (3,), (1,), 0, "complex64")
    lazy = replace(plain, conj=bit == "conj", neg=bit == "neg")
    assert overlap(lazy, lazy) is Overlap.MUST_ALIAS
    assert overlap(lazy, plain) is overlap(plain, lazy) is Overlap.CONTAINED
    assert overlap(replace(lazy, offset=3), plain) is Overlap.NO_ALIAS
    assert lazy != plain


def test_footprints_of_real_tensors() -> None:
    z = torch.zeros(3, 4, dtype=torch.complex64)
    assert overlap(of(z.real), of(z.imag)) is Overlap.NO_ALIAS
    assert overlap(of(z.conj()), of(z)) is Overlap.CONTAINED
    assert overlap(of(z.conj().imag), of(z.imag)) is Overlap.CONTAINED
    assert overlap(of(z.real), of(z)) is overlap(of(torch.view_as_real(z)), of(z)) is Overlap.PARTIAL
    assert overlap(of(z.view(torch.float64)), of(z)) is Overlap.PARTIAL
    assert overlap(of(z.view(2, 6)), of(z)) is Overlap.MUST_ALIAS
    assert overlap(of(z.diagonal()), of(z[:, 0])) is Overlap.PARTIAL
    assert overlap(of(z.t()[1:3]), of(z[:, 1:])) is Overlap.CONTAINED


@pytest.mark.parametrize("seed", range(3))
def test_layout_agrees_with_torch(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        view = random_view(rng, random_base(rng))
        bytes_ = torch.zeros(1024, dtype=torch.uint8).view(getattr(torch, view.dtype))
        tensor = bytes_.as_strided(view.shape, view.strides, view.offset)
        assert view.contiguous is tensor.is_contiguous(), view
        shape = tuple(rng.randint(0, 2) if n == 1 else n for n in (1, *view.shape))[rng.randint(0, 1) :]
        expanded_view = view.broadcast_to(shape)
        assert expanded_view is not None
        assert np.array_equal(expanded_view.offsets(), of(tensor.expand(shape)).offsets()), (view, shape)


def test_broadcast_refuses_what_torch_refuses() -> None:
    assert f32((1, 3), (3, 1)).broadcast_to((3,)) is None
    assert f32((2, 3), (3, 1)).broadcast_to((4, 3)) is None
    assert f32((0,), (1,)).broadcast_to((1,)) is None
    assert f32((3,), (1,)).broadcast_to((2, 3)) == f32((2, 3), (0, 1))
    assert f32((1,), (5,)).broadcast_to((1,)) == f32((1,), (5,))


def test_index_map_through_a_transpose_and_a_window() -> None:
    transposed_map = index_map(COLUMN_MAJOR, ROW_MAJOR)
    assert transposed_map is not None
    assert transposed_map.dtype == np.int64
    assert transposed_map.tolist() == np.arange(24).reshape(4, 6).T.ravel().tolist()
    window_map = index_map(f32((2, 2), (6, 2), 7), f32((4, 3), (6, 2), 1))
    assert window_map is not None
    assert window_map.tolist() == [3, 4, 6, 7]


@pytest.mark.parametrize(
    ("read", "write", "expected"),
    [
        (f32((), (), 7), f32((3,), (0,), 7), [2]),
        (f32((2,), (1,)), f32((2, 3), (1, 0)), [2, 5]),
        # The windows of a sliding sum: elements 0 1 2 3 are last held by 0, 2, 4 and 5.
        (f32((4,), (1,)), f32((3, 2), (1, 1)), [0, 2, 4, 5]),
        (f32((3, 2), (1, 1)), f32((3, 2), (1, 1)), [0, 2, 2, 4, 4, 5]),
    ],
)
def test_index_map_names_the_last_of_several_writers(read: Footprint, write: Footprint, expected: list[int]) -> None:
    found = index_map(read, write)
    assert found is not None
    assert found.tolist() == expected


def test_common_element_is_the_first_of_both() -> None:
    assert common_element(f32((5, 5), (5, 1)), f32((), (), 7)) == CommonElement(28, (1, 2), ())
    assert common_element(f32((4,), (2,)), f32((4,), (3,), 1)) == CommonElement(16, (2,), (1,))
    assert common_element(f32((2, 3), (0, 1)), f32((3, 2), (1, 0))) == CommonElement(0, (0, 0), (0, 0))
    high_half = Footprint(2, (2,), (2,), 1, "int16")
    assert common_element(f32((2,), (1,)), high_half) == CommonElement(2, (0,), (0,))
    assert common_element(f32((4,), (2,)), f32((4,), (2,), 1)) is None
    assert common_element(f32((4,), (1,)), f32((4,), (1,), 4)) is None
    assert common_element(f32((0,), (1,), 1), f32((4,), (1,))) is None


@pytest.mark.parametrize(
    ("footprint", "expected"),
    [
        (f32((3,), (0,)), True),
        (f32((1, 3), (0, 1)), False),
        (f32((0, 3), (0, 0)), False),
        (f32((), ()), False),
        (f32((3, 2), (1, 1)), True),  # unfold
        (f32((3, 2), (2, 1)), False),
        (f32((3, 3), (2, 1)), True),
        (f32((2, 2), (4, 3)), False),
        (f32((2, 3), (3, 2)), False),
        (f32((3, 4), (3, 2)), True),  # 2 * 3 == 3 * 2
        (f32((3, 3), (3, 2)), False),
        (f32((2, 4), (3, 2)), False),
        (f32((2, 2, 2), (5, 3, 2)), True),
        (f32((2, 2, 2), (6, 3, 2)), False),
    ],
)
def test_self_overlaps(footprint: Footprint, expected: bool) -> None:  # noqa: FBT001 - a parameter of the case
    assert footprint.self_overlaps is expected
    assert twin_self_overlaps(footprint) is expected


def test_large_footprints_are_decided_exactly() -> None:
    """2**24 elements and more: nothing is listed."""
    matrix, column = f32((4096, 4096), (4096, 1)), f32((4096,), (4096,), 5)
    assert overlap(f32((4096, 4096), (1, 4096)), matrix) is Overlap.CONTAINED
    assert overlap(column, matrix) is Overlap.CONTAINED
    assert overlap(matrix, column) is Overlap.PARTIAL
    assert overlap(f32((4096,), (8192,), 2), f32((4096, 1, 4096), (8192, 7, 2))) is Overlap.CONTAINED
    left, right = f32((4096, 2048), (4096, 1)), f32((4096, 2048), (4096, 1), 2048)
    assert overlap(left, right) is Overlap.NO_ALIAS
    assert overlap(f32((4096, 2048), (4096, 1), 1), left) is Overlap.PARTIAL
    assert overlap(f32((4096, 2047), (4096, 1), 1), left) is Overlap.CONTAINED
    assert common_element(right, f32((2,), (4096 * 4096 - 4096,), 4095)) == CommonElement(16380, (0, 2047), (0,))
    # Sliding windows: overlapping runs join into one.
    windows = f32((1 << 17, 3), (2, 1))
    assert windows.self_overlaps
    assert overlap(f32((1 << 17,), (2,), 1), windows) is Overlap.CONTAINED
    assert overlap(f32((1 << 17,), (2,), 1), f32((1 << 17, 3), (4, 1))) is Overlap.PARTIAL
    # 999 * 1001 == 1001 * 999 needs the index 999 in the first and 1001 in the second dimension.
    assert f32((1000, 1002), (1001, 999)).self_overlaps
    assert not f32((1000, 1001), (1001, 999)).self_overlaps
    assert not f32((999, 1002), (1001, 999)).self_overlaps
    # The collision lies in the two inner dimensions; the outer one, alone with each, is harmless.
    assert f32((2, 1000, 1002), (1 << 30, 1001, 999)).self_overlaps
    assert not f32((2, 1000, 1001), (1 << 30, 1001, 999)).self_overlaps
    assert f32((2, 1000, 1001), (1001 * 999, 1001, 999)).self_overlaps


# No byte in common, which takes NumPy's solver more than 10**7 steps; too large to list.
HARD_A = f32((20,) * 4, (10**9 + 7, 10**9 + 9, 10**9 + 21, 10**9 + 33))
HARD_B = f32((20,) * 4, (10**9 + 87, 10**9 + 93, 10**9 + 97, 10**9 + 103), 1)


def test_past_the_work_limit_the_answer_is_the_safe_one() -> None:
    assert overlap(HARD_A, HARD_B) is Overlap.PARTIAL
    assert common_element(HARD_A, HARD_B) is None
    assert common_element(HARD_B, HARD_A) is None
    # What is found within the limit is exact: another offset, two common elements.
    assert overlap(HARD_A, replace(HARD_B, offset=0)) is Overlap.PARTIAL
    assert common_element(HARD_A, replace(HARD_B, offset=0)) == CommonElement(0, (0, 0, 0, 0), (0, 0, 0, 0))


def test_containment_in_a_write_that_does_not_nest_is_listed_if_small() -> None:
    scalar, small, large = f32((), ()), f32((200, 300), (7, 5)), f32((300, 300), (7, 5))
    assert small.numel < geometry.LISTED < large.numel
    assert overlap(scalar, small) is Overlap.CONTAINED
    assert overlap(scalar, large) is Overlap.PARTIAL
    assert overlap(f32((), (), 1), large) is Overlap.NO_ALIAS


def test_small_questions_are_listed_past_the_work_limit(pairs: list[tuple[Footprint, Footprint]]) -> None:
    for read, write in pairs[2::8]:
        assert overlap(read, write, max_work=1) is twin_overlap(read, write), (read, write)
        assert common_element(read, write, max_work=1) == twin_common_element(read, write), (read, write)


def test_the_short_cuts_are_taken() -> None:
    """They only save time, so no other test would miss them."""
    assert geometry._nested_loops((4, 1, 6), (6, 9, 1)) == [(6, 4, 6), (1, 6, 1)]
    assert geometry._nested_loops((6, 4), (1, 6)) == [(6, 4, 1), (1, 6, 4)]
    assert geometry._nested_loops((2, 2), (1, 1)) is geometry._nested_loops((2, 3), (3, 2)) is None
    assert geometry._normal_form(ROW_MAJOR) == f32((24,), (1,))
    assert geometry._gaps(ROW_MAJOR) == ()
    assert geometry._last_position(COLUMN_MAJOR, np.array([-1, 0, 1, 6, 23, 24])).tolist() == [-1, 0, 4, 1, 23, -1]
    assert geometry._in_units(ROW_MAJOR, 4) is ROW_MAJOR
    assert ROW_MAJOR.broadcast_to((4, 6)) is ROW_MAJOR
    assert geometry._listable(24, ROW_MAJOR, f32((), ()))
    assert not geometry._listable(23, f32((), ()), ROW_MAJOR)


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        (f32((3, 3, 3), (53, 90, 49), 3), f32((3, 3, 3), (80, 89, 90), 7), False),
        # Their first elements only.
        (f32((3, 3, 3), (37, 27, 62), 7), f32((3, 3, 3), (65, 65, 55), 7), True),
    ],
)
def test_the_list_decides_what_the_solver_gave_up(a: Footprint, b: Footprint, shared: bool) -> None:  # noqa: FBT001 - a parameter of the case
    with pytest.raises(np.exceptions.TooHardError):
        geometry._solve(geometry._array(a, 4), geometry._array(b, 4), max_work=1)
    assert geometry._shares(a, b, 1) is geometry._shares(b, a, 1) is shared
    assert twin_overlap(a, b) is (Overlap.PARTIAL if shared else Overlap.NO_ALIAS)


def test_a_run_is_joined_with_the_one_below_it_only() -> None:
    """10 steps of 100 fit the run of 10 elements, but not the run of 2 that has that stride."""
    assert overlap(f32((), (), 200), f32((5, 2, 10), (1000, 100, 1))) is Overlap.NO_ALIAS


def test_write_kind_of_textbook_calls() -> None:
    x = torch.zeros(3, 4)
    row, square = of(x[0]), of(x[:, :3])
    assert write_kind(of(x), []) is WriteKind.DEFINED
    assert write_kind(of(x), [of(x)]) is WriteKind.DEFINED
    assert write_kind(square, [of(x[:, :3].t())]) is WriteKind.ORDER_DEPENDENT
    assert write_kind(of(x[:, 1:3]), [of(x[:, 0:2])]) is WriteKind.ORDER_DEPENDENT
    assert write_kind(of(x), [row]) is WriteKind.ORDER_DEPENDENT
    assert write_kind(of(x[0:1]), [row]) is WriteKind.DEFINED
    assert write_kind(of(x), [of(x), row]) is WriteKind.ORDER_DEPENDENT
    assert write_kind(of(x[1:]), [row]) is WriteKind.DEFINED
    assert write_kind(of(x[0].expand(3, 4)), []) is WriteKind.SELF_OVERLAPPING
    assert write_kind(of(x[0].expand(3, 4)), [of(x[:, :3].t())]) is WriteKind.SELF_OVERLAPPING
    # They meet in x[0, 0] only, the first element of both.
    assert write_kind(of(x[0, :3]), [of(x[:, 0])]) is WriteKind.DEFINED
    assert write_kind(of(x[0, 1:]), [of(x[:, 1])]) is WriteKind.DEFINED
    assert write_kind(of(x[0, 1:]), [of(x[:, 2])]) is WriteKind.ORDER_DEPENDENT
    # Element 0 lies before the target, whose rows are its columns; they meet in element (0, 1) of both.
    assert write_kind(f32((3, 2), (1, 3), 1), [f32((3, 2), (7, 4))]) is WriteKind.DEFINED
    # Operands that don't broadcast to the target.
    assert write_kind(row, [of(x)]) is WriteKind.ORDER_DEPENDENT
    assert write_kind(row, [of(x[1:])]) is WriteKind.DEFINED


def test_write_kind_across_dtypes() -> None:
    x = torch.zeros(3, 4)
    halves = x.view(torch.int16)
    assert write_kind(of(x), [of(x.view(torch.int32))]) is WriteKind.DEFINED
    assert write_kind(of(x), [of(halves[:, ::2])]) is write_kind(of(x), [of(halves[:, 1::2])]) is WriteKind.DEFINED
    assert write_kind(of(x), [of(halves[:, :4])]) is WriteKind.ORDER_DEPENDENT
    assert write_kind(of(halves[:, ::2]), [of(x)]) is WriteKind.DEFINED
    assert write_kind(of(halves[:, :4]), [of(x)]) is WriteKind.ORDER_DEPENDENT
    # The same strides in elements, not in bytes.
    assert write_kind(f32((3,), (2,)), [Footprint(2, (3,), (2,), 0, "int16")]) is WriteKind.ORDER_DEPENDENT


def test_write_kind_of_large_tensors() -> None:
    large = f32((2048, 2048), (2048, 1))
    assert large.numel > geometry.LISTED_BY_WRITE_KIND
    assert write_kind(large, [large]) is WriteKind.DEFINED
    assert write_kind(large, [replace(large, dtype="int32")]) is WriteKind.DEFINED
    # The stride of a dimension of size 1 means nothing.
    one_of_large = f32((1, 2048, 2048), (9, 2048, 1))
    assert write_kind(one_of_large, [replace(one_of_large, strides=(5, 2048, 1))]) is WriteKind.DEFINED
    assert write_kind(large, [f32((2048, 1, 2048), (2048, 9, 1))]) is WriteKind.ORDER_DEPENDENT
    assert write_kind(large, [f32((2048, 2048), (1, 2048))]) is WriteKind.ORDER_DEPENDENT
    assert write_kind(large, [replace(large, offset=2048 * 2048)]) is WriteKind.DEFINED
    # Defined, but past the limit: the label errs on the safe side.
    halves = Footprint(2, (2048, 2048), (4096, 2), 0, "int16")
    assert write_kind(large, [halves]) is WriteKind.ORDER_DEPENDENT


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous", "dense"),
    [
        ((2, 3), (3, 1), True, True),
        ((2, 3), (1, 2), False, True),
        ((1, 3, 1), (7, 1, 7), True, True),
        ((2, 3), (4, 1), False, False),
        ((3,), (2,), False, False),
        ((3,), (0,), False, False),
        ((2, 2), (1, 1), False, False),
        ((3, 2), (0, 2), False, False),
        ((3, 2, 2), (0, 4, 1), False, False),
        ((1,), (5,), True, True),
        ((), (), True, True),
        ((0, 3), (9, 9), True, True),
    ],
)
def test_contiguous_and_dense(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    contiguous: bool,  # noqa: FBT001 - a parameter of the case
    dense: bool,  # noqa: FBT001 - a parameter of the case
) -> None:
    footprint = f32(shape, strides, 3)
    assert footprint.contiguous is contiguous
    assert footprint.dense is dense


def test_a_footprint_is_a_value() -> None:
    footprint = f32((2, 3), (3, 1), 1)
    assert (footprint.numel, footprint.bounds) == (6, (4, 28))
    assert hash(footprint) == hash(f32((2, 3), (3, 1), 1))
    assert footprint != Footprint(4, (2, 3), (3, 1), 1, "int32")
    assert pickle.loads(pickle.dumps(footprint)) == footprint  # noqa: S301 - our own bytes
    assert not hasattr(footprint, "__dict__")
    with pytest.raises(FrozenInstanceError):
        footprint.offset = 0  # type: ignore[misc]
    assert repr(footprint) == (
        "Footprint(itemsize=4, shape=(2, 3), strides=(3, 1), offset=1, dtype='float32', conj=False, neg=False)"
    )


@pytest.mark.parametrize(
    ("itemsize", "shape", "strides", "offset", "message"),
    [
        (4, (2, 3), (1,), 0, r"shape \(2, 3\) and strides \(1,\) differ in length"),
        (0, (2,), (1,), 0, "itemsize must be positive"),
        (4, (-1,), (1,), 0, "must not be negative"),
        (4, (2,), (-1,), 0, "must not be negative"),
        (4, (2,), (1,), -1, "must not be negative"),
        (4, (1 << 32, 1 << 31), (0, 0), 0, r"fewer than 2\*\*63"),
    ],
)
def test_impossible_geometry_is_refused(
    itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Footprint(itemsize, shape, strides, offset, "float32")


def test_a_huge_expanded_tensor_is_no_trouble() -> None:
    huge = f32((1 << 31, 1 << 31), (0, 0), 3)
    assert overlap(f32((), (), 3), huge) is Overlap.CONTAINED
    assert overlap(f32((), (), 4), huge) is Overlap.NO_ALIAS
    assert huge.self_overlaps
    assert common_element(huge, f32((4,), (1,))) == CommonElement(12, (0, 0), (3,))


def test_a_footprint_of_another_process_has_the_hash_of_an_equal_one_here() -> None:
    """Strings are hashed in another way there."""
    footprint = f32((2, 3), (3, 1), 1)
    object.__setattr__(footprint, "_hash", footprint._hash + 1)
    assert hash(pickle.loads(pickle.dumps(footprint))) == hash(f32((2, 3), (3, 1), 1))  # noqa: S301 - our own bytes
