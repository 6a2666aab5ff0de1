"""Writes to several tensors at once: the `_foreach` operators, over lists whose members may share a storage."""

from __future__ import annotations

from typing import NamedTuple

from strategies.draws import Draw, below, choice
from strategies.dtypes import EXACT, Range, kind
from strategies.pointwise import OPERATORS, Pointwise
from strategies.scope import Scope


class ListWrite(NamedTuple):
    """One operator; `each` is what it does to each member, on `number` if that is not None."""

    op: str
    each: Pointwise
    number: int | None = None


_ADD, _PLUS, _MUL, _, _NEG = OPERATORS[:5]
WRITES: tuple[ListWrite, ...] = (
    ListWrite("aten._foreach_add_.Scalar", _ADD, 1),
    ListWrite("aten._foreach_add_.List", _PLUS),
    ListWrite("aten._foreach_mul_.Scalar", _MUL, 2),
    ListWrite("aten._foreach_neg_.default", _NEG),
    ListWrite("aten._foreach_zero_.default", OPERATORS[6]),
    ListWrite("aten._foreach_copy_.default", OPERATORS[9]),
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
    args: list[object] = [[scope.tensor(i) for i in members]]
    if write.number is not None:
        args.append(write.number)
    elif write.each.binary:
        args.append([scope.tensor(i) for i in sources])
    scope.emit(write.op, *args)
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
