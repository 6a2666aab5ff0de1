"""Where tensors lie in memory, and how a read and a write on one storage overlap.

A `Footprint` is the address side of a tensor: element size, shape, strides, storage offset. This module answers every
question that the compiler asks about two of them, exactly wherever the answer can be had within a bounded amount of
work, and on the safe side elsewhere. No memory is read: the tensors need not exist.

Whether two strided sets meet is a bounded Diophantine equation, NP-hard in the number of dimensions. It is left to
NumPy's solver (`numpy/_core/src/common/mem_overlap.c`, after Ramachandran, "Use of Extended Euclidean Algorithm in
Solving a System of Linear Diophantine Equations with Bounded Variables", 2006), which counts its steps and gives up
after `max_work` of them. The other questions are reduced to that one:

- *containment*: a write whose strides nest (each is longer than everything below it) leaves gaps that are strided sets
  themselves, at most one kind a dimension; a read is contained if it lies within the bounds and meets none of them;
- *internal overlap*: index tuples that differ first in dimension i, sliced apart, are two strided sets;
- *an example*: the index is bisected, dimension by dimension, with O(log numel) questions.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "CommonElement", "Footprint", "Overlap", "WriteKind", "common_element", "index_map", "overlap", "write_kind",
]  # fmt: skip

Offsets = npt.NDArray[np.int64]

# Steps of NumPy's solver: about 10 ns each, so a hopeless question costs 1 ms. Tensors met in practice need under 100.
MAX_WORK = 100_000
# Past `max_work`, sets of up to this many elements are compared by listing them (some milliseconds).
LISTED = 1 << 16
# `write_kind` has only the list to go by for reads that meet the write elsewhere, so it may be longer.
LISTED_BY_WRITE_KIND = 1 << 20
# Caches are small on purpose: a worker's memory has to stay flat over any number of programs.
CACHED = 4096
# The fake address of a storage. Never null: NumPy would allocate memory instead.
_BASE = 1 << 40
# NumPy's annotations know no `max_work` but 0 and -1.
_solve: Callable[..., bool] = np.shares_memory


@dataclass(frozen=True, slots=True)
class Footprint:
    """The addresses of one tensor: `itemsize` in bytes, `strides` and storage `offset` in elements, as torch has them.

    `dtype` is torch's name ("float32"); `conj` and `neg` are its lazy bits. Positions are relative to the storage, and
    comparing footprints of two storages is meaningless. `start` and `stop` bound the touched bytes (half-open; equal
    for an empty tensor). Raises ValueError for a geometry that no torch tensor can have.
    """

    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str
    conj: bool = False
    neg: bool = False
    numel: int = field(init=False, repr=False, compare=False)
    start: int = field(init=False, repr=False, compare=False)
    stop: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides):
            raise ValueError(f"shape {self.shape} and strides {self.strides} differ in length; give one stride a size")
        if self.itemsize < 1 or self.offset < 0 or min(self.shape + self.strides, default=0) < 0:
            raise ValueError(f"{self}: itemsize must be positive; sizes, strides and offset must not be negative")
        numel = math.prod(self.shape)
        if numel >= 1 << 63:
            raise ValueError(f"{self}: {numel} elements; a tensor has fewer than 2**63")
        last = self.offset + sum([(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)])
        object.__setattr__(self, "numel", numel)
        object.__setattr__(self, "start", self.offset * self.itemsize)
        object.__setattr__(self, "stop", (last + 1) * self.itemsize if numel else self.start)
        object.__setattr__(
            self, "_hash", hash((self.shape, self.strides, self.offset, self.dtype, self.conj, self.neg))
        )

    def __hash__(self) -> int:
        """Known from the start: every cache asks for it."""
        return self._hash

    def __reduce__(self) -> tuple[type[Footprint], tuple[object, ...]]:
        """Made anew from its fields: another process hashes strings in another way."""
        return Footprint, (self.itemsize, self.shape, self.strides, self.offset, self.dtype, self.conj, self.neg)

    @property
    def bounds(self) -> tuple[int, int]:
        """First byte touched and one past the last; both the same for an empty tensor."""
        return self.start, self.stop

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps, as `Tensor.is_contiguous()`; empty tensors are."""
        return self.numel == 0 or _walk(self) in ((), ((self.numel, 1),))

    @property
    def dense(self) -> bool:
        """Each byte within the bounds belongs to exactly one element, in any order of dimensions."""
        return self.numel * self.itemsize == self.stop - self.start and not self.self_overlaps

    @property
    def self_overlaps(self) -> bool:
        """Whether two index tuples hit a common byte. Exact, but True for a question past MAX_WORK and LISTED."""
        return _self_overlaps(self)

    def offsets(self) -> Offsets:
        """Storage offset of each element, in elements, in row-major order. O(numel) time and memory."""
        total = np.array([self.offset], dtype=np.int64)
        for n, s in zip(self.shape, self.strides, strict=True):
            if n != 1:
                total = (total[:, None] + np.arange(n, dtype=np.int64) * s).reshape(-1)
        return total

    def units(self, size: int) -> Offsets:
        """Every unit of `size` bytes touched, a divisor of the itemsize, element by element: for small cases."""
        return _in_units(self, size).offsets()

    def byte_set(self) -> Offsets:
        """Every byte touched, ascending, each once. O(numel * itemsize) memory: for tests and small cases."""
        return np.unique(self.units(1))

    def moved(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Footprint:
        """Other elements of the same kind, as `tensor.as_strided(shape, strides, offset)`."""
        return Footprint(self.itemsize, shape, strides, offset, self.dtype, self.conj, self.neg)

    def broadcast_to(self, shape: tuple[int, ...]) -> Footprint | None:
        """The footprint of `tensor.expand(shape)`; None where torch would refuse it."""
        if shape == self.shape:
            return self
        missing = len(shape) - len(self.shape)
        if missing < 0 or any(n not in (1, m) for n, m in zip(self.shape, shape[missing:], strict=True)):
            return None
        kept = [s if n == m else 0 for n, m, s in zip(self.shape, shape[missing:], self.strides, strict=True)]
        return self.moved(shape, (0,) * missing + tuple(kept), self.offset)


class Overlap(enum.Enum):
    """How a read lies to a write on the same storage. Lists go from the cheapest to handle to the dearest."""

    NO_ALIAS = "no byte in common"
    MUST_ALIAS = "the same elements in the same order, same dtype and lazy bits; a reshape at most"
    CONTAINED = "all elements of the read are elements of the write, same dtype: forward through `index_map`"
    PARTIAL = "anything else, or a question past the work limit"


class WriteKind(enum.Enum):
    """Whether the outcome of an elementwise write depends on the order in which its elements are visited."""

    DEFINED = "the same in any order"
    SELF_OVERLAPPING = "two elements of the target share memory"
    ORDER_DEPENDENT = "an operand is read where the write changes it, at another position"


class CommonElement(NamedTuple):
    """A byte that two tensors share (counted from the storage's start) and the element of each that holds it."""

    byte: int
    index_a: tuple[int, ...]
    index_b: tuple[int, ...]


def overlap(read: Footprint, write: Footprint, max_work: int = MAX_WORK) -> Overlap:
    """The relation of a read to a write on one storage; PARTIAL, the safe answer, past `max_work` (-1: no limit).

    Bounds in O(1), then cached. Lazy bits must agree for MUST_ALIAS only: forwarding from CONTAINED has to apply them.
    A self-overlapping write can be MUST_ALIAS too; its last element in row-major order wins, as `index_map` says.
    """
    if read.start >= write.stop or write.start >= read.stop or not (read.numel and write.numel):
        return Overlap.NO_ALIAS
    return _exact_overlap(read, write, max_work)


def index_map(read: Footprint, write: Footprint) -> Offsets | None:
    """For each element of `read`, in row-major order, the row-major index of the element of `write` that holds it.

    Where several do, it is the last in row-major order: what the last write leaves. None unless `overlap` is MUST_ALIAS
    or CONTAINED (exact: no work limit). O(ndim * read.numel); sorts the write if its strides don't nest.
    """
    inside = write.start <= read.start and read.stop <= write.stop
    if not (inside and read.numel and read.dtype == write.dtype):
        return None
    found = _last_position(write, read.offsets())
    return None if bool((found < 0).any()) else found


def common_element(a: Footprint, b: Footprint, max_work: int = MAX_WORK) -> CommonElement | None:
    """The first element of `a` in row-major order that meets `b`, and the first element of `b` that it meets.

    None if no byte is common, or if none was found because a question went past `max_work`. O(log numel) questions.
    """
    if _shares(a, b, max_work) is False:
        return None
    index_a, one_a = _locate(a, b, max_work)
    index_b, one_b = _locate(b, one_a, max_work)
    if one_a.start >= one_b.stop or one_b.start >= one_a.stop:
        return None
    return CommonElement(max(one_a.start, one_b.start), index_a, index_b)


def write_kind(write: Footprint, reads: Iterable[Footprint], max_work: int = MAX_WORK) -> WriteKind:
    """The label of an elementwise call that writes `write` and reads `reads`, each broadcast to the write's shape.

    An element may read what it writes itself (`x.add_(x)`, `x[0].add_(x[:, 0])`), but not what another one writes. An
    operand that doesn't broadcast has no positions, so any overlap counts. Exact up to `max_work` and
    LISTED_BY_WRITE_KIND; past them the label is never DEFINED.
    """
    if write.self_overlaps:
        return WriteKind.SELF_OVERLAPPING
    if any(_reads_ahead(read, write, max_work) for read in reads):
        return WriteKind.ORDER_DEPENDENT
    return WriteKind.DEFINED


@lru_cache(maxsize=CACHED)
def _exact_overlap(read: Footprint, write: Footprint, max_work: int) -> Overlap:
    if read.dtype == write.dtype:
        if _same_elements(read, write) and (read.conj, read.neg) == (write.conj, write.neg):
            return Overlap.MUST_ALIAS
        if _contains(write, read, max_work):
            return Overlap.CONTAINED
    # A value of another dtype is not the bytes' value: it can't be forwarded, whatever it covers.
    return Overlap.NO_ALIAS if _shares(read, write, max_work) is False else Overlap.PARTIAL


def _same_elements(a: Footprint, b: Footprint) -> bool:
    return a.offset == b.offset and _walk(a) == _walk(b)


def _walk(footprint: Footprint) -> tuple[tuple[int, int], ...]:
    """(size, stride) of the fewest nested loops that visit the addresses in row-major order.

    Unique: the innermost loop is the longest arithmetic progression at the start, and so on outwards. So two walks are
    equal exactly if their address sequences are, up to the offset. Defined for non-empty footprints.
    """
    loops: list[tuple[int, int]] = []
    for size, stride in zip(footprint.shape, footprint.strides, strict=True):
        if size == 1:
            continue
        if loops and loops[-1][1] == size * stride:
            loops[-1] = (loops[-1][0] * size, stride)
        else:
            loops.append((size, stride))
    return tuple(loops)


@lru_cache(maxsize=CACHED)
def _normal_form(footprint: Footprint) -> Footprint:
    """The same non-empty set of addresses with fewer dimensions, strides descending, in no particular order.

    A stride that is a multiple of a smaller one and steps no further than its run only makes that run longer.
    """
    loops: list[tuple[int, int]] = []
    for stride, size in sorted(zip(footprint.strides, footprint.shape, strict=True)):
        if size == 1 or stride == 0:
            continue
        steps, rest = divmod(stride, loops[-1][0]) if loops else (0, 1)
        if rest == 0 and steps <= loops[-1][1]:
            loops[-1] = (loops[-1][0], loops[-1][1] + steps * (size - 1))
        else:
            loops.append((stride, size))
    loops.reverse()
    return footprint.moved(tuple([n for _, n in loops]), tuple([s for s, _ in loops]), footprint.offset)


@lru_cache(maxsize=CACHED)
def _gaps(footprint: Footprint) -> tuple[Footprint, ...] | None:
    """What the bounds of a footprint hold beside it, as footprints; None if its normal form's strides don't nest.

    With nested strides every offset has one mixed-radix expansion, largest stride first. It is outside exactly if at
    some level the remainder passes everything below and falls short of the next step, which is a strided set.
    """
    normal = _normal_form(footprint)
    below = sum((n - 1) * s for n, s in zip(normal.shape, normal.strides, strict=True))
    gaps = []
    for i, (size, stride) in enumerate(zip(normal.shape, normal.strides, strict=True)):
        below -= (size - 1) * stride
        if stride <= below:
            return None
        if stride > below + 1:
            shape = (*normal.shape[:i], size - 1, stride - below - 1)
            strides = (*normal.strides[: i + 1], 1)
            gaps.append(normal.moved(shape, strides, normal.offset + below + 1))
    return tuple(gaps)


def _contains(outer: Footprint, inner: Footprint, max_work: int) -> bool:
    """Whether each element of `inner` is an element of `outer` (same dtype, neither empty). False past the limits."""
    if inner.start < outer.start or inner.stop > outer.stop:
        return False
    gaps = _gaps(outer)
    meets: list[bool | None] = [None] if gaps is None else [_shares(inner, gap, max_work) for gap in gaps]
    if None in meets and _listable(LISTED, inner, outer):
        return index_map(inner, outer) is not None
    return all(meet is False for meet in meets)


def _in_units(footprint: Footprint, unit: int) -> Footprint:
    """The same bytes as elements of `unit` bytes (a divisor of the itemsize), in the same order."""
    ratio = footprint.itemsize // unit
    if ratio == 1:
        return footprint
    shape = (*footprint.shape, ratio)
    strides = (*(s * ratio for s in footprint.strides), 1)
    return Footprint(unit, shape, strides, footprint.offset * ratio, footprint.dtype)


class _Fake:
    """What NumPy takes for an array over memory that doesn't exist. Nothing may ever read or print that array."""

    __slots__ = ("__array_interface__",)

    def __init__(self, start: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        data = (_BASE + start, True)
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": shape, "strides": strides, "data": data}


@lru_cache(maxsize=CACHED)
def _array(footprint: Footprint, unit: int) -> npt.NDArray[np.uint8]:
    """An array for NumPy's solver with one byte for each `unit` bytes: fewer terms, smaller numbers."""
    normal = _normal_form(_in_units(footprint, unit))
    return np.asarray(_Fake(normal.offset, normal.shape, normal.strides))


def _shares(a: Footprint, b: Footprint, max_work: int) -> bool | None:
    """Whether a byte is common; None if the solver gave up and the sets are too large to list."""
    if a.start >= b.stop or b.start >= a.stop or not (a.numel and b.numel):
        return False
    unit = math.gcd(a.itemsize, b.itemsize)
    try:
        return bool(_solve(_array(a, unit), _array(b, unit), max_work=max_work))
    except (np.exceptions.TooHardError, OverflowError):  # OverflowError: its integers have 64 bits
        a, b = _in_units(a, unit), _in_units(b, unit)
        return bool((_last_position(a, b.offsets()) >= 0).any()) if _listable(LISTED, a, b) else None


def _listable(limit: int, *footprints: Footprint) -> bool:
    return max(footprint.numel for footprint in footprints) <= limit


@lru_cache(maxsize=CACHED)
def _self_overlaps(footprint: Footprint) -> bool:
    if footprint.numel == 0 or _nests(footprint):
        return False
    normal = _normal_form(footprint)
    if normal.numel < footprint.numel:  # a stride of 0, or runs that overlapped when they were joined
        return True
    if _gaps(footprint) is not None:
        return False
    return any(_meets_itself_first_in(normal, dim) for dim in range(len(normal.shape)))


def _nests(footprint: Footprint) -> bool:
    """Whether each stride passes all that the smaller ones reach, so that no two elements meet."""
    below = 0
    for stride, size in sorted(zip(footprint.strides, footprint.shape, strict=True)):
        if size != 1:
            if stride <= below:
                return False
            below += (size - 1) * stride
    return True


def _meets_itself_first_in(footprint: Footprint, dim: int) -> bool:
    """Whether index tuples that are equal before `dim` and differ in it share memory. True past MAX_WORK."""
    inner = footprint.moved(footprint.shape[dim:], footprint.strides[dim:], footprint.offset)
    rest = _narrow(inner, 0, 1, inner.shape[0])
    return _shares(_narrow(inner, 0, 0, 1), rest, MAX_WORK) is not False


def _narrow(footprint: Footprint, dim: int, low: int, high: int) -> Footprint:
    shape = (*footprint.shape[:dim], high - low, *footprint.shape[dim + 1 :])
    return footprint.moved(shape, footprint.strides, footprint.offset + low * footprint.strides[dim])


def _locate(a: Footprint, b: Footprint, max_work: int) -> tuple[tuple[int, ...], Footprint]:
    """The first index of `a` that meets `b`, and `a` narrowed to it. Takes for granted that there is one."""
    index = []
    for dim, size in enumerate(a.shape):
        low, high = 0, size
        while high - low > 1:
            middle = (low + high) // 2
            if _shares(_narrow(a, dim, low, middle), b, max_work):
                high = middle
            else:
                low = middle
        a = _narrow(a, dim, low, low + 1)
        index.append(low)
    return tuple(index), a


def _last_position(footprint: Footprint, wanted: Offsets) -> Offsets:
    """Row-major index of the last element that lies at each wanted offset (in elements); -1 where none does."""
    loops = _nested_loops(footprint.shape, footprint.strides)
    if loops is None:
        offsets = footprint.offsets()
        order = np.argsort(offsets, kind="stable")  # stable: equal offsets stay in row-major order, the last is last
        offsets = offsets[order]
        nearest = np.searchsorted(offsets, wanted, side="right") - 1
        return np.where(offsets[nearest] == wanted, order[nearest], -1)
    rest, position = wanted - footprint.offset, np.zeros_like(wanted)
    inside = rest >= 0
    for stride, size, weight in loops:
        digit, rest = np.divmod(rest, stride)
        inside &= digit < size
        position += digit * weight
    return np.where(inside & (rest == 0), position, -1)


def _nested_loops(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int, int]] | None:
    """(stride, size, row-major weight), largest stride first; None if some stride is within reach of those below."""
    weights = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    loops = sorted(loop for loop in zip(strides, shape, weights, strict=True) if loop[1] != 1)
    below = 0
    for stride, size, _ in loops:
        if stride <= below:
            return None
        below += (size - 1) * stride
    return loops[::-1]


def _reads_ahead(read: Footprint, write: Footprint, max_work: int) -> bool:
    """Whether an element of `read` lies where another position of `write` is written. True past the limits."""
    if _shares(read, write, max_work) is False:
        return False
    read_at = read.broadcast_to(write.shape)
    if read_at is None:
        return True
    if read.itemsize == write.itemsize and _same_positions(read_at, write):
        return False
    unit = math.gcd(read.itemsize, write.itemsize)
    read_units, write_units = _in_units(read_at, unit), _in_units(write, unit)
    if not _listable(LISTED_BY_WRITE_KIND, read_units, write_units):
        return True
    writer = _last_position(write_units, read_units.offsets()) // (write.itemsize // unit)
    reader = np.arange(read_units.numel) // (read.itemsize // unit)
    return bool(((writer >= 0) & (writer != reader)).any())


def _same_positions(a: Footprint, b: Footprint) -> bool:
    """Whether footprints of one shape and itemsize put each index at the same address."""
    pairs = zip(a.shape, a.strides, b.strides, strict=True)
    return a.offset == b.offset and all(n == 1 or s == t for n, s, t in pairs)
