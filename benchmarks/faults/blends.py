"""Faults in blends, which compute a read that several writes reach by selecting elements."""

from __future__ import annotations

from typing import Any

from benchmarks.faults.base import Fault
from executor.builder import Builder
from executor.memory_ssa import MemorySSA, Reach
from executor.passes import blend
from executor.passes.blend import Blend, Layer, Walks
from executor.program import Call, Source, Value, contiguous_strides

_plan_blend, _window, _walks_in_read, _load = blend.plan_blend, blend._window, blend._walks_in_read, blend._load


def _oldest_on_top(memory: MemorySSA, read: int, reach: list[Reach]) -> Blend | None:
    plan = _plan_blend(memory, read, reach)
    if plan is None or len(plan.layers) != len(plan.walks):
        return plan
    return plan._replace(layers=plan.layers[::-1], walks=plan.walks[::-1])


def _gapless(read: Value, layers: list[Layer]) -> tuple[Value, Walks]:
    frame, walks = _window(read, layers)
    shapes = [layer.target.shape for layer in layers]
    return frame, tuple((at, contiguous_strides(shape)) for (at, _), shape in zip(walks, shapes, strict=True))


def _at_the_start(read: Value, layers: list[Layer], *, covered: bool) -> Walks | None:
    walks = _walks_in_read(read, layers, covered=covered)
    return tuple((0, strides) for _, strides in walks) if walks is not None else None


def _at_entry(builder: Builder, plan: Blend, source: Source | None, before: dict[int, list[Call]]) -> int:
    is_input = plan.base in builder.program.inputs
    return _load(builder, plan._replace(first=0) if is_input else plan, source, before)


def _unchanged(_: Any, value: int, *__: Any) -> int:
    return value


FAULTS: dict[str, Fault] = {
    "oldest layer of a blend on top": Fault(
        "Where writes overlap, the oldest of those that a read sees wins.",
        ((blend, "plan_blend", _oldest_on_top),),
        "blend",
    ),
    "nothing below a blend": Fault(
        "Writes that cover a read in part are taken to cover it together: the rest is zero.",
        ((blend, "_together", lambda *_: True),),
        "blend",
    ),
    "gaps of a layer closed": Fault(
        "In a blend, a write goes to as many elements in a row, whatever its strides.",
        ((blend, "_window", _gapless),),
        "blend",
    ),
    "offset of a layer ignored": Fault(
        "In a blend, a write within the read goes to the read's first elements.",
        ((blend, "_walks_in_read", _at_the_start),),
        "blend",
    ),
    "memory under a blend read at entry": Fault(
        "What lies below the writes of a blend is what the program was called with, not what calls in eager left since.",
        ((blend, "_load", _at_entry),),
        "blend",
    ),
    "conjugation lost in a blend": Fault(
        "A blend puts stored values together as they are, though its read or a write is conjugated or negated.",
        ((blend, "_lazy", _unchanged),),
        "blend",
    ),
}
