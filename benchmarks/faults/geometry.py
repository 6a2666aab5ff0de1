"""Faults in where tensors lie, and in how two of them overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.faults.base import Fault, Patches
from executor import geometry, memory_ssa
from executor.geometry import Footprint, Overlap
from executor.program import Value, contiguous_strides

_footprint, _overlap = memory_ssa.footprint, geometry.overlap


def _everywhere(changed: Callable[[Footprint], Footprint]) -> Patches:
    def footprint(value: Value) -> Footprint:
        return changed(_footprint(value))

    return ((memory_ssa, "footprint", footprint),)


def _without_partial(read: Footprint, write: Footprint) -> Overlap:
    found = _overlap(read, write)
    return Overlap.NO_ALIAS if found is Overlap.PARTIAL else found


def _without_last(read: Footprint, write: Footprint) -> Overlap:
    last = min(read.stop, write.stop) - max(read.start, write.start) <= read.itemsize
    return Overlap.NO_ALIAS if last and read.numel > 1 and write.numel > 1 else _overlap(read, write)


def _within_bounds(outer: Footprint, inner: Footprint, _: int) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _same_set(a: Footprint, b: Footprint) -> bool:
    return a.offset == b.offset and geometry._normal_form(a) == geometry._normal_form(b)


# Without the answers that were right.
_UNCACHED: Patches = ((geometry, "_exact_overlap", geometry._exact_overlap.__wrapped__),)

FAULTS: dict[str, Fault] = {
    "storage offset ignored": Fault(
        "Every tensor is taken to begin where its storage does.",
        _everywhere(lambda found: replace(found, offset=0)),
    ),
    "strides ignored": Fault(
        "Every tensor is taken to be contiguous.",
        _everywhere(lambda found: replace(found, strides=contiguous_strides(found.shape))),
    ),
    "partial overlap taken for none": Fault(
        "Two tensors alias if one contains the other, and else not.",
        ((memory_ssa, "overlap", _without_partial),),
    ),
    "dtype size ignored": Fault(
        "Elements are counted where bytes should be: a view of another dtype lies elsewhere.",
        ((Footprint, "bounds", property(lambda f: (f.start // f.itemsize, f.stop // f.itemsize))),),
    ),
    "bounds taken for containment": Fault(
        "What lies within the bounds of a write is taken to be written, gaps between its elements too.",
        ((geometry, "_contains", _within_bounds), *_UNCACHED),
    ),
    "same elements taken for the same order": Fault(
        "Two tensors that hold the same elements are taken for reshapes of each other, transposed or not.",
        ((geometry, "_same_elements", _same_set), *_UNCACHED),
    ),
    "overlap by one element missed": Fault(
        "An end that is exclusive is taken for an inclusive one: two tensors that share only their last element don't meet.",
        ((memory_ssa, "overlap", _without_last),),
    ),
}
