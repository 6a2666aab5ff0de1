"""Faults in how compiled functions go backward: what is kept, what flows where, and what the caller's graph knows of it.

The caller goes backward when the fault is switched off again, so classes are replaced: what they made stays faulty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

import executor.jit
from benchmarks.faults.base import Fault
from executor import interpreter
from executor.args import Arg, Ref, rename
from executor.autograd import cut, node, relations, skeleton
from executor.autograd.joint import Joint, Pass
from executor.autograd.node import _Call
from executor.autograd.pair import Backward, Pair
from executor.autograd.skeleton import History, Skeleton
from executor.facts import facts
from executor.interpreter import step
from executor.pipeline import Compilation
from executor.program import Call, Program

_Gradients = tuple[torch.Tensor | None, ...]
_Cotangents = Sequence[torch.Tensor | None]


def _fault(what: str, *patches: tuple[Any, str, Any]) -> Fault:
    return Fault(what, patches, gradients=True)


class _Rewriting(Pair):
    """Compiles other programs than it should: those that go forward, and those that go backward."""

    def __init__(self, joint: Joint, compiler: Callable[[Program], Compilation]) -> None:
        def compile_other(program: Program) -> Compilation:
            backward = any(param.name.startswith("grad") for param in program.params)
            return compiler(self.going_backward(program) if backward else self.going_forward(program))

        super().__init__(joint, compile_other)

    def going_forward(self, program: Program) -> Program:
        """The forward program."""
        return program

    def going_backward(self, program: Program) -> Program:
        """A backward program."""
        return program


def _replaced(program: Program, drop: Callable[[Call], int | None]) -> Program:
    """The program without the calls for which `drop` names a value that is taken for their result."""
    new: dict[int, int] = {}
    calls: list[Call] = []

    def ref(v: int) -> Arg:
        return Ref(new.get(v, v))

    for call in program.calls:
        args = tuple(rename(arg, ref) for arg in call.args)
        kwargs = tuple((name, rename(arg, ref)) for name, arg in call.kwargs)
        renamed = msgspec.structs.replace(call, args=args, kwargs=kwargs)
        other = drop(renamed)
        if other is None:
            calls.append(renamed)
        else:
            new[call.results[0]] = other
    return msgspec.structs.replace(program, calls=tuple(calls), outputs=rename(program.outputs, ref))


class _Unkept(_Rewriting):
    def going_forward(self, program: Program) -> Program:
        written = {v for call in program.calls if facts(call.op).written for v in call.results}

        def drop(call: Call) -> int | None:
            copied = call.op == "aten.clone.default" and call.operands[0] in written
            return call.operands[0] if copied else None

        return _replaced(program, drop)


class _LastUse(_Rewriting):
    def going_backward(self, program: Program) -> Program:
        made = {v for call in program.calls for v in call.results}

        def drop(call: Call) -> int | None:
            added = call.op == "aten.add.Tensor" and made.issuperset(call.operands) and len(set(call.operands)) == 2
            return call.operands[1] if added else None

        return _replaced(program, drop)


class _Unsummed(_Rewriting):
    def going_backward(self, program: Program) -> Program:
        calls = tuple(
            msgspec.structs.replace(call, op="aten.amax.default", kwargs=())
            if call.op == "aten.sum.dim_IntList"
            else call
            for call in program.calls
        )
        return msgspec.structs.replace(program, calls=calls)


class _Turned(Pair):
    def _program(self, joint: Joint, found: Pass) -> Backward:
        made = super()._program(joint, found)
        return made._replace(kept=(*made.kept[1:], *made.kept[:1]))


class _FirstCallOnly(Pair):
    kept: list[torch.Tensor] | None = None


class _Kept(_Call):
    """Keeps for all calls what the first one kept."""

    def forward(self) -> tuple[torch.Tensor, ...]:
        made = super().forward()
        if isinstance(self._pair, _FirstCallOnly):
            self._pair.kept = self._saved = self._pair.kept or [t.clone() for t in self._saved]
        return made


class _Swapped(_Call):
    def backward(self, cotangents: _Cotangents) -> _Gradients:
        given = list(cotangents)
        if len(given) > 1 and all(t is not None and t.shape == given[0].shape for t in given if given[0] is not None):
            given[0], given[1] = given[1], given[0]
        return super().backward(given)


class _Ones(_Call):
    def backward(self, cotangents: _Cotangents) -> _Gradients:
        return super().backward(_filled(self, cotangents, torch.ones))


class _Zeros(_Call):
    def backward(self, cotangents: _Cotangents) -> _Gradients:
        return super().backward(_filled(self, cotangents, torch.zeros))


def _filled(call: _Call, cotangents: _Cotangents, fill: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    full = call._pair._backward[(True,) * len(cotangents)]
    layouts = full.layouts
    return [
        fill(value.shape, dtype=value.torch_dtype) if t is None else t
        for t, value in zip(cotangents, layouts, strict=True)
    ]


class _Unchecked(_Call):
    def _check(self, found: Backward) -> None:
        super()._check(found._replace(storages=frozenset()))


class _OldLost(_Call):
    def backward(self, cotangents: _Cotangents) -> _Gradients:
        targets = self._pair.skeleton.targets
        given = [t if isinstance(what, int) else None for t, what in zip(cotangents, targets, strict=True)]
        if not any(t is not None for t in given):
            return (None,) * len(self._pair._backward[(True,) * len(given)].gradients)
        return super().backward(given)


def _without_histories(self: Skeleton, *args: Any) -> Any:
    return _replay(self._replace(events=tuple(e for e in self.events if not isinstance(e, History))), *args)


def _uncounted(self: relations.Counter, level: int) -> None:
    del self, level


def _with_grad_mode(call: Call, env: Any) -> None:
    step(msgspec.structs.replace(call, no_grad=False), env)


def _attached(call: Call, env: Any) -> None:
    step(msgspec.structs.replace(call, op="aten.alias.default") if call.op == "aten.detach.default" else call, env)


def _views_without_grad_mode(call: Call, env: Any) -> None:
    step(msgspec.structs.replace(call, no_grad=True), env)


def _always(self: Any, v: int) -> bool:
    del self, v
    return True


def _unwritten(self: Any, v: int) -> bool:
    return self._joint.recorder.values[v].storage not in self._written


_replay = Skeleton.replay

FAULTS = {
    "kept value not copied before a write": _fault(
        "What a later write changes is kept as it is then.", (executor.jit, "Pair", _Unkept)),
    "computed anew from what was written": _fault(
        "A value is computed again, when going backward, from an input that the function has written since.",
        (cut._Graph, "_usable", _always)),
    "computed anew from what the caller writes": _fault(
        "A value is computed again, when going backward, from an input that the caller may have written since.",
        (cut._Graph, "_usable", _unwritten)),
    "kept values in another order": _fault(
        "What the forward program returns and what the backward program takes are numbered apart.",
        (executor.jit, "Pair", _Turned)),
    "kept values of the first call": _fault(
        "All calls go backward with what the first one kept.",
        (executor.jit, "Pair", _FirstCallOnly), (node, "_Call", _Kept)),
    "cotangents of two outputs swapped": _fault(
        "The first two outputs get each other's cotangents.", (node, "_Call", _Swapped)),
    "missing cotangent taken for ones": _fault(
        "An output that the caller does not go backward from counts all the same.", (node, "_Call", _Ones)),
    "missing cotangent taken for zeros": _fault(
        "Inputs that no gradient reaches get zeros.", (node, "_Call", _Zeros)),
    "writes by the caller not noticed": _fault(
        "What was kept may be written before going backward.", (node, "_Call", _Unchecked)),
    "gradient of what was overwritten lost": _fault(
        "No gradient flows from an input that the function wrote.", (node, "_Call", _OldLost)),
    "written input without its history": _fault(
        "Autograd does not hear that the function wrote an input.", (skeleton.Skeleton, "replay", _without_histories)),
    "versions not counted": _fault(
        "Autograd does not hear how often the function wrote.", (relations.Counter, "raise_to", _uncounted)),
    "no_grad ignored": _fault(
        "Calls under torch.no_grad() are taken for others.", (interpreter, "step", _with_grad_mode)),
    "detach ignored": _fault(
        "A detached tensor is taken for a view.", (interpreter, "step", _attached)),
    "views without their history": _fault(
        "Outputs that are views are made without grad mode.", (skeleton, "step", _views_without_grad_mode)),
    "only the last use counts": _fault(
        "Of two gradients for one value the first is dropped.", (executor.jit, "Pair", _LastUse)),
    "gradient of a broadcast value not summed": _fault(
        "A value that was broadcast gets the largest of its gradients.", (executor.jit, "Pair", _Unsummed)),
}  # fmt: skip
