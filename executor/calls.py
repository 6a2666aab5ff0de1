"""Calls made ready to run many times: operator looked up, constant arguments built, operands by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from executor.args import Ref, to_python
from executor.facts import facts
from executor.interpreter import flatten
from executor.schema import resolve
from executor.straight import WORTH_IT, straight

if TYPE_CHECKING:
    from executor.program import Call

Runner = Callable[[list[Any]], None]


class Calls:
    """Calls as a function from inputs to outputs, run one by one at first, as straight-line code when that pays."""

    def __init__(self, calls: Sequence[Call], inputs: Sequence[int], outputs: Sequence[int]) -> None:
        self.calls, self.inputs, self.outputs = calls, inputs, outputs
        self._runners = [prepare(call) for call in calls]
        self._count = 1 + max((v for call in calls for v in call.results), default=0)
        self._count = max(self._count, 1 + max((*inputs, *outputs), default=0))
        self._runs = 0
        self._straight: Callable[[Sequence[Any]], list[Any]] | None = None

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs."""
        if self._straight is not None:
            return self._straight(inputs)
        self._runs += 1
        if self._runs == WORTH_IT:
            self._straight = straight(self.calls, self.inputs, self.outputs)
        env: list[Any] = [None] * self._count
        for index, tensor in zip(self.inputs, inputs, strict=True):
            env[index] = tensor
        for run in self._runners:
            run(env)
        return [env[index] for index in self.outputs]


def prepare(call: Call) -> Runner:
    """A function that runs the call on the tensors of an environment, indexed by value, and puts its results there."""
    op, operands = resolve(call.op), call.operands
    slots = [arg.index if isinstance(arg, Ref) else None for arg in call.args]
    nested = len(operands) > len(slots) - slots.count(None)
    if nested or len(call.results) != 1 or not facts(call.op).single:
        return _general(op, call)
    kwargs = {key: to_python(arg, ()) for key, arg in call.kwargs}
    if 1 <= len(operands) <= 2 and None not in slots[: len(operands)]:
        rest = [to_python(arg, ()) for arg in call.args[len(operands) :]]
        return _leading(op, operands, rest, kwargs, call.results[0])
    args = [
        (slot, None if slot is not None else to_python(arg, ())) for slot, arg in zip(slots, call.args, strict=True)
    ]
    result = call.results[0]

    def any_arity(env: list[Any]) -> None:
        env[result] = op(*[constant if slot is None else env[slot] for slot, constant in args], **kwargs)

    return any_arity


def _leading(op: Any, operands: Sequence[int], rest: list[Any], kwargs: dict[str, Any], result: int) -> Runner:
    """One tensor result, one or two operands ahead of all constants: most calls, and those whose overhead shows."""
    first, second = operands[0], operands[-1]

    def unary(env: list[Any]) -> None:
        env[result] = op(env[first], *rest, **kwargs)

    def binary(env: list[Any]) -> None:
        env[result] = op(env[first], env[second], *rest, **kwargs)

    return unary if len(operands) == 1 else binary


def _general(op: Any, call: Call) -> Runner:
    results = call.results

    def run(env: list[Any]) -> None:
        kwargs = {key: to_python(arg, env) for key, arg in call.kwargs}
        out = op(*[to_python(arg, env) for arg in call.args], **kwargs)
        if isinstance(out, torch.Tensor):
            if results:
                env[results[0]] = out
            return
        for index, tensor in zip(results, flatten(out), strict=True):
            env[index] = tensor

    return run
