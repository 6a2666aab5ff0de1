"""Tracing: any Python function over tensors that may alias becomes a program, or is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from executor.args import Dict, List, Ref, Tuple
from executor.errors import ArgumentError, DataDependentError, TraceError
from executor.program import Iota, Literal, Program
from executor.tracing import Tracer, trace, trace_refused
from executor.validate import validate, validate_geometry


def ops(program: Program) -> list[str]:
    return [call.op.removeprefix("aten.") for call in program.calls]


def base() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4)


def test_views_writes_and_storages_are_kept() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = a.view(12)[2:8:2]
        c.mul_(b)
        return c

    x = base()
    program = trace(fn, x, x[1, 1:])
    validate(program)
    validate_geometry(program)
    assert ops(program) == ["view.default", "slice.Tensor", "mul_.Tensor"]
    a, b, flat, part = program.values
    assert {value.storage for value in program.values} == {0}
    assert (b.shape, b.strides, b.offset) == ((3,), (1,), 5)
    assert (part.shape, part.strides, part.offset) == ((3,), (2,), 2)
    assert program.calls[2].results == program.calls[1].results
    assert program.outputs == Ref(3)
    assert (a.shape, flat.shape) == ((3, 4), (12,))


def test_the_arguments_are_left_alone() -> None:
    x = base()
    trace(lambda a: a.add_(1), x)
    assert torch.equal(x, base())


def test_the_program_does_what_the_function_does() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a[0] = b[1] * 2
        b += 1
        return a.t(), b.sum()

    x, y = base(), base()
    program = trace(fn, x, x.clone())
    ours, theirs = program(x, y), fn(z := base(), w := base())
    assert torch.equal(x, z)
    assert torch.equal(y, w)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert ours[0].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_one_tensor_passed_twice_is_two_values_and_one_object() -> None:
    program = trace(lambda a, b: (a.add_(1), b.mul_(2)), *[base()] * 2)
    assert program.twins == ((1, 0),)
    assert [call.results for call in program.calls] == [(0,), (1,)]


def test_trees_of_arguments_and_results_keep_their_containers() -> None:
    def fn(pair: tuple[torch.Tensor, float], *, named: dict[str, list[torch.Tensor]]) -> dict[str, Any]:
        return {"sum": [pair[0] + pair[1], None], "same": (named["x"][0],)}

    program = trace(fn, (base(), 2.0), named={"x": [torch.ones(2)]})
    assert [param.name for param in program.params] == ["pair", "named"]
    assert program.params[0].value == Tuple((Ref(0), 2.0))
    assert program.params[1].value == Dict((("x", List((Ref(1),))),))
    assert program.outputs == Dict((("sum", List((Ref(2), None))), ("same", Tuple((Ref(1),)))))
    out = program((base(), 2.0), named={"x": [torch.ones(2)]})
    assert torch.equal(out["sum"][0], base() + 2)
    with pytest.raises(ArgumentError, match=r"pair\[1\] must be 2.0"):
        program((base(), 3.0), named={"x": [torch.ones(2)]})


def test_contents_are_kept_where_they_are_small() -> None:
    assert trace(lambda a: a + 1, torch.tensor([3.0, 1.0])).storages[0].fill == Literal("float32", (3.0, 1.0))
    assert trace(lambda a: a + 1, torch.zeros(5000)).storages[0].fill == Iota("float32")
    geometry = Tracer(lambda a: a + 1, [torch.tensor([3.0])], {}, contents=False).trace()
    assert geometry.storages[0].fill == Iota("float32")


def test_each_call_names_its_source_line() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        b = a + 1
        return b.neg_()

    first = fn.__code__.co_firstlineno
    sources = [call.source for call in trace(fn, base()).calls]
    assert [source.line - first for source in sources if source] == [1, 2]
    assert all(source is not None and source.file == __file__ for source in sources)


def test_literals_become_constants_that_are_new_in_each_run() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, 2.0]).add_(a)

    program = trace(fn, torch.ones(2))
    assert len(program.constants) == 1
    assert program(torch.ones(2)).tolist() == [2, 3]
    assert program(torch.ones(2)).tolist() == [2, 3]


def test_a_large_literal_is_refused() -> None:
    numbers = list(range(5000))
    with pytest.raises(TraceError, match="a constant of 5000 elements"):
        trace(lambda a: a + torch.tensor(numbers), torch.ones(5000))


OUTSIDE = torch.ones(2, 3)
REFUSED = [
    (DataDependentError, r"\.item\(\), or a condition on a tensor, at .*:\d+", lambda a: a.sum().item()),
    (DataDependentError, r"\.item\(\), or a condition", lambda a: a if a.sum() > 0 else -a),
    (DataDependentError, r"Tensor\.tolist reads a tensor's contents at .*:\d+", lambda a: a.tolist()),
    (DataDependentError, r"Tensor\.numpy reads", lambda a: torch.from_numpy(a.numpy() + 1)),
    (DataDependentError, r"Tensor\.(__array__|numpy) reads", np.asarray),
    (DataDependentError, r"Tensor\.__repr__ reads a tensor's contents at .*:\d+", str),
    (DataDependentError, r"Tensor\.__format__ reads", lambda a: f"{a}"),
    (TraceError, "returns a leaf that it makes itself", lambda a: a.clone().requires_grad_()),
    (TraceError, r"returns an object of type torch\.return_types\.max.* as tuple\(\) does", lambda a: a.max(1)),
    (TraceError, r"returns what a program cannot: .* not 1 of type int", lambda a: {1: a}),
    (DataDependentError, r"aten\.nonzero\.default at", lambda a: a.nonzero()),
    (DataDependentError, r"aten\.index\.Tensor at .* depends on data", lambda a: a[a > 1]),
    (DataDependentError, r"aten\.equal\.default at", lambda a: torch.equal(a, a)),
    (TraceError, r"longer, which is not supported \(aten\.resize_\.default at .*:\d+", lambda a: (a + 1).resize_(99)),
    (TraceError, r"aten\.set_\..* at .* takes a storage", lambda a: (a + 1).set_(a.untyped_storage())),
    (TraceError, r"aten\.rand\.default at .* draws random numbers", lambda a: a + torch.rand(3)),
    (TraceError, r"the variable .OUTSIDE. from outside the function \(2x3, torch.float32\) is used.*aten\.mul\.Tensor at .*:\d+",
     lambda a: OUTSIDE * a[0, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("error", "message", "fn"), REFUSED)
def test_what_no_program_can_hold_is_refused_by_name(error: type[Exception], message: str, fn: Any) -> None:
    with pytest.raises(error, match=message):
        trace(fn, base())


def test_a_masked_write_is_no_data_dependence() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        a[a > 3] = 0
        return a

    program = trace(fn, base())
    assert torch.equal(program(base()), fn(base()))


def test_inputs_that_no_program_can_hold_are_refused_by_name() -> None:
    with pytest.raises(TraceError, match=r"layout torch\.sparse_coo"):
        trace(lambda a: a, torch.ones(2).to_sparse())

    class Mine(torch.Tensor):
        pass

    with pytest.raises(TraceError, match="an argument is a Mine"):
        trace(lambda a: a, torch.ones(2).as_subclass(Mine))
    with pytest.raises(ArgumentError, match="a program cannot hold"):
        trace(lambda a: a, object())
    with pytest.raises(ArgumentError, match=r"an argument holds range\(0, 3\) of type range"):
        trace(lambda a: a, range(3))
    with pytest.raises(TraceError, match="device meta"):
        trace(lambda a: a, torch.ones(2, device="meta"))


def test_eagers_refusals_are_eagers() -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x[1:].add_(x[:-1])

    with pytest.raises(RuntimeError, match="unsupported operation"):
        trace(shifted, base())
    program = trace_refused(shifted, base())
    validate(program)
    assert program.raises == "RuntimeError"
    assert program.calls[-1].results == ()
    with pytest.raises(RuntimeError, match="unsupported operation"):
        program(base())
    with pytest.raises(TraceError, match="eager does not refuse"):
        trace_refused(lambda x: x + 1, base())


def test_an_error_of_the_function_itself_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        trace(lambda x: 1 / 0, base())
    with pytest.raises(ZeroDivisionError):
        trace_refused(lambda x: 1 / 0, base())


def test_storages_keep_dtypes_offsets_and_lazy_bits() -> None:
    z = torch.complex(torch.arange(4.0), torch.ones(4))
    program = trace(lambda a, b, c: a.real + b.imag + c, z, z.conj(), z.real)
    validate_geometry(program)
    assert [program.values[i].conj for i in program.inputs] == [False, True, False]
    assert len({program.values[i].storage for i in program.inputs}) == 1
    assert program.values[2].dtype == "float32"


def test_empty_tensors_do_not_share() -> None:
    program = trace(lambda a, b: (a.add_(1), b + 1), torch.empty(0), torch.empty(0, dtype=torch.int64))
    assert program.values[0].storage != program.values[1].storage


@pytest.mark.parametrize("seed", range(3))
def test_tracing_a_traced_program_gives_it_again(seed: int) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a[seed].copy_(b[:, 0])
        return a.sum(0) * 2

    program = trace(fn, base(), torch.ones(4, 2)).without_sources()
    assert trace(program, base(), torch.ones(4, 2)).without_sources().calls == program.calls
