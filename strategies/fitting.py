"""Which pointwise operators fit a first operand, and which values may stand beside it, so that results stay exact."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch

from strategies.dtypes import EXACT, TRUTH, Range, cast, kind
from strategies.scope import Scope
from strategies.views import LARGEST

Ranged = Callable[[Range, Range], Range]
COPY = "aten.copy_.default"
_ZERO, _ONE = Range(0, 0), Range(1, 1)


class Pointwise(NamedTuple):
    """A pointwise operator: the overload's names in place and out of place ("" where there is none).

    `kinds` are those of the dtypes that it takes (`dtypes.kind`). `range` says where results lie, from the ranges of the
    operands (or of the one and the scalar). `scalars` are what its second argument may be if that is a number. `truth`
    means that the results are truth values: out of place their dtype is bool. `keywords` are its keyword arguments.
    `moves` means that it fits a first operand whatever its elements are, since none is computed with.
    """

    inplace: str
    pure: str
    kinds: str
    range: Ranged
    scalars: tuple[int, ...] = ()
    binary: bool = False
    truth: bool = False
    keywords: tuple[tuple[str, int | str], ...] = ()
    moves: bool = False


class Table(tuple[Pointwise, ...]):
    """Operators to choose from. It equals itself alone, so that it is cheap to remember which of them fit what."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def inplace_name(op: Pointwise) -> str:
    """The overload that writes its first operand; empty if there is none."""
    return op.inplace


def pure_name(op: Pointwise) -> str:
    """The overload that gives a new tensor; empty if there is none."""
    return op.pure


def fitting(scope: Scope, operand: int, table: Table, named: Callable[[Pointwise], str]) -> tuple[Pointwise, ...]:
    """The operators, under these names, of which some second operand leaves results exact on this first one."""
    truths = torch.bool in scope.dtypes
    return _fits(
        table, named, scope.limits.banned_ops, scope.tensor(operand).dtype, scope.range(operand), truths=truths
    )


@lru_cache(maxsize=1 << 14)
def _fits(
    table: Table,
    named: Callable[[Pointwise], str],
    banned: frozenset[str],
    dtype: torch.dtype,
    own: Range,
    *,
    truths: bool,
) -> tuple[Pointwise, ...]:
    """What `fitting` gives for a first operand of this dtype in this range; `truths`: results may be truth values."""
    letter, limit, pure = kind(dtype), EXACT[dtype], named is pure_name
    exact = own.within(limit)
    return tuple(
        op
        for op in table
        if letter in op.kinds
        and named(op) not in banned | {""}
        and (truths or not (op.truth and pure))
        and (op.moves or (exact and _stays(op, own, TRUTH if op.truth and pure else limit)))
    )


def _stays(op: Pointwise, own: Range, limit: Range) -> bool:
    """Whether some result of the operator is within the limit."""
    if op.scalars:
        return any(op.range(own, Range(k, k)).within(limit) for k in op.scalars)
    return any(op.range(own, second).within(limit) for second in ((_ZERO, _ONE) if op.binary else (own,)))


def partners(scope: Scope, op: Pointwise, first: int, *, in_place: bool) -> list[int]:
    """The values that can be the operator's second operand beside `first`."""
    a, own = scope.tensor(first), scope.range(first)
    shape, dtype, dims = a.shape, a.dtype, a.ndim > 0
    copied = in_place and op.inplace == COPY
    found = []
    for i in range(scope.count):
        b = scope.tensor(i)
        if not (_expands(b.shape, shape) if in_place else _broadcast_numel(shape, b.shape) is not None):
            continue
        if copied:
            fits = cast(scope.range(i), b.dtype, dtype) is not None
        else:
            types = _promoted(dtype, b.dtype, dims, b.ndim > 0)
            fits = kind(b.dtype) in op.kinds and scope.exact(i) and _exact(scope, op, own, i, types, in_place=in_place)
        if fits and (not in_place or scope.may_read(first, i)):
            found.append(i)
    return found


class _Types(NamedTuple):
    """The dtype of an operand, and those that two rules of promotion give with another: by dtypes, and by dimensions too."""

    own: torch.dtype
    result: torch.dtype
    scalar: torch.dtype


@lru_cache(maxsize=1024)
def _promoted(a: torch.dtype, b: torch.dtype, dims_a: bool, dims_b: bool) -> _Types:  # noqa: FBT001
    one, other = (torch.empty((1,) if dims else (), dtype=dtype) for dtype, dims in ((a, dims_a), (b, dims_b)))
    return _Types(a, torch.promote_types(a, b), torch.result_type(one, other))


def _exact(scope: Scope, op: Pointwise, own: Range, second: int, types: _Types, *, in_place: bool) -> bool:
    """Whether the result has a dtype that is taken, and holds the operator's results exactly."""
    if in_place:
        if not torch.can_cast(types.result, types.own):
            return False
        exact = EXACT[types.own]
    else:
        if types.result not in scope.dtypes or types.scalar not in scope.dtypes:
            return False
        exact = _both(types.result, types.scalar)
    other = scope.range(second)
    if not other.within(exact) or not own.within(exact):
        return False
    return op.range(own, other).within(TRUTH if op.truth and not in_place else exact)


def _both(result: torch.dtype, scalar: torch.dtype) -> Range:
    """What is exact in the dtype of the result, whichever of two rules of promotion gives it."""
    a, b = EXACT[result], EXACT[scalar]
    return Range(max(a.low, b.low), min(a.high, b.high))


def _expands(shape: torch.Size, target: torch.Size) -> bool:
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def _broadcast_numel(a: torch.Size, b: torch.Size) -> int | None:
    """Elements of the broadcast of two shapes; None if they don't broadcast, or to more than a program should hold."""
    count = 1
    for i in range(1, max(len(a), len(b)) + 1):
        n = a[-i] if i <= len(a) else 1
        m = b[-i] if i <= len(b) else 1
        if n != m and 1 not in (n, m):
            return None
        count *= m if n == 1 else n
    return count if count <= LARGEST else None
