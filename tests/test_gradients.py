"""The oracle on gradients: what going backward gives, refuses and leaves, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from corpus.case import Case
from executor.limits import Limits
from executor.program import Backward, Program
from executor.targets import Target
from executor.tracing import trace
from fuzz.check import Verdict, check
from fuzz.gradients import cotangent
from fuzz.script import script

Function = Callable[..., Any]


class Altered(Target):
    """A compiler that makes another function of each one."""

    needs_source = False

    def __init__(self, change: Callable[[Function], Function], limits: Limits | None = None) -> None:
        self.name, self.change, self.limits = "altered", change, limits or Limits()

    def compile(self, fn: Function, example_args: Any) -> Function:
        return self.change(fn)


def leaf(*shape: int) -> torch.Tensor:
    return (torch.arange(float(torch.Size(shape).numel())) + 1).reshape(shape).requires_grad_()


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x * 2
    z[1:].mul_(y[1:])
    return z


def program(plan: Backward | None = None, fn: Function = product) -> Program:
    return msgspec.structs.replace(trace(fn, leaf(3), leaf(3)), backward=plan)


def seen(change: Callable[[Function], Function], plan: Backward | None = None, fn: Function = product) -> Verdict:
    return check(program(plan, fn), target=Altered(change))


def spoilt_by(x: torch.Tensor) -> torch.Tensor:
    """The tensor, through `Spoilt`."""
    return Spoilt.apply(x)  # type: ignore[no-untyped-call, no-any-return]


class Spoilt(torch.autograd.Function):
    """The identity, whose backward does what `Spoilt.spoil` says."""

    spoil: Callable[[torch.Tensor], torch.Tensor | None] = staticmethod(lambda g: g)

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor | None:  # noqa: ARG004
        return Spoilt.spoil(gradients[0])


def spoilt(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[torch.Tensor], torch.Tensor | None]) -> Verdict:
    monkeypatch.setattr(Spoilt, "spoil", staticmethod(spoil))
    return seen(lambda fn: lambda x, y: fn(spoilt_by(x), y))


@pytest.mark.parametrize("plan", [
    None, Backward(seed=2), Backward(functional=True), Backward(passes=2), Backward(apart=True),
    Backward(functional=True, passes=2, apart=True), Backward(left_out=(0,)), Backward(written=0), Backward(written=2),
])  # fmt: skip
@pytest.mark.parametrize("target", ["null", "pipeline:eager", "pipeline"])
def test_compilers_that_are_right_are_found_to_be(plan: Backward | None, target: str) -> None:
    verdict = check(program(plan), target=target)
    assert verdict.ok
    assert verdict.unstable is None


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = spoilt(monkeypatch, lambda g: g + 1)
    assert verdict.symptoms == ("gradient",)
    first = cotangent(Backward(), 0, torch.ones(3))[0] * 2
    assert str(verdict.mismatches[0]).startswith(f"gradient: gradient of input 0[0]: expected {first.item()}, got ")


def test_none_is_not_zeros_unless_the_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 + y.detach()

    def zeros(fn: Function) -> Function:
        return lambda x, y: fn(x, y) + y * 0

    verdict = seen(zeros, fn=unused)
    assert verdict.symptoms == ("gradient",)
    assert verdict.mismatches[0].detail == "none, not a gradient"
    assert check(program(fn=unused), target=Altered(zeros, Limits(none_gradients=False))).ok
    assert spoilt(monkeypatch, lambda _: None).mismatches[0].detail == "a gradient, not none"
    twice = check(program(fn=unused), target=Altered(lambda fn: lambda x, y: fn(x, y) + y * 0 + y - y.detach(),
                                                     Limits(none_gradients=False)))  # fmt: skip
    assert twice.symptoms == ("gradient",)


def test_exceptions_of_going_backward_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("no backward here")

    verdict = spoilt(monkeypatch, fail)
    assert verdict.symptoms == ("backward-exception",)
    assert verdict.mismatches[0].detail.startswith("NotImplementedError")

    def overwritten(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        w = z * y
        z.add_(1)
        return w

    assert check(program(fn=overwritten), target="null").raised is not None
    kept = seen(lambda _: lambda x, y: x * 2 * y, fn=overwritten)
    assert kept.symptoms == ("no-backward-exception",)
    lenient = Altered(lambda _: lambda x, y: x * 2 * y, Limits(written_results=False))
    assert check(program(fn=overwritten), target=lenient).ok

    def refuse(*_: Any) -> None:
        raise RuntimeError("one of the variables needed has been modified")

    assert seen(lambda _: refuse, fn=overwritten).ok  # at once


def test_what_autograd_says_of_results_and_inputs_is_compared() -> None:
    assert seen(lambda fn: lambda x, y: fn(x, y).detach()).mismatches[0].detail == "part of the graph, not no gradient"

    def unwritten(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y.add_(1)
        return x * 2

    def quietly(fn: Function) -> Function:
        def changed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with torch.autograd._unsafe_preserve_version_counter(y):  # type: ignore[attr-defined]
                return fn(x, y)  # type: ignore[no-any-return]

        return changed

    verdict = seen(quietly, fn=unwritten)
    assert [str(mismatch) for mismatch in verdict.mismatches] == [
        "autograd: input 1: expected a leaf that requires grad, written, got a leaf that requires grad"
    ]


def test_the_second_pass_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[None] = []

    def later(g: torch.Tensor) -> torch.Tensor:
        passes.append(None)
        return g + (len(passes) > 1)

    monkeypatch.setattr(Spoilt, "spoil", staticmethod(later))
    verdict = seen(lambda fn: lambda x, y: fn(spoilt_by(x), y), Backward(passes=2, functional=True))
    assert verdict.mismatches[0].where.startswith("gradient of input 0 in pass 2")


def test_memory_that_going_backward_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[torch.Tensor] = []

    def spoil(g: torch.Tensor) -> torch.Tensor:
        held[-1].detach().zero_()
        return g

    monkeypatch.setattr(Spoilt, "spoil", staticmethod(spoil))

    def change(fn: Function) -> Function:
        def changed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            held.append(y)
            return fn(spoilt_by(x), y)  # type: ignore[no-any-return]

        return changed

    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 + y

    verdict = seen(change, fn=added)
    assert [mismatch.where for mismatch in verdict.mismatches] == ["storage 1[0] after going backward"]


def test_results_are_compared_before_the_caller_goes_backward() -> None:
    """Also where going backward would mend them."""
    late: list[torch.Tensor] = []

    def change(fn: Function) -> Function:
        def changed(x: torch.Tensor, y: torch.Tensor) -> Any:
            out = fn(x, y)
            with torch.no_grad():
                out.neg_()
            out.register_hook(lambda _: out.detach().neg_() and None)
            late.append(out)
            return out

        return changed

    assert seen(change).symptoms == ("value",)


def test_gradients_too_large_to_be_exact_are_not_judged() -> None:
    def steep(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 4096 * 4096 + y

    verdict = check(program(fn=steep), target=Altered(lambda fn: lambda x, y: fn(x, y) + x - x.detach()))
    assert verdict.unstable == "gradients are larger than is exact in their dtypes"


def test_inexact_gradients_are_judged_by_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    def smooth(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x / 7).tanh() * y

    def ulp(g: torch.Tensor) -> torch.Tensor:
        return g * (1 + 2.0**-23)

    def judged(spoil: Callable[[torch.Tensor], torch.Tensor], *, exact: bool) -> Verdict:
        monkeypatch.setattr(Spoilt, "spoil", staticmethod(spoil))
        target = Altered(lambda fn: lambda x, y: fn(spoilt_by(x), y))
        return check(program(fn=smooth), target=target, exact=exact)

    assert judged(ulp, exact=False).ok
    assert judged(lambda g: g * 1.01, exact=False).symptoms == ("gradient",)


def test_a_function_with_leaves_is_checked_as_it_is() -> None:
    x, base = leaf(3), leaf(4) * 1
    assert check(product, [x, base[1:]], target="pipeline").ok
    assert x.grad is None
    wrong = Altered(lambda _: lambda x, y: product(x, y.detach()))
    assert check(product, [x, base[1:]], target=wrong).symptoms == ("gradient",)


def test_later_calls_go_backward_too() -> None:
    calls: list[None] = []

    def change(fn: Function) -> Function:
        def changed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            calls.append(None)
            return fn(x, y if len(calls) < 2 else y.detach())  # type: ignore[no-any-return]

        return changed

    made = program()
    verdict = check(made, target=Altered(change), calls=[made.entry])
    assert (verdict.symptom, verdict.call) == ("gradient in a later call", 1)


@pytest.mark.parametrize("plan", [None, Backward(seed=1, functional=True, passes=2, apart=True, written=0)])
def test_a_script_goes_backward_and_shows_what_differs(plan: Backward | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.targets.null.Null.script", lambda _: ["def compiled(x, y):", "    return x * 2 * y"])

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 * y.detach()

    base = leaf(4) * 1
    made = msgspec.structs.replace(trace(fn, leaf(3), base[1:]), backward=plan)
    text = script(Case(target="null", program=made, state="fixed"))
    namespace: dict[str, Any] = {"__name__": "script"}
    exec(compile(text, "script", "exec"), namespace)  # noqa: S102 (text that we made)
    assert namespace["main"]() == 1
    namespace["compiled"] = namespace["program"]
    assert namespace["main"]() == 0
