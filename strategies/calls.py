"""Statements that move elements: in-place and out-of-place pointwise ops, copies, fills and reductions.

An operator is offered only where its results stay exact (`Scope`), and a second operand is drawn among the values that
broadcast, cast and overlap as the operator allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from strategies.draws import Draw, below, choice
from strategies.dtypes import EXACT
from strategies.scope import Operand, Scope
from strategies.views import LARGEST

Bound = Callable[[int, int], int]


class Pointwise(NamedTuple):
    """A pointwise operator: the overload's names in place and out of place ("" where there is none).

    `scalars` are what its second argument may be if that is a number. `bound` says how large results get, from the
    bounds of the operands (or of the one and the scalar).
    """

    inplace: str
    pure: str
    bound: Bound
    scalars: tuple[int, ...] = ()
    binary: bool = False
    integral: bool = False


OPERATORS: tuple[Pointwise, ...] = (
    Pointwise("aten.add_.Tensor", "aten.add.Tensor", lambda a, b: a + b, (1, 2, -3)),
    Pointwise("aten.add_.Tensor", "aten.add.Tensor", lambda a, b: a + b, binary=True),
    Pointwise("aten.mul_.Tensor", "aten.mul.Tensor", lambda a, b: a * b, (2, -1, 3)),
    Pointwise("aten.copy_.default", "aten.clone.default", lambda a, b: b, binary=True),
    Pointwise("aten.neg_.default", "aten.neg.default", lambda a, b: a),
    Pointwise("aten.fill_.Scalar", "", lambda a, b: b, (0, 1, 7)),
    Pointwise("aten.zero_.default", "aten.zeros_like.default", lambda a, b: 0),
    Pointwise("aten.mul_.Tensor", "aten.mul.Tensor", lambda a, b: a * b, binary=True),
    Pointwise("aten.sub_.Tensor", "aten.sub.Tensor", lambda a, b: a + b, binary=True),
    Pointwise("aten.relu_.default", "aten.relu.default", lambda a, b: a),
    Pointwise("aten.abs_.default", "aten.abs.default", lambda a, b: a),
    Pointwise("aten.sign_.default", "aten.sign.default", lambda a, b: 1),
    Pointwise("aten.square_.default", "aten.square.default", lambda a, b: a * a),
    Pointwise("aten.clamp_.default", "aten.clamp.default", max, (0, 2)),
    Pointwise("aten.bitwise_not_.default", "aten.bitwise_not.default", lambda a, b: a + 1, integral=True),
    Pointwise("", "aten.maximum.default", max, binary=True),
    Pointwise("", "aten.minimum.default", max, binary=True),
)


def draw_write(draw: Draw, scope: Scope, targets: list[int], banned: frozenset[str]) -> list[int]:
    """An in-place statement on one of the targets. Returns the values that it defines: none but the one written."""
    target = choice(draw, targets)
    fits = [op for op in OPERATORS if op.inplace and op.inplace not in banned and _exact(scope, op, target)]
    return _emit(draw, scope, choice(draw, fits), target, in_place=True) if fits else [target]


def draw_pure(draw: Draw, scope: Scope, banned: frozenset[str]) -> list[int]:
    """An out-of-place pointwise statement. Returns the value that it defines."""
    operand = below(draw, scope.count)
    fits = [op for op in OPERATORS if op.pure and op.pure not in banned and _exact(scope, op, operand)]
    return _emit(draw, scope, choice(draw, fits), operand, in_place=False) if fits else [operand]


def draw_reduction(draw: Draw, scope: Scope, banned: frozenset[str]) -> list[int]:
    """A sum or a maximum along a dimension, or of all elements. Returns the value that it defines."""
    operand = below(draw, scope.count)
    tensor, bound = scope.tensor(operand), scope.bound(operand)
    longest = tensor.numel() * bound
    kinds = [op for op, fits in (
        ("aten.sum.dim_IntList", tensor.ndim > 0 and longest <= scope.limit(operand)),
        ("aten.sum.default", longest <= scope.limit(operand)),
        ("aten.amax.default", tensor.ndim > 0 and tensor.numel() > 0),
    ) if fits and op not in banned]  # fmt: skip
    if not kinds:
        return [operand]
    op = choice(draw, kinds)
    if op == "aten.sum.default":
        return scope.emit(op, tensor, bound=longest)
    dim, keep = [below(draw, tensor.ndim)], below(draw, 2) == 1
    return scope.emit(op, tensor, dim, keep, bound=longest if op.startswith("aten.sum") else bound)


def _exact(scope: Scope, op: Pointwise, operand: int) -> bool:
    """Whether some second operand of the operator leaves results exact on this first one."""
    dtype, bound = scope.tensor(operand).dtype, scope.bound(operand)
    if op.integral and dtype.is_floating_point:
        return False
    least = 0 if op.binary else min(map(abs, op.scalars), default=0)
    return op.bound(bound, least) <= EXACT[dtype]


def _emit(draw: Draw, scope: Scope, op: Pointwise, first: int, *, in_place: bool) -> list[int]:
    name = op.inplace if in_place else op.pure
    tensor, limit = scope.tensor(first), scope.limit(first)
    if name == "aten.clone.default" or not (op.binary or op.scalars):
        bound = scope.bound(first) if name == "aten.clone.default" else op.bound(scope.bound(first), 0)
        return scope.emit(name, tensor, bound=bound)
    if op.scalars:
        number = choice(draw, [k for k in op.scalars if op.bound(scope.bound(first), abs(k)) <= limit])
        return scope.emit(name, tensor, number, bound=op.bound(scope.bound(first), abs(number)))
    operands = [i for i in range(scope.count) if _joins(scope, op, first, i, in_place=in_place)]
    if not operands:  # nothing fits, not even the value itself: a statement that always does
        name = "aten.neg_.default" if in_place else "aten.neg.default"
        return scope.emit(name, tensor, bound=scope.bound(first))
    second = choice(draw, operands)
    args: list[Operand] = [tensor, scope.tensor(second)]
    return scope.emit(name, *args, bound=op.bound(scope.bound(first), scope.bound(second)))


def _joins(scope: Scope, op: Pointwise, first: int, second: int, *, in_place: bool) -> bool:
    """Whether `second` can be the operator's second operand beside `first`."""
    a, b = scope.tensor(first), scope.tensor(second)
    result = torch.promote_types(a.dtype, b.dtype)
    if in_place and not (op.inplace == "aten.copy_.default" or torch.can_cast(result, a.dtype)):
        return False
    exact = EXACT[a.dtype] if in_place else min(EXACT[result], EXACT[torch.result_type(a, b)])
    if max(op.bound(scope.bound(first), scope.bound(second)), scope.bound(second)) > exact:
        return False
    if in_place:
        return _expands(b.shape, a.shape) and scope.may_read(first, second)
    return _broadcast_numel(a.shape, b.shape) is not None


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
