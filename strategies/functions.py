"""Calls of custom autograd functions, in programs whose inputs require grad."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from executor.functions import FUNCTIONS
from executor.schema import effects
from strategies.draws import Draw, choice
from strategies.dtypes import EXACT, Range, kind, symmetric
from strategies.scope import Scope


class _Growth(NamedTuple):
    """How large elements become, from the ranges of the arguments: those of a new result, and those that are written."""

    result: Callable[..., Range] | None = None
    written: Callable[..., Range] | None = None


def _twice(x: Range, *_: Range) -> Range:
    return symmetric(2 * x.magnitude)


_GROWTH = {
    "aliasfuzz.squared.default": _Growth(lambda x: symmetric(x.magnitude**2)),
    "aliasfuzz.tail_negated.default": _Growth(lambda x: symmetric(x.magnitude)),
    "aliasfuzz.reversed.default": _Growth(),
    "aliasfuzz.doubled.default": _Growth(written=_twice),
    "aliasfuzz.multiplied.default": _Growth(written=lambda x, y: symmetric(x.magnitude * y.magnitude)),
    "aliasfuzz.logged.default": _Growth(_twice, lambda x, log: symmetric(x.magnitude + log.magnitude)),
}
assert _GROWTH.keys() == FUNCTIONS.keys()


def draw_function(draw: Draw, scope: Scope) -> list[int]:
    """A custom function of a drawn value, and of another one where it takes two. Returns its result, or else the value."""
    operand = choice(draw, scope.operands())
    fits = {op: found for op in _GROWTH if scope.takes(op) and (found := _arguments(scope, op, operand))}
    if not fits:
        return [operand]
    op = choice(draw, [*fits])
    arguments = choice(draw, fits[op])
    result, written = _grown(scope, op, arguments)
    made = scope.emit(op, *[scope.tensor(i) for i in arguments], range=result)
    if written is not None:
        scope.note(_written(op, arguments), written)
    return made or [operand]


def _arguments(scope: Scope, op: str, operand: int) -> list[tuple[int, ...]]:
    """The arguments that it may have, beginning with this one: floating-point, exact, and so that results are exact, too."""
    tensor = scope.tensor(operand)
    if kind(tensor.dtype) != "f" or not scope.exact(operand):
        return []
    found: list[tuple[int, ...]] = [(operand,)]
    if len(effects(op).names) == 2:
        found = [(operand, i) for i in scope.alike(tensor.shape, tensor.dtype) if scope.apart(operand, i)]
    if effects(op).writes:
        writable = {*scope.writable()}
        found = [arguments for arguments in found if _written(op, arguments) in writable]
    return [arguments for arguments in found if _fits(scope, op, arguments)]


def _fits(scope: Scope, op: str, arguments: tuple[int, ...]) -> bool:
    """Whether all stays exact, and what is written beside a result has no gradient."""
    growth = [found for found in _grown(scope, op, arguments) if found is not None]
    if len(growth) == 2 and scope.tensor(_written(op, arguments)).requires_grad:
        return False
    bound = EXACT[scope.tensor(arguments[0]).dtype]
    return all(map(scope.exact, arguments)) and all(found.within(bound) for found in growth)


def _grown(scope: Scope, op: str, arguments: tuple[int, ...]) -> tuple[Range | None, Range | None]:
    """The ranges of what it returns and of what it writes."""
    ranges, growth = [scope.range(i) for i in arguments], _GROWTH[op]
    return growth.result and growth.result(*ranges), growth.written and growth.written(*ranges)


def _written(op: str, arguments: tuple[int, ...]) -> int:
    """The argument that it writes."""
    effect = effects(op)
    return next(i for name, i in zip(effect.names, arguments, strict=True) if name in effect.writes)
