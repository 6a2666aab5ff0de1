"""Programs run call by call in eager, and take arguments like the function they were traced from."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from executor.args import Dict, List, Ref, Tuple
from executor.errors import AliasfuzzError, ArgumentError
from executor.interpreter import bind, flatten, run
from executor.memory import allocate
from executor.program import Call, Iota, Param, Program, Storage, Value
from executor.recorder import Recorder
from executor.tracing import trace, trace_refused


def nested() -> Program:
    """A program whose parameters are a tensor, a tree, and numbers."""

    def fn(x: torch.Tensor, tree: Any, scale: float = 2.0, mode: Any = None) -> Any:
        assert mode is None
        x.mul_(scale)
        return {"x": x, "both": [tree["pair"][0] + x, (tree["pair"][1],)]}

    return trace(fn, torch.ones(2), {"pair": (torch.ones(2), torch.zeros(2)), "n": 3}, 2.0, None)


def tree(**changes: Any) -> Any:
    return {"pair": (torch.ones(2), torch.zeros(2)), "n": 3} | changes


def test_a_program_is_called_like_its_function() -> None:
    x, given = torch.ones(2), tree()
    out = nested()(x, given, mode=None, scale=2.0)
    assert out["x"] is x
    assert x.tolist() == [2.0, 2.0]
    assert out["both"][0].tolist() == [3.0, 3.0]
    assert out["both"][1] == (given["pair"][1],)


def test_lists_and_tuples_may_stand_for_one_another() -> None:
    out = nested()(torch.ones(2), tree(pair=[torch.ones(2), torch.zeros(2)]), 2.0, None)
    assert out["both"][0].tolist() == [3.0, 3.0]


def test_bind_gives_the_tensors_in_order() -> None:
    x, given = torch.ones(2), tree()
    bound = bind(nested(), (x,), {"tree": given, "scale": 2.0, "mode": None})
    assert [id(tensor) for tensor in bound] == [id(x), id(given["pair"][0]), id(given["pair"][1])]


SIGNATURE = "this program takes (x, tree, scale, mode)"


@pytest.mark.parametrize(("args", "kwargs", "message"), [
    ((1, 2, 3, 4, 5), {}, f"{SIGNATURE}, not 5 positional arguments"),
    ((torch.ones(2),), {"y": 1}, f"{SIGNATURE}; 'y' is none of them"),
    ((torch.ones(2),), {"x": 1}, f"{SIGNATURE}; 'x' came twice"),
    ((torch.ones(2),), {}, f"{SIGNATURE}; tree, scale, mode missing"),
    ((1, tree(), 2.0, None), {}, "x must be a tensor, not int"),
    ((torch.ones(2), tree(pair=(1, 2)), 2.0, None), {}, "tree['pair'][0] must be a tensor, not int"),
    ((torch.ones(2), tree(pair=(1,)), 2.0, None), {}, "tree['pair'] must be a sequence of 2 items, not (1,)"),
    ((torch.ones(2), tree(pair=torch.ones(2)), 2.0, None), {}, "tree['pair'] must be a sequence of 2 items, not a tensor"),
    ((torch.ones(2), tree(more=1), 2.0, None), {}, "tree must be a dict with the keys ['pair', 'n'], not "),
    ((torch.ones(2), tree(n=4), 2.0, None), {}, "tree['n'] must be 3, which the program was traced with, not 4"),
    ((torch.ones(2), tree(n=3.0), 2.0, None), {}, "tree['n'] must be 3, which the program was traced with, not 3.0"),
    ((torch.ones(2), tree(), 2, None), {}, "scale must be 2.0, which the program was traced with, not 2"),
    ((torch.ones(2), tree(), 2.0, "x" * 99), {}, f"mode must be None, which the program was traced with, not '{'x' * 56}..."),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_named(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        nested()(*args, **kwargs)


def test_an_argument_error_is_ours_and_a_type_error() -> None:
    assert issubclass(ArgumentError, AliasfuzzError)
    assert issubclass(ArgumentError, TypeError)


def test_nan_is_the_number_that_it_was() -> None:
    program = trace(lambda x, n: x * n, torch.ones(1), float("nan"))
    assert torch.isnan(program(torch.ones(1), float("nan")))
    with pytest.raises(ArgumentError, match="n must be nan"):
        program(torch.ones(1), 1.0)


def test_a_run_has_the_effects_of_the_function() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        a[1:].mul_(2)
        b.add_(a[:3])
        return a.sum(), b

    base = torch.arange(8.0)
    program = trace(fn, base[:4], base[4:7])
    ours, theirs = base.clone(), base.clone()
    total, b = program(ours[:4], ours[4:7])
    wanted_total, wanted_b = fn(theirs[:4], theirs[4:7])
    assert torch.equal(ours, theirs)
    assert torch.equal(total, wanted_total)
    assert torch.equal(b, wanted_b)


def test_another_alias_pattern_has_that_patterns_effects() -> None:
    program = trace(lambda a, b: a.add_(1) + b, torch.ones(3), torch.ones(3))
    x = torch.ones(3)
    assert program(x, x).tolist() == [4.0] * 3


def test_one_object_may_be_returned_several_times() -> None:
    program = trace(lambda a: (a, a.mul_(2), [a]), torch.ones(1))
    x = torch.ones(1)
    first, second, (third,) = program(x)
    assert first is second is third is x


def test_constants_are_new_in_every_run() -> None:
    program = trace(lambda x: torch.tensor([1.0, 2.0]).add_(x), torch.ones(2))
    assert program(torch.ones(2)).tolist() == program(torch.ones(2)).tolist() == [2.0, 3.0]


def test_a_program_without_calls_returns_its_inputs() -> None:
    values = (Value(0, "float32", (2,), (1,)), Value(0, "float32", (2,), (1,)))
    program = Program((Storage(8, Iota("float32")),), values, (Param("x", Ref(0)), Param("y", Ref(1))), (),
                      Dict((("k", List((Ref(1), 5))), ("l", Tuple((Ref(0),))))))  # fmt: skip
    x, y = allocate(program.entry).tensors
    out = run(program, [x, y])
    assert out["k"][0] is y
    assert out["k"][1] == 5
    assert out["l"] == (x,)


def test_a_refused_program_raises_what_eager_raises_after_the_calls_before() -> None:
    def fn(x: torch.Tensor) -> Any:
        x.mul_(2)
        return x[1:].add_(x[:-1])

    program = trace_refused(fn, torch.ones(3))
    x = torch.ones(3)
    with pytest.raises(RuntimeError, match="single memory location"):
        program(x)
    assert x.tolist() == [2.0] * 3


def test_a_call_with_too_many_results_is_no_silent_truncation() -> None:
    x = Value(0, "float32", (3,), (1,))
    call = Call("aten.neg.default", (Ref(0),), (), (1, 2))
    program = Program((Storage(12, Iota("float32")),), (x, x, x), (Param("x", Ref(0)),), (call,), Ref(2))
    with pytest.raises(ValueError, match="shorter"):
        program(torch.ones(3))


def test_too_few_inputs_are_no_silent_truncation() -> None:
    program = trace(lambda a, b: a + b, torch.ones(1), torch.ones(1))
    with pytest.raises(ValueError, match="shorter"):
        run(program, [torch.ones(1)])


def test_results_are_flattened_in_order_and_none_is_left_out() -> None:
    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3)
    assert [t.numel() for t in flatten((a, [b, None], 5, (c,)))] == [1, 2, 3]
    assert flatten(None) == flatten(3) == []


def test_what_eager_refuses_on_some_inputs_runs_on_others() -> None:
    recorder, x = Recorder(), torch.arange(4.0)
    given = recorder.input(x, Storage(16, Iota("float32")))
    left, right = (recorder.call(torch.ops.aten.slice.Tensor, x, 0, k, k + 3) for k in (0, 1))
    with pytest.raises(RuntimeError, match="unsupported operation"):
        recorder.call(torch.ops.aten.copy_.default, left, right)
    program = recorder.program([Param("x", Ref(given))])
    with pytest.raises(RuntimeError, match="unsupported operation"):
        program(torch.arange(4.0))
    wide = torch.arange(8.0)[::2]  # eager checks dense operands only
    assert program(wide) is None
    assert wide.tolist()[-2:] == [6.0, 6.0]
