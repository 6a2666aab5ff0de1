"""Pointwise statements, in place and out of place.

An operator is offered only where its results stay exact (`Scope`), and a second operand is drawn among the values that
broadcast, cast and overlap as the operator allows.
"""

from __future__ import annotations

from strategies.draws import Draw, choice, either_end
from strategies.dtypes import EXACT, TRUTH, Range, cast, symmetric
from strategies.fitting import COPY, Pointwise, Ranged, Table, fitting, inplace_name, partners, pure_name
from strategies.scope import Operand, Scope

_ZERO = Range(0, 0)


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


OPERATORS = Table(
    (
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
)
MORE_OPERATORS = Table(
    (
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
)


def draw_write(draw: Draw, scope: Scope, target: int, operators: Table = OPERATORS) -> list[int]:
    """An in-place statement on the target. Returns the values that it defines: none but the one written."""
    fits = fitting(scope, target, operators, inplace_name)
    return _emit(draw, scope, choice(draw, fits), target, in_place=True) if fits else [target]


def draw_pure(draw: Draw, scope: Scope, operators: Table = OPERATORS, operand: int | None = None) -> list[int]:
    """An out-of-place pointwise statement, on this first operand if one is given. Returns the value that it defines."""
    if operand is None:
        operand = either_end(draw, scope.operands())
    fits = fitting(scope, operand, operators, pure_name)
    return _emit(draw, scope, choice(draw, fits), operand, in_place=False) if fits else [operand]


def draw_out(draw: Draw, scope: Scope, target: int) -> list[int]:
    """An `out=` statement that writes the target, from an operand of its shape. Returns the value written."""
    tensor = scope.tensor(target)
    limit = EXACT[tensor.dtype]
    rows = [
        (op, i)
        for i in scope.alike(tensor.shape, tensor.dtype)
        if scope.may_read(target, i)
        for op in fitting(scope, i, OUTS, out_name)
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


OUTS = Table((OPERATORS[1], OPERATORS[4], OPERATORS[7], OPERATORS[8], MORE_OPERATORS[1]))


def out_name(op: Pointwise) -> str:
    """The overload that writes to `out=` what the operator computes."""
    return op.pure.rsplit(".", 1)[0] + ".out"


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
    operands = partners(scope, op, first, in_place=in_place)
    if not operands:  # nothing fits, not even the value itself: a statement that always does
        name = "aten.zero_.default" if in_place else "aten.zeros_like.default"
        return scope.emit(name, tensor, range=Range(0, 0))
    second = either_end(draw, operands)
    args: list[Operand] = [tensor, scope.tensor(second)]
    other = scope.range(second)
    if name == COPY:
        other = cast(other, scope.tensor(second).dtype, tensor.dtype) or other
    return scope.emit(name, *args, range=op.range(own, other), **dict(op.keywords))
