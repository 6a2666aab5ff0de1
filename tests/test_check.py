"""`check`: every kind of difference from eager is seen, and nothing else is."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from executor.errors import TargetError
from executor.program import Program
from executor.tracing import trace
from fuzz import check as check_module
from fuzz.check import Verdict, check

Fn = Callable[..., Any]


class Wrong:
    """A target that does what `wrap(fn)` does."""

    name = "wrong"

    def __init__(self, wrap: Callable[[Fn], Fn]) -> None:
        self.wrap = wrap

    def compile(self, fn: Fn, example_args: Sequence[Any]) -> Fn:
        return self.wrap(fn)


def after(change: Callable[..., Any]) -> Wrong:
    """A target that runs the function and then returns `change(out, *args)`."""
    return Wrong(lambda fn: lambda *args: change(fn(*args), *args))


def base() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4)


def add_one(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x[1]


def seen(target: Wrong, fn: Fn = add_one, args: Sequence[Any] | None = None) -> Verdict:
    return check(fn, [base()] if args is None else args, target=target)  # type: ignore[arg-type]


def test_the_same_function_is_ok() -> None:
    verdict = seen(Wrong(lambda fn: fn))
    assert verdict.ok
    assert verdict.symptoms == ()
    assert verdict.signature is None
    assert str(verdict) == "wrong: ok"


def _gap(out: Any, x: torch.Tensor) -> Any:
    x.as_strided((1,), (1,), 3).fill_(-1)
    return out


def _beside(out: Any, x: torch.Tensor) -> Any:
    ctypes.memset(x.data_ptr() - 4, 0, 4)
    return out


DIFFERENCES: list[tuple[str, Callable[..., Any]]] = [
    ("value", lambda out, x: x[0]),
    ("dtype", lambda out, x: out.double()),
    ("shape", lambda out, x: out[:2]),
    ("structure", lambda out, x: (out,)),
    ("structure", lambda out, x: None),
    ("alias", lambda out, x: out.clone()),
    ("memory", _gap),
    ("guard", _beside),
]


@pytest.mark.parametrize(("symptom", "change"), DIFFERENCES)
def test_a_difference_is_seen(symptom: str, change: Callable[..., Any]) -> None:
    args = [base()[:, :3]] if change is _gap else None
    verdict = seen(after(change), args=args)
    assert symptom in verdict.symptoms, str(verdict)


def test_a_write_into_a_gap_between_views_is_memory_alone() -> None:
    assert seen(after(_gap), args=[base()[:, :3]]).symptoms == ("memory",)


def test_a_write_beside_the_storage_is_a_guard_alone() -> None:
    assert seen(after(_beside)).symptoms == ("guard",)


def test_wrong_strides_of_a_fresh_output() -> None:
    verdict = seen(after(lambda out, x: out.contiguous()), lambda x: (x + 1).t().clone(), [base()])
    assert verdict.symptoms == ("strides",)


def test_strides_of_dimensions_of_one_mean_nothing() -> None:
    verdict = seen(after(lambda out, x: out.as_strided((1, 4), (77, 1))), lambda x: x[:1] + 1, [base()])
    assert verdict.ok


def test_two_outputs_on_one_fresh_storage_must_stay_together() -> None:
    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, y[1]

    assert seen(after(lambda out, x: (out[0], out[1].clone())), two).symptoms == ("alias",)
    assert seen(after(lambda out, x: (out[0].clone(), out[0][1])), two).symptoms == ("alias",)


def test_the_same_object_twice_must_be_the_same_object() -> None:
    assert seen(after(lambda out, x: (out[0], out[0].view(3, 4))), lambda x: (x, x)).symptoms == ("identity",)
    assert seen(after(lambda out, x: out.view(3, 4)), lambda x: x).symptoms == ("identity",)


def test_an_exception_is_a_difference() -> None:
    def fail(_: Fn) -> Fn:
        raise KeyError("lost")

    verdict = seen(Wrong(fail))
    assert verdict.symptoms == ("exception",)
    assert verdict.signature is not None
    assert verdict.signature.detail == "KeyError"
    assert "expected no exception, got KeyError: 'lost'" in str(verdict)


def shifted(x: torch.Tensor) -> torch.Tensor:
    return x[1:].add_(x[:-1])


def test_both_raise_is_ok_and_one_raises_is_not() -> None:
    assert seen(Wrong(lambda fn: fn), shifted).ok
    assert seen(Wrong(lambda fn: lambda x: x), shifted).symptoms == ("no-exception",)


def test_memory_must_match_where_both_raise() -> None:
    def spoil(fn: Fn) -> Fn:
        def run(x: torch.Tensor) -> Any:
            x[0, 0] = 99
            return fn(x)

        return run

    assert seen(Wrong(spoil), shifted).symptoms == ("memory",)


def test_an_exception_of_another_kind_is_a_difference() -> None:
    def fail(x: torch.Tensor) -> Any:
        raise ValueError("no")

    assert seen(Wrong(lambda fn: fail), shifted).symptoms == ("exception",)


def test_a_wrapped_exception_counts_as_what_it_wraps() -> None:
    class Wrapped(Exception):
        pass

    def wrap(fn: Fn) -> Fn:
        def run(*args: Any) -> Any:
            try:
                return fn(*args)
            except RuntimeError as error:
                raise Wrapped("compiler") from error

        return run

    assert seen(Wrong(wrap), shifted).ok


def test_nan_equals_nan_and_minus_zero_equals_zero() -> None:
    args = [torch.tensor([float("nan"), 0.0])]
    assert seen(after(lambda out, x: out), lambda x: x + 0, args).ok
    assert seen(after(lambda out, x: torch.tensor([float("nan"), -0.0])), lambda x: x + 0, args).ok
    assert not seen(after(lambda out, x: torch.tensor([0.0, 0.0])), lambda x: x + 0, args).ok


def test_aliasing_arguments_stay_aliased_and_are_left_alone() -> None:
    x = base()

    def rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    assert check(rows, [x, x[0]], target="null").ok
    assert torch.equal(x, base())
    severed = Wrong(lambda fn: lambda a, b: fn(a, b.clone()))
    assert check(rows, [x, x[0]], target=severed).symptoms == ("value",)  # type: ignore[arg-type]


def test_trees_of_arguments() -> None:
    def tree(x: dict[str, list[torch.Tensor]], scale: float) -> dict[str, torch.Tensor]:
        x["a"][0].mul_(scale)
        return {"sum": x["a"][0] + x["a"][1]}

    a = base()
    assert check(tree, [{"a": [a, a.t()[:3, :3].sum() + a]}, 2.0], target="null").ok


def test_a_program_needs_no_arguments() -> None:
    program = trace(add_one, base())
    assert isinstance(program, Program)
    assert check(program, target="null").ok
    verdict = check(program, target=after(lambda out, x: out.clone()))  # type: ignore[arg-type]
    assert verdict.program == program
    assert verdict.signature is not None
    assert verdict.signature.ops == ("add_", "select")


def test_inexact_results_are_judged_by_float64() -> None:
    args = [torch.linspace(-2, 2, 50)]
    close = after(lambda out, x: torch.nextafter(out, out + 1))
    far = after(lambda out, x: out * (1 + 1e-5))
    assert not check(torch.exp, args, target=close).ok  # type: ignore[arg-type]
    assert check(torch.exp, args, target=close, exact=False).ok  # type: ignore[arg-type]
    assert check(torch.exp, args, target=far, exact=False).symptoms == ("value",)  # type: ignore[arg-type]


def test_inexact_memory_is_judged_too() -> None:
    def grow(x: torch.Tensor) -> torch.Tensor:
        return x[::2].exp_()

    def off(factor: float) -> Wrong:
        def change(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return out.mul_(factor)

        return after(change)

    args = [torch.linspace(-2, 2, 51)]
    assert check(grow, args, target=off(1 + 1e-7), exact=False).ok  # type: ignore[arg-type]
    assert check(grow, args, target=off(1 + 1e-5), exact=False).symptoms == ("value", "memory")  # type: ignore[arg-type]


def test_a_later_call_is_compared_too() -> None:
    from fuzz.variants import backwards

    def first_only(fn: Fn) -> Fn:
        results: list[Any] = []

        def run(x: torch.Tensor) -> Any:
            out = fn(x)
            results.append(out.clone())
            return out.copy_(results[0]) if len(results) > 1 else out

        return run

    program = trace(lambda x: x + 1, base())
    assert check(program, target=Wrong(first_only)).ok  # type: ignore[arg-type]
    verdict = check(program, target=Wrong(first_only), calls=[backwards(program.entry)])  # type: ignore[arg-type]
    assert verdict.call == 1
    assert verdict.signature is not None
    assert verdict.signature.symptom == "value in a later call"


def test_a_hanging_target_ends_as_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "TIME_LIMIT", 0.2)

    def hang(fn: Fn) -> Fn:
        def run(*_: Any) -> Any:
            while True:
                time.sleep(0.01)

        return run

    target = Wrong(hang)
    target.unsafe = True  # type: ignore[attr-defined]
    assert seen(target).symptoms == ("timeout",)


def test_a_refusal_is_no_failure() -> None:
    def refuse(fn: Fn) -> Fn:
        raise NotImplementedError("no views, sorry")

    target = Wrong(refuse)
    target.refusal = str  # type: ignore[attr-defined]
    verdict = seen(target)
    assert verdict.ok
    assert verdict.refused == "no views, sorry"


def test_an_unknown_target_is_named_with_the_known_ones() -> None:
    with pytest.raises(TargetError, match=r"no target 'nul'; there are null, "):
        check(add_one, [base()], target="nul")
