"""Which values go from the forward program to the backward program: those with the fewest bytes.

The backward program needs what autograd kept. A value that was computed element by element can be computed anew there from
others, if these still are what they were. The least number of bytes from which all can be had is a minimum cut of the graph
of these computations (https://en.wikipedia.org/wiki/Max-flow_min-cut_theorem), each value an edge as wide as its bytes.

What the caller can write between the two programs is kept only where autograd keeps it: if the caller writes it, going
backward raises, for us as for autograd. Other values are computed anew from it only if there is no other way to go backward,
one that would not raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from executor.elements import elementwise
from executor.errors import TraceError
from executor.facts import access

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.autograd.joint import Joint


class Part(NamedTuple):
    """Numbers of forward calls that a backward program repeats, and the values that it takes from the forward program."""

    calls: tuple[int, ...]
    needed: tuple[int, ...]


def part(joint: Joint, wanted: Sequence[int], saved: frozenset[int] | None = None) -> Part:
    """How a backward program comes to these values: views are made again, and so is what was not saved, if that is given."""
    left, seen = list(wanted), set(wanted)
    calls: set[int] = set()
    needed: set[int] = set()
    while left:
        v = left.pop()
        maker = joint.maker(v)
        if maker is None or (v in saved if saved is not None else not joint.is_view(maker)):
            needed.add(v)
            continue
        if not (joint.is_view(maker) or _cheap(joint, v)):
            raise TraceError("the backward pass for some of the outputs needs what the one for all of them does not")
        calls.add(maker)
        for operand in joint.recorder.calls[maker].operands:
            if operand not in seen:
                seen.add(operand)
                left.append(operand)
    return Part(tuple(sorted(calls)), tuple(sorted(needed)))


def cut(joint: Joint, wanted: Sequence[int], visible: frozenset[int], *, only: bool) -> frozenset[int]:
    """The values to save, so that the backward program can have those that are `wanted`, none of which is a view.

    `visible` are the storages that the caller sees. `only`: there is no other way to go backward.
    """
    hidden = [v for v in wanted if joint.recorder.values[v].storage not in visible]
    if not any(_cheap(joint, v) for v in hidden):
        return frozenset(wanted)
    graph = _Graph(joint, wanted, visible, only=only)
    for v in hidden:
        graph.need(v)
    return graph.cheapest() | frozenset(v for v in wanted if v not in hidden)


def _cheap(joint: Joint, v: int) -> bool:
    """Whether a value was computed element by element."""
    maker = joint.maker(v)
    return maker is not None and elementwise(joint.recorder.calls[maker])


class _Graph:
    """From the backward program to the values that it can start from, each with its bytes."""

    def __init__(self, joint: Joint, wanted: Sequence[int], visible: frozenset[int], *, only: bool) -> None:
        import networkx as nx

        self._joint, self._visible, self._only = joint, visible, only
        self._kept = {joint.recorder.values[v].storage for v in wanted}
        self._written = {
            joint.recorder.values[v].storage
            for i in joint.forward
            for v in access(joint.recorder.values, joint.recorder.calls[i]).writes
        }
        self._seen: set[int] = set()
        self._graph: Any = nx.DiGraph()
        self._graph.add_node("forward")
        self._cut = nx.minimum_cut

    def need(self, v: int) -> None:
        """Adds a value without which the backward program cannot do."""
        self._add(v)
        self._graph.add_edge("backward", (v, "wanted"))

    def _add(self, v: int) -> None:
        if v in self._seen:
            return
        self._seen.add(v)
        self._graph.add_edge((v, "wanted"), (v, "made"), capacity=self._bytes(v))
        if not self._anew(v):
            self._graph.add_edge((v, "made"), "forward")
            return
        maker = self._joint.maker(v)
        assert maker is not None, "it is computed anew"
        for operand in self._joint.recorder.calls[maker].operands:
            self._add(operand)
            self._graph.add_edge((v, "made"), (operand, "wanted"))

    def _anew(self, v: int) -> bool:
        """Whether the value can be computed again from its operands, as they are when the function has returned."""
        maker, values = self._joint.maker(v), self._joint.recorder.values
        if maker is None or values[v].storage in self._written:
            return False
        operands = self._joint.recorder.calls[maker].operands
        return (_cheap(self._joint, v) or self._joint.is_view(maker)) and all(self._usable(w) for w in operands)

    def _usable(self, v: int) -> bool:
        """Whether the value is still there, and what it was, when the backward program runs."""
        storage = self._joint.recorder.values[v].storage
        if storage in self._written:
            return False
        return storage not in self._visible or (self._only and storage in self._kept)

    def _bytes(self, v: int) -> float:
        """What it costs to save a value. Of a view it is the value on whose memory it lies that is saved."""
        maker, storage = self._joint.maker(v), self._joint.recorder.values[v].storage
        if maker is not None and self._joint.is_view(maker):
            return float("inf")
        return 0 if storage in self._visible else self._joint.recorder.storages[storage].nbytes

    def cheapest(self) -> frozenset[int]:
        """The values of the cut next to the backward program, so that no more than necessary is computed anew."""
        _, (near, _) = self._cut(self._graph, "backward", "forward")
        return frozenset(v for v in self._seen if (v, "wanted") in near and (v, "made") not in near)
