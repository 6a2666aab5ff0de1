"""Writes to several tensors at once: the `_foreach` operators, over lists whose members may share a storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from strategies.draws import Draw, below, choice
from strategies.dtypes import EXACT, Range, kind, symmetric
from strategies.fitting import Pointwise, Ranged
from strategies.pointwise import OPERATORS
from strategies.scope import Scope


class ListWrite(NamedTuple):
    """One operator; `each` is what it does to each member, on `number` if that is not None.

    `arguments` gives its arguments after the list, from the sources that stand beside the members, and the number.
    """

    op: str
    each: Pointwise
    number: int | None
    arguments: Callable[[list[torch.Tensor], int | None], list[object]]


def _alone(name: str, each: Pointwise) -> ListWrite:
    return ListWrite(f"aten._foreach_{name}_.default", each, None, lambda sources, number: [])


def _with_sources(name: str, each: Pointwise, overload: str = "List") -> ListWrite:
    return ListWrite(f"aten._foreach_{name}_.{overload}", each, None, lambda sources, number: [sources])


def _with_number(name: str, each: Pointwise, number: int) -> list[ListWrite]:
    """With one number for all members, and with one for each."""
    op = f"aten._foreach_{name}_"
    return [
        ListWrite(f"{op}.Scalar", each, number, lambda sources, number: [number]),
        ListWrite(f"{op}.ScalarList", each, number, lambda sources, number: [[number] * len(sources)]),
    ]


def _with_both(name: str, each: Pointwise, lists: int) -> list[ListWrite]:
    """With so many lists of sources and the number 1 behind them, for all members or for each."""
    op = f"aten._foreach_{name}_"
    return [
        ListWrite(f"{op}.Scalar", each, None, lambda sources, _: [*[sources] * lists, 1]),
        ListWrite(f"{op}.ScalarList", each, None, lambda sources, _: [*[sources] * lists, [1] * len(sources)]),
    ]


def _each(kinds: str, ranged: Ranged, *, binary: bool = False) -> Pointwise:
    return Pointwise("", "", kinds, ranged, binary=binary)


def _with_square(a: Range, b: Range) -> Range:
    return symmetric(a.magnitude + 2 * b.magnitude**2)


_ADD, _PLUS, _MUL, _, _NEG = OPERATORS[:5]
_TIMES, _MINUS = OPERATORS[7:9]
_SAME = _each("f", lambda a, b: a)
_UPPER = _each("uif", lambda a, b: Range(max(a.low, b.low), max(a.high, b.high)), binary=True)
_LOWER = _each("uif", lambda a, b: Range(min(a.low, b.low), min(a.high, b.high)), binary=True)
WRITES: tuple[ListWrite, ...] = (
    *_with_number("add", _ADD, 1),
    _with_sources("add", _PLUS),
    *_with_number("mul", _MUL, 2),
    _alone("neg", _NEG),
    _alone("zero", OPERATORS[6]),
    _with_sources("copy", OPERATORS[9], "default"),
    _with_sources("sub", _MINUS),
    _with_sources("mul", _TIMES),
    *_with_number("sub", _each("uifc", lambda a, b: Range(a.low - b.high, a.high - b.low)), 2),
    *_with_both("addcmul", _each("if", _with_square, binary=True), 2),
    *_with_both("lerp", _each("f", lambda a, b: b, binary=True), 1),
    *(_alone(name, _SAME) for name in ("ceil", "floor", "round", "trunc")),
    _alone("frac", _each("f", lambda a, b: Range(0, 0))),
    _alone("abs", _each("if", lambda a, b: Range(0, a.magnitude))),
    _alone("sign", _each("if", lambda a, b: Range(-1, 1))),
    *_with_number("pow", _each("if", lambda a, b: Range(0, a.magnitude**2)), 2),
    *(
        row
        for name in ("maximum", "clamp_min")
        for row in (_with_sources(name, _UPPER), *_with_number(name, _UPPER, 2))
    ),
    *(
        row
        for name in ("minimum", "clamp_max")
        for row in (_with_sources(name, _LOWER), *_with_number(name, _LOWER, 2))
    ),
)


def draw_lists(draw: Draw, scope: Scope, targets: list[int]) -> list[int]:
    """A write to one to three targets that lie apart, so that their order means nothing. Returns the values written."""
    write = choice(draw, WRITES)
    members: list[int] = []
    sources: list[int] = []
    ranges: list[Range] = []
    for _ in range(1 + below(draw, 3)):
        fits = [(t, s) for t in targets for s in _sources(scope, write, t)
                if _free(scope, t, s, members, sources)]  # fmt: skip
        if fits:
            member, source = choice(draw, fits[:60])
            members.append(member)
            sources.append(source)
            other = Range(write.number, write.number) if write.number is not None else scope.range(source)
            ranges.append(write.each.range(scope.range(member), other))
    if not members or not scope.takes(write.op):
        return targets[:1]
    beside = [scope.tensor(i) for i in sources]
    scope.emit(write.op, [scope.tensor(i) for i in members], *write.arguments(beside, write.number))
    for member, found in zip(members, ranges, strict=True):
        scope.note(member, found)
    return members


def _sources(scope: Scope, write: ListWrite, target: int) -> list[int]:
    """What may stand beside the target in the list of sources; the target itself for operators without one."""
    tensor, limit = scope.tensor(target), EXACT[scope.tensor(target).dtype]
    lazy = tensor.is_conj() or tensor.is_neg()  # which torch does not take in lists that are written
    if lazy or not scope.exact(target) or kind(tensor.dtype) not in write.each.kinds:
        return []
    if write.number is not None or not write.each.binary:
        number = Range(write.number or 0, write.number or 0)
        return [target] if write.each.range(scope.range(target), number).within(limit) else []
    return [
        i for i in scope.alike(tensor.shape, tensor.dtype)
        if scope.exact(i) and scope.may_read(target, i)
        and write.each.range(scope.range(target), scope.range(i)).within(limit)
    ]  # fmt: skip


def _free(scope: Scope, target: int, source: int, members: list[int], sources: list[int]) -> bool:
    """Whether the pair touches nothing that another pair writes, and writes nothing that another one reads."""
    return all(scope.apart(target, other) for other in (*members, *sources)) and all(
        scope.apart(member, source) for member in members
    )
