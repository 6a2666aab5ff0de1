"""Pointwise statements, in place and out of place.

An operator is offered only where its results stay exact (`Scope`), and a second operand is drawn among the values that
broadcast, cast and overlap as the operator allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from strategies.draws import Draw, choice
from strategies.dtypes import EXACT, TRUTH, Range, cast, kind, symmetric
from strategies.scope import Operand, Scope
from strategies.views import LARGEST

Ranged = Callable[[Range, Range], Range]
_ZERO, _ONE = Range(0, 0), Range(1, 1)
COPY = "aten.copy_.default"


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


def _sum(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high)


def _sum_with_twice(a: Range, b: Range) -> Range:
    return Range(a.low + 2 * b.low, a.high + 2 * b.high)


def _difference(a: Range, b: Range) -> Range:
    return Range(a.low - b.high, a.high - b.low)


def _product(a: Range, b: Range) -> Range:
    corners = (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
    return Range(min(corners), max(corners))


def _complex_or(real: Ranged) -> Ranged:
    """For products: complex parts are sums of two of them. Twice the product is a bound for real ones too."""

    def ranged(a: Range, b: Range) -> Range:
        found = real(a, b)
        return found if a.low >= 0 and b.low >= 0 else symmetric(2 * found.magnitude)

    return ranged


def _negated(a: Range, _: Range) -> Range:
    return Range(-a.high, -a.low)


def _same(a: Range, _: Range) -> Range:
    return a


def _other(_: Range, b: Range) -> Range:
    return b


def _truth(_: Range, __: Range) -> Range:
    return TRUTH


def _bits(a: Range, b: Range) -> Range:
    top = 2.0 ** int(max(a.magnitude, b.magnitude)).bit_length() - 1
    return Range(0, top) if a.low >= 0 and b.low >= 0 else Range(-top - 1, top)


def _positive(a: Range, _: Range) -> Range:
    return Range(max(a.low, 0), max(a.high, 0))


def _absolute(a: Range, _: Range) -> Range:
    return Range(0, a.magnitude)


def _op(name: str, kinds: str, ranged: Ranged, *scalars: int, overload: str = "default") -> Pointwise:
    return Pointwise(f"aten.{name}_.{overload}", f"aten.{name}.{overload}", kinds, ranged, scalars)


def _binary(name: str, kinds: str, ranged: Ranged) -> Pointwise:
    return Pointwise(f"aten.{name}_.Tensor", f"aten.{name}.Tensor", kinds, ranged, binary=True)


OPERATORS: tuple[Pointwise, ...] = (
    _op("add", "uifc", _sum, 1, 2, -3, overload="Tensor"),
    _binary("add", "buifc", _sum),
    _op("mul", "uifc", _complex_or(_product), 2, -1, 3, overload="Tensor"),
    Pointwise(COPY, "aten.clone.default", "buifc", _other, binary=True, moves=True),
    _op("neg", "if", _negated),  # the negative of a complex 0 has the sign that eager's loop gives it
    Pointwise("aten.fill_.Scalar", "", "buifc", _other, (0, 1, 7), moves=True),
    Pointwise("aten.zero_.default", "aten.zeros_like.default", "buifc", lambda a, b: _ZERO, moves=True),
    _binary("mul", "buifc", _complex_or(_product)),
    _binary("sub", "uifc", _difference),
    Pointwise(COPY, "", "buifc", _other, binary=True, moves=True),
)
MORE_OPERATORS: tuple[Pointwise, ...] = (
    _op("relu", "uif", _positive),
    _op("abs", "uif", _absolute),
    _op("sign", "uif", lambda a, b: Range(-1, 1)),
    _op("square", "uifc", lambda a, b: symmetric(2 * a.magnitude**2) if a.low < 0 else Range(0, a.high**2)),
    _op("clamp", "uif", lambda a, b: Range(max(a.low, b.low), max(a.high, b.high)), 0, 2),
    _op("round", "f", _same),
    _op("remainder", "if", lambda a, b: Range(0, b.high - 1), 3, 2, overload="Scalar"),
    _op("bitwise_not", "b", _truth),
    _op("bitwise_not", "i", lambda a, b: Range(-a.high - 1, -a.low - 1)),
    _op("logical_not", "buif", _truth)._replace(truth=True),
    _op("gt", "uif", _truth, 2, 0, overload="Scalar")._replace(truth=True),
    _binary("eq", "buif", _truth)._replace(truth=True),
    _binary("bitwise_and", "bui", _bits),
    _binary("bitwise_xor", "bui", _bits),
    _binary("logical_or", "buif", _truth)._replace(
        inplace="aten.logical_or_.default", pure="aten.logical_or.default", truth=True
    ),
    Pointwise(
        "", "aten.maximum.default", "buif", lambda a, b: Range(max(a.low, b.low), max(a.high, b.high)), binary=True
    ),
    Pointwise(
        "", "aten.minimum.default", "buif", lambda a, b: Range(min(a.low, b.low), min(a.high, b.high)), binary=True
    ),
    _op("conj_physical", "c", _same),
    _binary("add", "uifc", _sum_with_twice)._replace(keywords=(("alpha", 2),)),
)


def draw_write(draw: Draw, scope: Scope, target: int, operators: tuple[Pointwise, ...] = OPERATORS) -> list[int]:
    """An in-place statement on the target. Returns the values that it defines: none but the one written."""
    fits = _fitting(scope, target, [op for op in operators if op.inplace and scope.takes(op.inplace)])
    return _emit(draw, scope, choice(draw, fits), target, in_place=True) if fits else [target]


def draw_pure(
    draw: Draw, scope: Scope, operators: tuple[Pointwise, ...] = OPERATORS, operand: int | None = None
) -> list[int]:
    """An out-of-place pointwise statement, on this first operand if one is given. Returns the value that it defines."""
    if operand is None:
        operand = choice(draw, scope.operands())
    taken = [op for op in operators if op.pure and scope.takes(op.pure, torch.bool if op.truth else None)]
    fits = _fitting(scope, operand, taken, pure=True)
    return _emit(draw, scope, choice(draw, fits), operand, in_place=False) if fits else [operand]


def draw_out(draw: Draw, scope: Scope, target: int) -> list[int]:
    """An `out=` statement that writes the target, from an operand of its shape. Returns the value written."""
    tensor = scope.tensor(target)
    limit = EXACT[tensor.dtype]
    rows = [
        (op, i)
        for i in scope.alike(tensor.shape, tensor.dtype)
        if scope.may_read(target, i)
        for op in _fitting(scope, i, [op for op in OUTS if scope.takes(out_name(op))])
    ]
    if not rows:
        return [target]
    op, first = choice(draw, rows)
    own, args = scope.range(first), [scope.tensor(first)]
    if op.binary:
        fits = [
            i for i in dict.fromkeys(i for _, i in rows)
            if scope.exact(i) and op.range(own, scope.range(i)).within(limit)
        ]  # fmt: skip
        if not fits:
            return [target]
        second = choice(draw, fits)
        args.append(scope.tensor(second))
        own = op.range(own, scope.range(second))
    else:
        own = op.range(own, own)
    return scope.emit(out_name(op), *args, range=own, out=tensor)


OUTS: tuple[Pointwise, ...] = (OPERATORS[1], OPERATORS[4], OPERATORS[7], OPERATORS[8], MORE_OPERATORS[1])


def out_name(op: Pointwise) -> str:
    """The overload that writes to `out=` what the operator computes."""
    return op.pure.rsplit(".", 1)[0] + ".out"


def _fitting(scope: Scope, operand: int, operators: Sequence[Pointwise], *, pure: bool = False) -> list[Pointwise]:
    """The operators of which some second operand leaves results exact on this first one."""
    dtype = scope.tensor(operand).dtype
    letter, own, limit = kind(dtype), scope.range(operand), EXACT[dtype]
    exact = own.within(limit)
    return [
        op
        for op in operators
        if letter in op.kinds and (op.moves or (exact and _stays(op, own, TRUTH if op.truth and pure else limit)))
    ]


def _stays(op: Pointwise, own: Range, limit: Range) -> bool:
    """Whether some result of the operator is within the limit."""
    if op.scalars:
        return any(op.range(own, Range(k, k)).within(limit) for k in op.scalars)
    return any(op.range(own, second).within(limit) for second in ((_ZERO, _ONE) if op.binary else (own,)))


def _emit(draw: Draw, scope: Scope, op: Pointwise, first: int, *, in_place: bool) -> list[int]:
    name = op.inplace if in_place else op.pure
    tensor, own = scope.tensor(first), scope.range(first)
    if name == "aten.clone.default":
        return scope.emit(name, tensor, range=own)
    if not (op.binary or op.scalars):
        return scope.emit(name, tensor, range=op.range(own, own), **dict(op.keywords))
    if op.scalars:
        limit = EXACT[tensor.dtype]
        number = choice(draw, [k for k in op.scalars if op.range(own, Range(k, k)).within(limit)])
        return scope.emit(name, tensor, number, range=op.range(own, Range(number, number)), **dict(op.keywords))
    operands = [i for i in range(scope.count) if _joins(scope, op, first, i, in_place=in_place)]
    if not operands:  # nothing fits, not even the value itself: a statement that always does
        name = "aten.zero_.default" if in_place else "aten.zeros_like.default"
        return scope.emit(name, tensor, range=Range(0, 0))
    second = choice(draw, operands)
    args: list[Operand] = [tensor, scope.tensor(second)]
    other = scope.range(second)
    if name == COPY:
        other = cast(other, scope.tensor(second).dtype, tensor.dtype) or other
    return scope.emit(name, *args, range=op.range(own, other), **dict(op.keywords))


def _joins(scope: Scope, op: Pointwise, first: int, second: int, *, in_place: bool) -> bool:
    """Whether `second` can be the operator's second operand beside `first`."""
    a, b = scope.tensor(first), scope.tensor(second)
    if in_place and not (_expands(b.shape, a.shape) and scope.may_read(first, second)):
        return False
    if in_place and op.inplace == COPY:
        return cast(scope.range(second), b.dtype, a.dtype) is not None
    result = torch.promote_types(a.dtype, b.dtype)
    if kind(b.dtype) not in op.kinds or not scope.exact(second) or (in_place and not torch.can_cast(result, a.dtype)):
        return False
    if not (in_place or (result in scope.dtypes and torch.result_type(a, b) in scope.dtypes)):
        return False
    exact = EXACT[a.dtype] if in_place else _both(result, torch.result_type(a, b))
    if not scope.range(second).within(exact) or not scope.range(first).within(exact):
        return False
    if not op.range(scope.range(first), scope.range(second)).within(TRUTH if op.truth and not in_place else exact):
        return False
    return in_place or _broadcast_numel(a.shape, b.shape) is not None


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
