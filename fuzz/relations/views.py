"""Views that change nothing: one more, or one for many."""

from __future__ import annotations

import random
from collections.abc import Iterator

from executor.args import Arg, List, Ref, refs
from executor.program import Call, Program, Value
from executor.schema import accesses, effects
from fuzz.relations.base import Relation, recorded
from fuzz.rewriting import renamed

_LAST = 2**63 - 1  # where a slice without an end ends

Step = tuple[str, tuple[Arg, ...]]  # a view operator, and its arguments but the first


class NoopView(Relation):
    """One call takes, and writes, a view of the same elements instead of a tensor itself."""

    name = "noop-view"

    def places(self, program: Program) -> Iterator[tuple[int, int]]:
        """Positions of calls, each with a value that the call takes and does not return as it is."""
        for k, call in enumerate(program.calls):
            writes = accesses(program, call).writes
            yield from ((k, i) for i in dict.fromkeys(call.operands) if i in writes or i not in call.results)

    def at(self, program: Program, place: tuple[int, int], draw: random.Random) -> Program | None:
        """See `Relation.at`."""
        k, index = place
        steps = draw.choice(list(_noops(program.values[index])))
        first = len(program.values)
        views = [Call(op, (Ref(index if not n else first + n - 1), *args), (), (first + n,), program.calls[k].source)
                 for n, (op, args) in enumerate(steps)]  # fmt: skip
        last = first + len(steps) - 1
        used = renamed(program.calls[k], lambda i: Ref(last if i == index else i))
        calls = (*program.calls[:k], *views, used, *program.calls[k + 1 :])
        return recorded(program, calls, [program.values[index]] * len(steps))


def _noops(value: Value) -> Iterator[tuple[Step, ...]]:
    """Chains of views whose last one is laid out like the value."""
    shape, strides = List(value.shape), List(value.strides)
    yield (("aten.alias.default", ()),)
    yield (("aten.expand.default", (shape,)),)
    yield (("aten.as_strided.default", (shape, strides, value.offset)),)
    yield (("aten.unsqueeze.default", (0,)), ("aten.select.int", (0, 0)))
    if value.shape:
        yield (("aten.slice.Tensor", (0, 0, _LAST)),)
        yield (("aten.permute.default", (List(tuple(range(len(value.shape)))),)),)
        yield (("aten.transpose.int", (0, -1)),) * 2


class OneView(Relation):
    """A view, and the views that it is a view of, become one `as_strided` of the tensor behind them."""

    name = "one-as-strided"

    def places(self, program: Program) -> Iterator[int]:
        """Positions of calls that make views of the same dtype."""
        for k, call in enumerate(program.calls):
            if (chain := _chain(program, k)) and (call.op != "aten.as_strided.default" or len(chain) > 1):
                yield k

    def at(self, program: Program, place: int, draw: random.Random) -> Program | None:  # noqa: ARG002 - no choice is left
        """See `Relation.at`."""
        chain, call = _chain(program, place), program.calls[place]
        base = Ref(program.calls[chain[-1]].operands[0])
        made = [Call("aten.as_strided.default", (base, *_layout(program.values[i])), (), (i,), call.source)
                for i in call.results]  # fmt: skip
        kept = {k: [other] for k, other in enumerate(program.calls)} | {place: made}
        for link in chain[1:]:  # nobody's now, perhaps
            used = {i for calls in kept.values() for other in calls for i in other.operands}
            if used.isdisjoint(program.calls[link].results) and not _returns(program, program.calls[link]):
                del kept[link]
        return recorded(program, [other for calls in kept.values() for other in calls])


def _layout(value: Value) -> tuple[Arg, ...]:
    return List(value.shape), List(value.strides), value.offset


def _returns(program: Program, call: Call) -> bool:
    return not set(refs(program.outputs)).isdisjoint(call.results)


def _chain(program: Program, position: int) -> list[int]:
    """The positions of the call and of those that it is a view through, back to the first; empty if it is no such view.

    All of them read memory as numbers of one dtype.
    """
    makers = {i: k for k, call in enumerate(program.calls) for i in call.results if i not in call.operands}
    chain = list[int]()
    k: int | None = position
    while k is not None and _is_view(program, program.calls[k]):
        chain.append(k)
        k = makers.get(program.calls[k].operands[0])
    return chain


def _is_view(program: Program, call: Call) -> bool:
    """Whether all results are views of the first operand, and read its elements as the same numbers."""
    if not effects(call.op).views or not call.results or not set(call.results).isdisjoint(call.operands):
        return False
    return len({_kind(program.values[i]) for i in (call.operands[0], *call.results)}) == 1


def _kind(value: Value) -> tuple[int, str, bool, bool]:
    return value.storage, value.dtype, value.conj, value.neg
