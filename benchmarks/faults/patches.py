"""Faults in patches, which compute parts of a result alone, and in the hoisting of small parts."""

from __future__ import annotations

from benchmarks.faults.base import Fault
from executor.builder import Builder
from executor.passes import boxes, patch
from executor.passes.boxes import Box
from executor.passes.hoist import Boxed, _Hoisting
from executor.passes.overwritten import Seen
from executor.passes.patch import _Patching
from executor.program import Call, Source

_seen, _restricted, _part = _Patching._seen, boxes.restricted, _Hoisting._part


def _unpatched_results(self: _Patching, read: int) -> Seen | None:
    seen = _seen(self, read)
    return seen._replace(parts=()) if seen is not None and self.values[read].storage in self.patched else seen


def _from_the_start(builder: Builder, value: int, box: Box, source: Source | None) -> int:
    return _restricted(builder, value, box._replace(starts=(0,) * len(box.starts)), source)


class _Here(dict[int, list[Call]]):
    """Instead of what stands behind a call, what stands where one is."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def setdefault(self, key: int, default: list[Call]) -> list[Call]:
        del key, default
        return self.builder.calls


def _where_it_is_needed(self: _Hoisting, part: Boxed) -> int:
    self._behind = _Here(self.builder)
    return _part(self, part)


FAULTS: dict[str, Fault] = {
    "patch forgotten for a second reader": Fault(
        "What reads a patched result, after the call that was patched, gets it as it was before its patches.",
        ((_Patching, "_seen", _unpatched_results),),
    ),
    "other operand of a patch not restricted": Fault(
        "The part of an operand that goes with an overwritten part of another is taken from its first elements.",
        ((patch, "restricted", _from_the_start),),
    ),
    "a hoisted part read too late": Fault(
        "A part is computed from its operands where it is needed, though memory has changed since the whole was computed.",
        ((_Hoisting, "_part", _where_it_is_needed),),
    ),
}
