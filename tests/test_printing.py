"""Printed programs do what the interpreter does: the same dispatched calls, results, memory and sharing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings

from executor.args import Const, Device, Dict, List, Number, Ref, Tuple, to_python
from executor.errors import ProgramError
from executor.limits import Limits
from executor.memory import allocate, value_of
from executor.printing import function, load, source
from executor.program import Call, Iota, Literal, Param, Program, Storage, Value
from executor.schema_fixes import SET_DATA
from executor.tracing import trace, trace_refused
from strategies import lists
from strategies.programs import programs
from tests.behaviour import calls_of, dispatched, outcome, written_views
from tests.overloads import CALLS, record

# What torch has no public function or method for, or none that reaches this overload with these arguments.
VERBATIM = [
    "aten.__and__.Scalar",
    "aten.__lshift__.Scalar",
    "aten._fft_c2c.default",
    "aten._foreach_add.Scalar",
    "aten._foreach_add_.Scalar",
    "aten._foreach_mul_.List",
    "aten._log_softmax.default",
    "aten._neg_view.default",
    "aten._reshape_alias.default",
    "aten._softmax.default",
    "aten._unsafe_view.default",
    "aten.add.Scalar",
    "aten.add_.Scalar",
    "aten.block_diag.default",
    "aten.broadcast_tensors.default",
    "aten.elu.default",
    "aten.hardtanh.default",
    "aten.max.dim_max",
    "aten.mul.Scalar",
    "aten.native_layer_norm_backward.default",
    "aten.norm.Scalar",
    "aten.numpy_T.default",
    "aten.silu_.default",
    "aten.tensordot.default",
    "aten.var_mean.correction",
    "prims.convert_element_type.default",
    "prims.mul.default",
]
# Overloads that are printed verbatim for some arguments only.
ODD_ARGUMENTS = """
aten.slice.Tensor(x, 1, 0, 9223372036854775807)
aten.slice.Tensor(x, 0)
aten.slice.Tensor(x, -1, 1, 3, 2)
aten.slice.Tensor(x, 1, None, 3)
aten.slice.Tensor(x, 1, 1, None, 2)
aten._to_copy.default(x)
aten._to_copy.default(x, device=cpu)
aten.full.default([2], -0.0)
aten.index.Tensor(x, [k])
aten.index_put_.default(x, [None, i], s, True)
aten.zeros.default([3])
""".strip().splitlines()

PRETTY = {
    "aten.slice.Tensor(x, 1, 1, 3)": "x[:, 1:3]",
    "aten.slice.Tensor(x, 0, 0, 3)": "x[:3]",
    "aten.slice.Tensor(x, 1, 0, 4)": "x.narrow(1, 0, 4)",
    "aten.slice.Tensor(x, 1, -2, 9223372036854775807)": "x[:, -2:]",
    "aten.slice.Tensor(x, 1, 0, 9223372036854775807, 2)": "x[:, ::2]",
    "aten.slice.Tensor(x, -1, 1, 3)": "x.narrow(-1, 1, 2)",
    "aten.select.int(x, 1, -1)": "x[:, -1]",
    "aten.select.int(x, -1, 0)": "x.select(-1, 0)",
    "aten.view.default(x, [2, 6])": "x.view(2, 6)",
    "aten.view.default(s, [])": "s.view([])",
    "aten.view.dtype(x, torch.int32)": "x.view(torch.int32)",
    "aten.permute.default(x, [1, 0])": "x.permute(1, 0)",
    "aten.alias.default(x)": "x[...]",
    "aten._conj.default(z)": "z.conj()",
    "aten.mT.default(x)": "x.mT",
    "aten.split_with_sizes.default(x, [1, 3], 1)": "a, b = x.split_with_sizes([1, 3], 1)",
    "aten.add.Tensor(x, y, alpha=3)": "x.add(y, alpha=3)",
    "aten.pow.Scalar(2, x)": "torch.pow(2, x)",
    "aten.where.self(m, x, y)": "torch.where(m, x, y)",
    "aten.gelu.default(x, approximate='tanh')": "torch.nn.functional.gelu(x, approximate='tanh')",
    "aten.special_erfcx.default(x)": "torch.special.erfcx(x)",
    "aten.linalg_vector_norm.default(x, 2, [1], True)": "torch.linalg.vector_norm(x, 2, [1], keepdim=True)",
    "aten._to_copy.default(x, dtype=torch.int32)": "x.to(dtype=torch.int32, copy=True)",
    "aten.clone.default(x, memory_format=torch.contiguous_format)": "x.clone(memory_format=torch.contiguous_format)",
    "aten.cat.default([x, y], 1)": "torch.cat([x, y], 1)",
    "aten.index.Tensor(x, [None, i])": "x[:, i]",
    "aten.sum.dim_IntList(x, [1], True)": "x.sum([1], keepdim=True)",
    "aten.nan_to_num.default(x, 0.0, float('inf'))": "x.nan_to_num(0.0, float('inf'))",
    "aten.mul.Tensor(z, complex(float('nan'), -0.0))": "z * complex(float('nan'), -0.0)",
    "aten.add.Tensor(x, -1)": "x + -1",
    "aten.sub.Tensor(x, y)": "x - y",
    "aten.neg.default(x)": "-x",
    "aten.arange.start(1, 5, device=torch.device('cpu'), pin_memory=False)": "torch.arange(1, 5, device='cpu')",
    "aten.zeros_like.default(x)": "torch.zeros_like(x)",
    "aten._unsafe_view.default(x, [12])": "torch.ops.aten._unsafe_view.default(x, [12])",
}


def prints(program: Program) -> list[str]:
    """The lines of the body."""
    return [line.strip() for line in function(program).splitlines()[1:]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", CALLS)
def test_a_printed_call_does_what_the_operator_does(expression: str) -> None:
    program = record(expression)
    printed = load(program)
    assert dispatched(printed, program) == dispatched(program, program)
    assert outcome(printed, program) == outcome(program, program)


# Drawn because they are operators of their own, which no public spelling reaches; nor any of "Scalar" overloads.
UNSPOKEN = frozenset("""
aten.__iand__.Tensor aten.__ilshift__.Tensor aten.__ior__.Tensor aten.__irshift__.Tensor aten.__ixor__.Tensor
aten._reshape_alias.default aten.hardtanh.default aten.hardtanh_.default aten.matrix_H.default aten.numpy_T.default
aten.relu6.default aten.relu6_.default
""".split())  # noqa: SIM905 # fmt: skip
# Lists of tensors have no public spelling; a number among the parameters would be an argument of the function; assigned
# `.data` is seen by a tracer only as Python source has it, and a part of a source as one of its storage.
BANNED = {SET_DATA, "aten.set_.source_Tensor_storage_offset", *(write.op for write in lists.WRITES)}
PLAIN = Limits(numbers=False, raising=False, banned_ops=frozenset(BANNED))


@settings(max_examples=100, deadline=None)
@given(programs(PLAIN))
def test_a_generated_program_prints_as_what_it_does_with_few_verbatim_operators(program: Program) -> None:
    printed = load(program)
    assert dispatched(printed, program) == dispatched(program, program)
    assert outcome(printed, program) == outcome(program, program)
    verbatim = {op for op in re.findall(r"torch\.ops\.([\w.]+)\(", function(program)) if ".Scalar" not in op}
    assert verbatim <= UNSPOKEN


def test_there_are_many_operators_and_most_are_printed_as_public_functions() -> None:
    assert len({call.partition("(")[0] for call in CALLS}) > 280
    verbatim = [call for call in CALLS if "torch.ops" in function(record(call))]
    assert {call for call in verbatim if call.partition("(")[0] not in VERBATIM} == set(ODD_ARGUMENTS)
    assert {call.partition("(")[0] for call in verbatim} >= set(VERBATIM)


def test_private_names_stand_in_verbatim_operators_only() -> None:
    text = "\n".join(function(record(call)) for call in CALLS)
    assert re.findall(r"(?<!torch\.ops\.aten)\._\w+", text) == []


@pytest.mark.parametrize(("expression", "text"), PRETTY.items())
def test_the_prettiest_form_that_is_right_is_taken(expression: str, text: str) -> None:
    assert prints(record(expression.replace("torch.device('cpu')", "cpu")))[0].removeprefix("a = ") == text


def test_a_program_reads_like_python() -> None:
    assert str(written_views()) == (
        "def program(a, b):\n"
        "    c = a.view(12)\n"
        "    c.mul_(2)\n"
        "    d = b[:, 1:4:2]\n"
        "    e = a[0, 1]\n"
        "    d.add_(e, alpha=3)\n"
        "    return a, d\n"
    )


def test_a_printed_program_traces_to_the_same_program() -> None:
    program = written_views()
    again = trace(load(program), *allocate(program.entry).tensors)
    assert again.digest == program.digest


def test_factories_and_dtype_views_trace_to_the_same_program() -> None:
    def fn(a: torch.Tensor) -> Any:
        made = torch.zeros(3) + torch.arange(3), torch.ones_like(a), torch.empty(2, dtype=torch.int64).fill_(3)
        return a.view(torch.int32), made, torch.zeros(2).detach(), torch.where(a > 1, a, 0)

    program = trace(fn, torch.ones(2))
    again = trace(load(program), *allocate(program.entry).tensors)
    assert [call.op for call in program.calls].count("aten.detach.default") == 1
    assert calls_of(again) == calls_of(program)


def test_the_function_takes_the_name_that_is_asked_for() -> None:
    assert function(written_views(), "reduced").startswith("def reduced(a, b):\n")


def test_selects_join_only_if_nothing_else_uses_what_lies_between() -> None:
    x = torch.arange(24.0).view(2, 3, 4)

    def joined(a: torch.Tensor) -> Any:
        return a[1, :, 2], a[:, 0, 1:3], a[0, 1][2]

    def apart(a: torch.Tensor) -> Any:
        row = a[1]
        return row[0], row, a[:, 1:][:, 0]

    assert prints(trace(joined, x))[:3] == ["b = a[1, :, 2]", "c = a[:, 0, 1:3]", "d = a[0, 1, 2]"]
    assert prints(trace(apart, x))[:4] == ["b = a[1]", "c = b[0]", "d = a[:, 1:]", "e = d[:, 0]"]


@pytest.mark.parametrize("fn", [
    lambda a: a[1, :, 2],
    lambda a: a[0:2][0],
    lambda a: a[0][0:3],
    lambda a: a[:, 0:3][:, 0],
    lambda a: a[1:, ::2, -1],
    lambda a: a[0, ..., 1],
])  # fmt: skip
def test_a_joined_subscript_traces_to_the_same_calls(fn: Callable[..., Any]) -> None:
    program = trace(fn, torch.arange(24.0).view(2, 3, 4))
    assert trace(load(program), *allocate(program.entry).tensors).digest == program.digest


def test_parameters_that_are_trees_are_unpacked() -> None:
    a, b, c = torch.ones(2), torch.zeros(2), torch.full((2,), 5.0)

    def fn(pair: Any, single: Any, tree: Any, scale: float) -> Any:
        pair[0].add_(pair[1])
        return {"sum": pair[0] + single[0], "rest": [tree["k"][0] * scale, (None, "x", 1.5)]}

    program = trace(fn, (a, b), [c], {"k": [b], "n": 3}, 2.0)
    assert prints(program) == [
        "pair0, pair1 = pair",
        "(single0,) = single",
        "tree0 = tree['k'][0]",
        "pair0.add_(pair1)",
        "a = pair0 + single0",
        "b = tree0 * 2.0",
        "return {'sum': a, 'rest': [b, (None, 'x', 1.5)]}",
    ]
    out = load(program)((a.clone(), b), [c], {"k": [b], "n": 3}, 2.0)
    assert out["sum"].tolist() == [6.0, 6.0]
    assert out["rest"][1] == (None, "x", 1.5)


def test_names_are_unique_identifiers_that_hide_nothing() -> None:
    names = ["torch", "if", "sum", "a b", "a-b", "9", "x", "x0", "_", "é"]
    values = tuple(Value(k, "float32", (2,), (1,)) for k in range(11))
    params = [Param(name, List((Ref(k), Ref(k + 4))) if name == "x" else Ref(k)) for k, name in enumerate(names)]
    params[7:] = [Param(name, Ref(k)) for k, name in enumerate(names[7:], start=7)]
    storages = tuple(Storage(8, Iota("float32")) for _ in values)
    program = Program(storages, values, tuple(params), (), Tuple(tuple(Ref(k) for k in range(11))))
    printed = load(program)
    given = list(inspect.signature(printed).parameters)
    assert given == ["torch_", "if_", "sum_", "a_b", "a_b_", "_9", "x", "x0", "_", "__"]
    tensors = [torch.full((2,), float(k)) for k in range(11)]
    args = [[tensors[6], tensors[10]] if name == "x" else tensors[k] for k, name in enumerate(given)]
    assert [int(tensor[0]) for tensor in printed(*args)] == list(range(11))


def test_names_go_on_after_z_and_pass_over_keywords_and_builtins() -> None:
    def fn(a: torch.Tensor, n: torch.Tensor) -> Any:
        for _ in range(750):
            a = a.neg()
        return a, n

    program = trace(fn, torch.ones(1), torch.ones(1))
    names = [line.partition(" = ")[0] for line in prints(program) if " = " in line]
    assert names[:3] == ["b", "c", "d"]
    assert names[23:27] == ["z", "aa", "ab", "ac"]
    assert not {"a", "n", "as", "if", "in", "is", "id", "or"} & set(names)
    assert load(program)(torch.ones(1), torch.ones(1))[0].item() == 1.0


def test_constants_stand_at_the_top_and_are_new_in_every_run() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        c = torch.tensor([[1.0, float("inf")], [float("nan"), -0.0]])
        c += y
        return c, torch.tensor(7), torch.tensor([], dtype=torch.int64), torch.tensor([2 + 1j, complex(0, -0.0)])

    program = trace(fn, torch.ones(2, 2))
    assert prints(program)[:4] == [
        "a = torch.tensor([[1.0, float('inf')], [float('nan'), -0.0]], dtype=torch.float32)",
        "b = torch.tensor(7, dtype=torch.int64)",
        "c = torch.tensor([], dtype=torch.int64).as_strided((0,), (1,), 0)",
        "d = torch.tensor([(2+1j), complex(0.0, -0.0)], dtype=torch.complex64)",
    ]
    printed = load(program)
    assert outcome(printed, program) == outcome(program, program)
    assert printed(torch.ones(2, 2))[0][0, 0].item() == printed(torch.ones(2, 2))[0][0, 0].item() == 3.0


def test_a_constant_may_lie_anywhere_on_its_storage() -> None:
    literal = Literal("float32", (1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    values = (
        Value(0, "float32", (3,), (2,), 1),
        Value(1, "int32", (2, 3), (3, 1)),
        Value(2, "float32", (2, 2), (1, 2)),
    )
    program = Program((Storage(24, literal),) * 3, values, (), (), Tuple((Ref(0), Ref(1), Ref(2))), constants=(0, 1, 2))
    found, wanted = load(program)(), program()
    assert [value_of(t, k) for k, t in enumerate(found)] == list(values)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_results_that_are_none_or_numbers_are_passed_over() -> None:
    line = prints(record("aten.native_layer_norm_backward.default(x, y, [4], f3, h3, f4, h4, [True, False, True])"))[0]
    assert line.startswith("a, b = [t for t in torch.ops.aten.native_layer_norm_backward.default(x, y, [4],")
    assert line.endswith(" if t is not None]")


def test_a_list_of_one_tensor_is_unpacked() -> None:
    assert prints(record("aten.split.Tensor(x, 3)"))[0] == "(a,) = x.split(3)"
    assert prints(record("aten.unbind.int(x)"))[0] == "a, b, c = tuple(x)"


def test_an_operator_that_returns_several_lists_cannot_be_printed() -> None:
    call = Call("aten._foreach_norm.Scalar", (List((Ref(0),)),), (), (1,))
    lists = msgspec.structs.replace(call, op="aten._fused_adagrad.default", args=())
    program = Program(
        (Storage(4),) * 2, (Value(0, "float32", (1,), (1,)), Value(1, "float32", (1,), (1,))), (), (lists,), Ref(1)
    )
    with pytest.raises(ProgramError, match="returns several lists"):
        function(program)


def test_a_refused_program_raises_what_eager_raises() -> None:
    def fn(x: torch.Tensor) -> Any:
        x.mul_(2)
        x.add_(x.view(4, 3))

    program = trace_refused(fn, torch.ones(3, 4))
    assert prints(program) == ["x.mul_(2)", "a = x.view(4, 3)", "x.add_(a)", "return None"]
    with pytest.raises(RuntimeError, match="single memory location"):
        load(program)(torch.ones(3, 4))


@pytest.mark.parametrize(("arg", "text"), [
    (Number("inf"), "float('inf')"),
    (Number("-inf"), "float('-inf')"),
    (Number("nan"), "float('nan')"),
    (Number("(1+2j)"), "(1+2j)"),
    (Number("(-0+2j)"), "complex(-0.0, 2.0)"),
    (Number("(nan+infj)"), "complex(float('nan'), float('inf'))"),
    (Const("float32"), "torch.float32"),
    (Device("cuda:1"), "'cuda:1'"),
    (Dict((("k", Tuple((1,))), ("l", List(())))), "{'k': (1,), 'l': []}"),
    (Tuple(()), "()"),
    ("it's", '"it\'s"'),
    (-0.0, "-0.0"),
    (None, "None"),
])  # fmt: skip
def test_arguments_print_as_the_python_that_makes_them(arg: Any, text: str) -> None:
    assert source(arg, {}) == text
    remade = eval(text, {"torch": torch})  # noqa: S307 (text that we made)
    assert repr(remade) == repr(to_python(arg, ())).replace("device(type='cuda', index=1)", "'cuda:1'")
