"""Reductions: a sum, an extreme or a count along a dimension or of all elements, and running sums."""

from __future__ import annotations

import torch

from strategies.draws import Draw, below, choice
from strategies.dtypes import EXACT, TRUTH, Range, kind
from strategies.scope import Scope

OPERATORS = (
    "aten.sum.dim_IntList", "aten.sum.default", "aten.amax.default", "aten.amin.default", "aten.cumsum.default",
    "aten.any.default",
)  # fmt: skip


def draw_reduction(draw: Draw, scope: Scope) -> list[int]:
    """A reduction of one value. Returns the value that it defines."""
    operand = choice(draw, scope.operands())
    tensor, own = scope.tensor(operand), scope.range(operand)
    if not scope.exact(operand):
        return [operand]
    longest = Range(min(own.low, 0) * tensor.numel(), max(own.high, 0) * tensor.numel())
    summed = longest.within(EXACT[tensor.dtype]) or kind(tensor.dtype) == "b"
    ordered, ranked = not tensor.is_complex(), tensor.ndim > 0
    total = torch.int64 if kind(tensor.dtype) in "bui" else tensor.dtype
    summed = summed and total in scope.dtypes
    extreme = ranked and tensor.numel() > 0 and ordered
    fitting = (ranked and summed, summed, extreme, extreme, ranked and summed, ordered and torch.bool in scope.dtypes)
    kinds = [op for op, fits in zip(OPERATORS, fitting, strict=True) if fits and scope.takes(op)]
    if not kinds:
        return [operand]
    op = choice(draw, kinds)
    if op == "aten.sum.default":
        return scope.emit(op, tensor, range=longest)
    if op == "aten.any.default":
        return scope.emit(op, tensor, range=TRUTH)
    dim = below(draw, tensor.ndim)
    if op == "aten.cumsum.default":
        return scope.emit(op, tensor, dim, range=longest)
    keep = below(draw, 2) == 1
    return scope.emit(op, tensor, [dim], keep, range=longest if op.startswith("aten.sum") else own)
