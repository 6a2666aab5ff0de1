"""`check`: every kind of difference from eager is seen, and nothing else is."""

from __future__ import annotations

import collections
import ctypes
import enum
import itertools
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
import torch

from executor.errors import ArgumentError, TargetError, TraceError
from executor.program import Iota, Program, Storage
from executor.tracing import trace
from fuzz import check as check_module
from fuzz.check import Verdict, check
from fuzz.runs import quiet
from fuzz.subjects import mixed_storages

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
    assert verdict.signature.accesses == ("in-place", "output")


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


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Size(enum.IntEnum):
    SMALL = 1


class Tensors(list[torch.Tensor]):
    """A list of a class of its own."""


OUTSIDE = torch.ones(4)
ODD: dict[str, tuple[Fn, str]] = {
    "named tuple": (lambda x: Pair(x, x[1:]), "Pair"),
    "two results": (lambda x: x.max(1), "torch.return_types.max"),
    "size": (lambda x: x.shape, "torch.Size"),
    "ordered dict": (lambda x: collections.OrderedDict(a=x), "collections.OrderedDict"),
    "numbered dict": (lambda x: {1: x}, "string keys, not 1"),
    "list of its own": (lambda x: Tensors([x]), "Tensors"),
    "enum": (lambda _: Size.SMALL, "Size"),
    "object": (lambda _: object(), "cannot hold <object"),
    "array": (lambda _: np.arange(3.0), r"cannot hold array"),
    "range": (lambda _: range(3), "builtins.range"),
    "item": (lambda x: x.sum().item(), r"\.item\(\), or a condition"),
    "outside": (lambda x: x + OUTSIDE, "pass it as an argument"),
    "resized": (lambda x: x.resize_(2), "changes a tensor's shape"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_our_compiler_cannot_hold_is_refused_and_no_difference(name: str) -> None:
    fn, message = ODD[name]
    assert str(check(fn, [base()], target="null")) == "null: ok"
    for target in ("pipeline:eager", "pipeline"):
        verdict = check(fn, [base()], target=target)
        assert verdict.ok
        assert verdict.refused is not None
        assert re.search(message, verdict.refused)


def test_our_compiler_may_refuse_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    program = trace(add_one, base())
    assert check(program, target="pipeline").ok

    def refuse(*_: Any) -> Any:
        raise TraceError("no")

    monkeypatch.setattr("executor.jit.Tracer", refuse)
    assert check(program, target="pipeline").symptoms == ("exception",)


def test_containers_of_arguments_keep_their_kind() -> None:
    def fn(pair: Pair, table: collections.OrderedDict[str, torch.Tensor]) -> torch.Tensor:
        table.move_to_end("a")
        return pair.first.add_(pair.second.sum()) + next(iter(table.values()))

    x = base()
    for target in ("null", "pipeline:eager", "pipeline"):
        table = collections.OrderedDict(a=x[1], b=x[2])
        assert str(check(fn, [Pair(x[0], x[1]), table], target=target)) == f"{target}: ok"


@pytest.mark.parametrize("dtype", [torch.complex32, torch.float8_e4m3fn, torch.uint16])
def test_dtypes_that_torch_compares_not(dtype: torch.dtype) -> None:
    with quiet():
        x = torch.arange(4).to(dtype)
    assert str(check(lambda t: (t.clone(), t), [x], target="pipeline")) == "pipeline: ok"
    verdict = seen(after(lambda out, x: out.zero_()), lambda t: t.clone(), [x])
    assert verdict.symptoms == ("value",)
    assert verdict.mismatches[0].where == "output[1]"


def test_a_function_that_raises_says_so_and_is_ok_if_both_do() -> None:
    verdict = check(lambda x: x / (1 // 0), [base()], target="null")
    assert str(verdict) == "null: ok, both raise ZeroDivisionError: integer division or modulo by zero"


def test_an_exception_that_is_no_exception_is_seen() -> None:
    class PanicError(BaseException):
        """As Rust's panics are."""

    def panic(*_: Any) -> Any:
        raise PanicError("at the disco")

    assert seen(Wrong(lambda fn: panic)).symptoms == ("exception",)
    assert str(check(panic, [], target="null")) == "null: ok, both raise PanicError: at the disco"

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        seen(Wrong(lambda fn: stop))


def test_a_function_that_keeps_state_is_named() -> None:
    count = itertools.count()
    with pytest.raises(ArgumentError, match=r"the function differs from itself .* it keeps state, or draws random"):
        check(lambda x: x + next(count), [base()], target="null")
    with pytest.raises(ArgumentError, match="draws random numbers"):
        check(lambda x: x + torch.rand(4), [base()], target="null")


def test_tensors_that_cannot_be_compared() -> None:
    verdict = seen(after(lambda out, x: out.to_sparse()))
    assert verdict.symptoms == ("structure",)
    assert "Tensor (torch.sparse_coo)" in verdict.mismatches[0].actual
    assert "Tensor (meta)" in seen(after(lambda out, x: out.to("meta"))).mismatches[0].actual
    with pytest.raises(ArgumentError, match=r"returns a Tensor \(torch.sparse_coo\); only dense"):
        check(lambda x: x.to_sparse(), [base()], target="null")


@pytest.mark.parametrize(("fn", "args", "error", "message"), [
    (add_one, base(), ArgumentError, r"args is a Tensor; it is the list of the function's arguments, such as \[x\]"),
    (add_one, 3, ArgumentError, "args is a int"),
    (3, [base()], ArgumentError, "a function or a Program, not 3"),
    (add_one, [torch.ones(2, device="meta")], TraceError, "device meta"),
    (add_one, [torch.ones(2).to_sparse()], TraceError, "no dense tensor"),
])  # fmt: skip
def test_arguments_that_make_no_call_are_named(fn: Any, args: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check(fn, args, target="null")


def test_a_bound_on_what_is_not_counted_is_named() -> None:
    with pytest.raises(ArgumentError, match="'barrier' is no metric of this target; it has regions, barriers, breaks"):
        check(add_one, [base()], target="pipeline", bounds={"barrier": 0})
    assert check(add_one, [base()], target="pipeline", bounds={"barriers": 0}).ok
    assert check(add_one, [base()], target="null", bounds={"barriers": 0}).ok


def test_a_program_with_arguments_runs_on_those() -> None:
    program = trace(add_one, base())
    severed = Wrong(lambda fn: lambda a, b: fn(a, b.clone()))
    two = trace(lambda a, b: (a.add_(1), b * 2)[1], base(), base())
    x = base()
    assert check(program, [x], target="null").ok
    assert check(two, [x, x[0]], target="null").ok
    assert check(two, [x, x[0]], target=severed).symptoms == ("value",)  # type: ignore[arg-type]


def test_a_run_that_changes_grad_mode_or_default_dtype_is_undone() -> None:
    def leave(_out: Any, x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(mode=False)
        torch.set_default_dtype(torch.float64)
        return x[1]

    seen(after(leave))
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32


def test_a_program_that_eager_refuses_for_its_contents_cannot_be_judged() -> None:
    """An index out of range is nobody's bug: compilers need not look at what an index holds."""
    program = trace(lambda x, i: x.index_fill_(0, i, 7.0), torch.ones(3), torch.tensor([0, 1, 2]))
    storages = (program.storages[0], Storage(24, Iota("int64", 5)), *program.storages[2:])
    verdict = check(msgspec.structs.replace(program, storages=storages), target="null")
    assert verdict.ok
    assert verdict.unstable is not None
    assert "out of range" in verdict.unstable or "out of bounds" in verdict.unstable


def test_complex_numbers_and_their_parts_are_compared_as_numbers_other_dtypes_as_bytes() -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        return x.real.add_(1)

    def words(x: torch.Tensor) -> torch.Tensor:
        return x.view(torch.int32).add_(1)

    found = [trace(fn, torch.ones(3, dtype=torch.complex64)) for fn in (parts, words)]
    assert [mixed_storages(program, program.entry) for program in found] == [set(), {0}]
