"""Faults to plant in the pipeline, each a mistake that an alias analysis could make, by the part of it that is wrong."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.faults import blends, geometry, gradients, memory, patches, regions, running, stores, thunder, values
from benchmarks.faults.base import Fault, switched_on

__all__ = ["AREAS", "FAULTS", "TWELVE", "Fault", "switched_on"]

AREAS: Mapping[str, Mapping[str, Fault]] = {
    "Geometry": geometry.FAULTS,
    "Memory SSA": memory.FAULTS,
    "Values: out of place, forwarding, common subexpressions": values.FAULTS,
    "Blending": blends.FAULTS,
    "Patching and hoisting": patches.FAULTS,
    "Dead stores, write-back, coalescing": stores.FAULTS,
    "Partition, regions, early write-backs": regions.FAULTS,
    "Cache, liveness, outputs": running.FAULTS,
    "Gradients": gradients.FAULTS,
    "What Thunder's alias pass assumes": thunder.FAULTS,
}
FAULTS: Mapping[str, Fault] = {name: fault for area in AREAS.values() for name, fault in area.items()}

# The plainest ones, which are unlike each other: those that signatures are measured on.
TWELVE = (
    "storage offset ignored", "strides ignored", "partial overlap taken for none", "disjoint taken for identical",
    "a reaching write missed", "forwarding without the cast", "barrier dropped", "write-back forgotten",
    "write-back of a stale value", "alias returned as a copy", "cache key without the alias pattern",
    "dtype size ignored",
)  # fmt: skip
