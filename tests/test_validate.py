"""Each rule of the validator, with a program that breaks just that rule."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings

from executor.args import Arg, Const, Device, List, Number, Ref, Tuple
from executor.errors import ProgramError
from executor.program import Call, Iota, Literal, Param, Program, Storage, Value
from executor.tracing import trace, trace_refused
from executor.validate import validate, validate_geometry
from strategies.programs import programs
from tests.overloads import CALLS, record


def good() -> Program:
    """Two inputs on one storage and a constant; a view, an in-place call, an out-of-place one and a split."""
    ramp = Storage(48, Iota("float32"))
    whole = Value(0, "float32", (3, 4), (4, 1))
    values = (
        whole,
        Value(0, "float32", (3, 4), (4, 1)),
        Value(1, "float32", (1,), (1,)),
        Value(0, "float32", (12,), (1,)),
        Value(2, "float32", (3, 4), (4, 1)),
        Value(2, "float32", (2, 4), (4, 1)),
        Value(2, "float32", (1, 4), (4, 1), 8),
    )
    calls = (
        Call("aten.view.default", (Ref(0), List((12,))), (), (3,)),
        Call("aten.mul_.Tensor", (Ref(3), Ref(2)), (), (3,)),
        Call("aten.add.Tensor", (Ref(0), Ref(1)), (("alpha", 2),), (4,)),
        Call("aten.split.Tensor", (Ref(4), 2), (), (5, 6)),
    )
    params = (Param("a", Ref(0)), Param("b", List((Ref(1), None))))
    storages = (ramp, Storage(4, Literal("float32", (5.0,))), Storage(48))
    return Program(storages, values, params, calls, Tuple((Ref(5), Ref(0))), ((1, 0),), (2,))


def change(**fields: Any) -> Program:
    return msgspec.structs.replace(good(), **fields)


def storage(n: int, **fields: Any) -> Program:
    """The good program with one storage changed."""
    items = list(good().storages)
    items[n] = msgspec.structs.replace(items[n], **fields)
    return change(storages=tuple(items))


def value(n: int, **fields: Any) -> Program:
    """The good program with one value changed."""
    items = list(good().values)
    items[n] = msgspec.structs.replace(items[n], **fields)
    return change(values=tuple(items))


def call(n: int, **fields: Any) -> Program:
    """The good program with one call changed."""
    items = list(good().calls)
    items[n] = msgspec.structs.replace(items[n], **fields)
    return change(calls=tuple(items))


def constant_of(**fields: Any) -> Program:
    """The good program with the contents of its constant changed."""
    return storage(1, fill=msgspec.structs.replace(Literal("float32", (5.0,)), **fields))


def test_a_good_program_passes() -> None:
    validate(good())
    validate_geometry(good())


STORAGES = {
    "storages[2]: nbytes is -1; it must not be negative": storage(2, nbytes=-1),
    "storages[0]: torch knows no device 'gpu'; one looks like 'cpu' or 'cuda:0'": storage(0, device="gpu"),
    "storages[0].fill: 'float33' is not the name of a dtype; names are those that torch prints, such as 'float32'":
        storage(0, fill=Iota("float33")),
    "storages[0].fill: 'strided' is not the name of a dtype": storage(0, fill=Iota("strided")),
    "storages[0].fill: 'float' is not the name of a dtype; names are those that torch prints, such as 'float32', so write "
    "'float32'": storage(0, fill=Iota("float")),
    "storages[0].fill: period is -2; it must be positive, or 0 for none": storage(0, fill=Iota("float32", 1, -2)),
    "storages[1].fill: 2 values; 4 bytes are 1 elements of float32": constant_of(values=(1.0, 2.0)),
    "storages[1].fill.values[0]: 'one' is no float32; give each element as that dtype can hold it":
        constant_of(values=("one",)),
    "storages[1].fill.values[0]: '(1+2j)' is no float32": constant_of(values=("(1+2j)",)),
    "storages[1].fill.values[0]: nan is no float32": constant_of(values=(float("nan"),)),
    "storages[1].fill.values[0]: True is no float32": constant_of(values=(True,)),
    "storages[1].fill.values[0]: 2147483648 is no int32": constant_of(dtype="int32", values=(2**31,)),
    "storages[1].fill.values[0]: 1.5 is no int32": constant_of(dtype="int32", values=(1.5,)),
    "storages[1].fill.values[1]: 1 is no bool": constant_of(dtype="bool", values=(True, 1, False, True)),
}  # fmt: skip

VALUES = {
    "values[4]: storage 3 does not exist; there are 3": value(4, storage=3),
    "values[4]: storage -1 does not exist; there are 3": value(4, storage=-1),
    "values[4]: 'double' is not the name of a dtype": value(4, dtype="double"),
    "values[4]: shape (3, 4) and strides (4,) differ in rank; give one stride a dimension": value(4, strides=(4,)),
    "values[4]: shape (-3, 4), strides (4, 1), offset 0; none may be negative": value(4, shape=(-3, 4)),
    "values[4]: shape (3, 4), strides (4, -1), offset 0; none may be negative": value(4, strides=(4, -1)),
    "values[4]: shape (3, 4), strides (4, 1), offset -1; none may be negative": value(4, offset=-1),
    "values[4]: shape (3, 4), strides (4, 1), offset 0.5; all must be whole elements": value(4, offset=0.5),
    "values[4]: conj is set on float32; only complex dtypes are conjugated": value(4, conj=True),
    "values[4]: its last byte is 51; storage 2 has 48 bytes": value(4, offset=1),
    "values[4]: its last byte is 67; storage 2 has 48 bytes": value(4, strides=(6, 1), shape=(3, 5)),
    "values[4]: nothing defines it": change(calls=good().calls[:2], outputs=None),
    "storages[3]: no value lies on it; leave it out": change(storages=(*good().storages, Storage(4))),
}

PARAMS = {
    "params[1] 'a': the name is empty or taken; parameters are told apart by their names":
        change(params=(Param("a", Ref(0)), Param("a", Ref(1)))),
    "params[0] '': the name is empty or taken": change(params=(Param("", Ref(0)), Param("b", Ref(1)))),
    "params[0] 'a': value 9 does not exist; there are 7": change(params=(Param("a", Ref(9)),)),
    "params[1] 'b': value 0 is defined already; each value is defined once":
        change(params=(Param("a", Ref(0)), Param("b", Ref(0)))),
    "params[0] 'a': value 4 lies on storage 2, which has no fill; an input's storage has contents":
        change(params=(Param("a", Ref(4)),)),
    "twins[0]: (0, 1) are no positions of inputs, the later first; there are 2 inputs": change(twins=((0, 1),)),
    "twins[0]: (2, 0) are no positions of inputs": change(twins=((2, 0),)),
    "twins[0]: (1, 0) is one of a chain; pair each input once, with the first that it equals": change(twins=((1, 0), (1, 0))),
    "twins[0]: inputs 1 and 0 differ": value(1, shape=(4, 3), strides=(3, 1)),
    "constants[0]: value 9 does not exist": change(constants=(9,)),
    "constants[0]: value 3 lies on storage 0, where another value lies; a constant has its own": change(constants=(3,)),
    "constants[1]: value 2 lies on storage 1, where another value lies": change(constants=(2, 2)),
    "constants[0]: storage 1 has no literal contents; a constant's fill is a Literal": storage(1, fill=Iota("float32")),
    "constants[0]: storage 2 has no literal contents": change(constants=(4, 2)),
}  # fmt: skip

ARGUMENTS = {
    "calls[0] aten.views.default: torch": call(0, op="aten.views.default"),
    "calls[0] view: 'view' names no operator overload": call(0, op="view"),
    "calls[0] aten.t_.default: it changes a tensor that is passed twice; the other parameter's value would change unseen":
        call(0, op="aten.t_.default", args=(Ref(0),)),
    "calls[0] aten.view.default: 3 positional arguments; it takes 2: self, size": call(0, args=(Ref(0), List((12,)), 1)),
    "calls[2] aten.add.Tensor: 3 positional arguments; it takes 2: self, other": call(2, args=(Ref(0), Ref(1), 2)),
    "calls[2] aten.add.Tensor: there is no argument 'beta'; it takes self, other, alpha": call(2, kwargs=(("beta", 2),)),
    "calls[2] aten.add.Tensor: argument 'other' is given twice; give it once, by position or by name":
        call(2, kwargs=(("other", Ref(1)),)),
    "calls[2] aten.add.Tensor: argument 'alpha' is given twice": call(2, kwargs=(("alpha", 1), ("alpha", 2))),
    "calls[2] aten.add.Tensor: argument 'other' is missing; it has no default": call(2, args=(Ref(0),)),
    "calls[2] aten.add.Tensor: argument 'other': value 5 is not defined yet; use inputs, constants and results of earlier "
    "calls": call(2, args=(Ref(0), Ref(5))),
    "calls[2] aten.add.Tensor: argument 'other': value 7 does not exist; there are 7": call(2, args=(Ref(0), Ref(7))),
    "calls[2] aten.add.Tensor: argument 'other': a sequence of value 1 does not fit; the schema says Tensor":
        call(2, args=(Ref(0), List((Ref(1),)))),
    "calls[2] aten.add.Tensor: argument 'other': None does not fit; the schema says Tensor": call(2, args=(Ref(0), None)),
    "calls[2] aten.add.Tensor: argument 'alpha': value 1 does not fit; the schema says number":
        call(2, kwargs=(("alpha", Ref(1)),)),
    "calls[2] aten.add.Tensor: argument 'alpha': 'two' does not fit": call(2, kwargs=(("alpha", "two"),)),
    "calls[2] aten.add.Tensor: argument 'alpha': Number(text='two') does not fit":
        call(2, kwargs=(("alpha", Number("two")),)),
    "calls[2] aten.add.Tensor: argument 'other': inf is a float that JSON cannot write; it stands as Number('inf')":
        call(2, args=(Ref(0), float("inf"))),
    "calls[0] aten.view.default: argument 'size': a sequence of 12.0 does not fit; the schema says List[int]":
        call(0, args=(Ref(0), List((12.0,)))),
    "calls[0] aten.view.default: argument 'size': 12 does not fit; the schema says List[int]": call(0, args=(Ref(0), 12)),
    "calls[3] aten.split.Tensor: argument 'split_size': value 0 does not fit; the schema says int":
        call(3, args=(Ref(4), Ref(0))),
}  # fmt: skip

RESULTS = {
    "calls[2] aten.add.Tensor: 2 results; the operator returns 1 tensors": call(2, results=(4, 5)),
    "calls[2] aten.add.Tensor: it has no results; only a refused last call has none, and then `raises` names the "
    "exception": call(2, results=()),
    "calls[2] aten.add.Tensor: result 0: value 7 does not exist": call(2, results=(7,)),
    "calls[2] aten.add.Tensor: result 0: value 2 lies on storage 1, where an earlier value lies; a result that is no view "
    "has a storage of its own": call(2, results=(2,)),
    "calls[2] aten.add.Tensor: result 0: value 4 lies on storage 0, where an earlier value lies": value(4, storage=0),
    "calls[2] aten.add.Tensor: result 0: value 4 lies on storage 2, which has a fill; a call's result has none":
        storage(2, fill=Iota("float32")),
    "calls[1] aten.mul_.Tensor: result 0: value 4 is not what was written; an in-place call returns its target, value 3":
        call(1, results=(4,)),
    "calls[0] aten.view.default: result 0: value 4 lies on storage 2; a view lies where its operand does, on 0":
        call(0, results=(4,)),
    "calls[3] aten.split.Tensor: result 1: value 6 lies on storage 0; a view lies where its operand does, on 2":
        value(6, storage=0),
    "calls[3] aten.split.Tensor: result 1: value 5 is defined already; each value is defined once":
        call(3, results=(5, 5)),
    "calls[0] aten.view.default: result 0: value 1 is defined already": call(0, results=(1,)),
}  # fmt: skip

WHOLE = {
    "outputs: value 7 does not exist; there are 7": change(outputs=Ref(7)),
    "outputs: value 4 is not defined yet": change(calls=good().calls[:2], outputs=List((Ref(4),))),
    "outputs: nan is a float that JSON cannot write": change(outputs=List((Ref(4), float("nan")))),
    "params[1] 'b': -inf is a float that JSON cannot write": change(
        params=(Param("a", Ref(0)), Param("b", List((Ref(1), float("-inf")))))
    ),
    "raises: 'no such!' names no exception; give its class name, such as 'RuntimeError'": change(raises="no such!"),
    "raises: no call is refused; the last call raises, and so has no results": change(raises="RuntimeError"),
}


@pytest.mark.parametrize(
    ("message", "program"),
    [*STORAGES.items(), *VALUES.items(), *PARAMS.items(), *ARGUMENTS.items(), *RESULTS.items(), *WHOLE.items()],
)
def test_a_broken_rule_is_named_with_its_place_and_what_would_be_right(message: str, program: Program) -> None:
    with pytest.raises(ProgramError, match=f"^{re.escape(message)}"):
        validate(program)


def test_three_parameters_that_are_one_tensor_are_paired_with_the_first() -> None:
    program = trace(lambda a, b, c: a + b + c, *[torch.ones(2)] * 3)
    assert program.twins == ((1, 0), (2, 0))
    validate(program)
    with pytest.raises(ProgramError, match=re.escape("twins[1]: (2, 1) is one of a chain")):
        validate(msgspec.structs.replace(program, twins=((1, 0), (2, 1))))


@pytest.mark.parametrize("expression", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_what_is_recorded_is_valid(expression: str) -> None:
    validate_geometry(record(expression))


def fits(op: str, *args: Arg, **kwargs: Arg) -> str:
    """What the validator says of an argument; "" if it fits. The values are a tensor and a vector of indices."""
    program = record(CALLS[0])
    call = Call(op, args, tuple(kwargs.items()), (1,))
    try:
        validate(msgspec.structs.replace(program, calls=(call,)))
    except ProgramError as error:
        found = re.search("argument '.*?': (.*) does not fit", str(error))
        return found[1] if found else ""
    return ""


@pytest.mark.parametrize(("op", "args", "kwargs", "complaint"), [
    ("aten.sum.dim_IntList", (Ref(0), 1), {}, ""),
    ("aten.sum.dim_IntList", (Ref(0), None), {}, ""),
    ("aten.sum.dim_IntList", (Ref(0), List((1,)), True), {}, ""),
    ("aten.sum.dim_IntList", (Ref(0), List((1,)), 1), {}, "1"),
    ("aten.sum.dim_IntList", (Ref(0), Tuple(("a",))), {}, "a sequence of 'a'"),
    ("aten.sum.dim_IntList", (Ref(0), List(())), {"dtype": Const("int64")}, ""),
    ("aten.sum.dim_IntList", (Ref(0), List(())), {"dtype": Const("strided")}, "torch.strided"),
    ("aten.sum.dim_IntList", (Ref(0), List(())), {"dtype": Const("nonsense")}, "torch.nonsense"),
    ("aten.sum.dim_IntList", (Ref(0), List(())), {"dtype": "int64"}, "'int64'"),
    ("aten.clone.default", (Ref(0),), {"memory_format": Const("preserve_format")}, ""),
    ("aten.clone.default", (Ref(0),), {"memory_format": Const("float32")}, "torch.float32"),
    ("aten.full.default", (List((2,)), Number("inf")), {"device": Device("cpu")}, ""),
    ("aten.full.default", (List((2,)), Number("inf")), {"device": Device("gpu")}, "Device(name='gpu')"),
    ("aten.full.default", (List((2,)), 1), {"device": "cpu"}, "'cpu'"),
    ("aten.full.default", (List((2,)), 1), {"layout": Const("strided")}, ""),
    ("aten.elu.default", (Ref(0), Number("(1+2j)")), {}, ""),
    ("aten.nan_to_num.default", (Ref(0), Number("nan")), {}, ""),
    ("aten.nan_to_num.default", (Ref(0), Number("(1+2j)")), {}, "Number(text='(1+2j)')"),
    ("aten.add.Tensor", (Ref(0), 2), {}, ""),
    ("aten.add.Tensor", (Ref(0), Number("nan")), {}, ""),
    ("aten.index.Tensor", (Ref(0), List((None, Ref(0)))), {}, ""),
    ("aten.index.Tensor", (Ref(0), Ref(0)), {}, "value 0"),
    ("aten.cat.default", (List((Ref(0), None)),), {}, "a sequence of value 0, None"),
    ("aten.cat.default", (List(()),), {}, ""),
    ("aten.div.Tensor_mode", (Ref(0), 2), {"rounding_mode": "floor"}, ""),
    ("aten.div.Tensor_mode", (Ref(0), 2), {"rounding_mode": 1}, "1"),
    ("aten.bernoulli.default", (Ref(0),), {"generator": None}, ""),
    ("aten.bernoulli.default", (Ref(0),), {"generator": 3}, "3"),
])  # fmt: skip
def test_argument_kinds_follow_the_schema(
    op: str, args: tuple[Arg, ...], kwargs: dict[str, Arg], complaint: str
) -> None:
    assert fits(op, *args, **kwargs) == complaint


def test_an_operator_that_may_copy_may_lie_anywhere() -> None:
    x = Value(0, "float32", (3, 4), (4, 1))
    copied, viewed = Value(1, "float32", (12,), (1,)), Value(0, "float32", (12,), (1,))
    program = Program(
        (Storage(48, Iota("float32")), Storage(48)),
        (x, copied),
        (Param("x", Ref(0)),),
        (Call("aten.reshape.default", (Ref(0), List((12,))), (), (1,)),),
        Ref(1),
    )
    validate(program)
    validate(msgspec.structs.replace(program, storages=program.storages[:1], values=(x, viewed)))
    itself = Call("aten.contiguous.default", (Ref(0),), (), (0,))
    validate(
        msgspec.structs.replace(program, storages=program.storages[:1], values=(x,), calls=(itself,), outputs=Ref(0))
    )


def test_a_refused_last_call_has_no_results() -> None:
    program = trace_refused(lambda x: x.add_(x.view(4, 3)), torch.ones(3, 4))
    validate_geometry(program)
    with pytest.raises(ProgramError, match="it has no results"):
        validate(msgspec.structs.replace(program, raises=None))


def test_an_operator_without_tensors_among_its_results_has_none() -> None:
    validate_geometry(record("aten._foreach_add_.Scalar([x, w], 2)"))


def test_a_masked_operator_may_return_fewer_tensors() -> None:
    program = record("aten.native_layer_norm_backward.default(x, y, [4], f3, h3, f4, h4, [True, False, True])")
    assert len(program.calls[0].results) == 2
    validate_geometry(program)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_generated_programs_are_valid_and_survive_json(program: Program) -> None:
    validate_geometry(program)
    again = Program.from_json(program.to_json())
    assert again == program
    assert again.digest == program.digest
    validate_geometry(again)


def test_traced_programs_are_valid() -> None:
    base = torch.arange(24.0)

    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        a[1:].copy_(b[:-1] + torch.tensor([1.0, 2.0, 3.0, 4.0]))
        left, right = c.chunk(2)
        left += right
        return a.t().reshape(-1), left, c.view(torch.int32), torch.zeros(2)

    program = trace(fn, base[:12].view(3, 4), base[4:16].view(3, 4), base[8:])
    assert len(program.constants) == 1
    validate_geometry(program)


GEOMETRY = {
    "calls[2] aten.add.Tensor: result 0: value 4 is recorded as float32 (4, 3) with strides (3, 1) and offset 0; eager "
    "lays out float32 (3, 4) with strides (4, 1) and offset 0": value(4, shape=(4, 3), strides=(3, 1)),
    "calls[2] aten.add.Tensor: result 0: value 4 is recorded as float32 (3, 4) with strides (1, 3) and offset 0; eager":
        value(4, strides=(1, 3)),
    "calls[2] aten.add.Tensor: result 0: value 4 is recorded as int32": value(4, dtype="int32"),
    "calls[3] aten.split.Tensor: result 1: value 6 is recorded as float32 (1, 4) with strides (4, 1) and offset 4; eager":
        value(6, offset=4),
    "calls[3] aten.split.Tensor: result 1: value 6 is recorded as float32 (1, 4) with strides (4, 1) and offset 8 neg":
        value(6, neg=True),
    "calls[2] aten.add.Tensor: result 0: storage 2 is recorded with 64 bytes; eager allocates 48": storage(2, nbytes=64),
    "calls[3] aten.split.Tensor: 1 results are recorded; eager returns 2 tensors":
        change(calls=(*good().calls[:3], msgspec.structs.replace(good().calls[3], results=(5,))),
               values=good().values[:6]),
    "calls[0] aten.view.default: eager raises RuntimeError: shape '[11]' is invalid for input of size 12; recorded is no "
    "exception": call(0, args=(Ref(0), List((11,)))),
}  # fmt: skip


@pytest.mark.parametrize(("message", "program"), GEOMETRY.items())
def test_a_layout_that_eager_does_not_make_is_named(message: str, program: Program) -> None:
    validate(program)
    with pytest.raises(ProgramError, match=f"^{re.escape(message)}"):
        validate_geometry(program)


def reshaped(home: int) -> Program:
    """`x.t().reshape(12)` copies, `x.reshape(12)` does not; here both are recorded on storage `home`."""
    x, xt = Value(0, "float32", (3, 4), (4, 1)), Value(0, "float32", (4, 3), (1, 4))
    operand = Ref(1 - home)
    calls = (
        Call("aten.t.default", (Ref(0),), (), (1,)),
        Call("aten.reshape.default", (operand, List((12,))), (), (2,)),
    )
    return Program(
        (Storage(48, Iota("float32")), Storage(48))[: home + 1],
        (x, xt, Value(home, "float32", (12,), (1,))),
        (Param("x", Ref(0)),),
        calls,
        Ref(2),
    )


@pytest.mark.parametrize(("home", "message"), [
    (0, "value 2 is recorded on storage 0; eager gives it a storage of its own"),
    (1, "value 2 is recorded on storage 1; in eager it lies on storage 0"),
])  # fmt: skip
def test_a_view_that_is_a_copy_and_the_other_way_round_are_told_apart(home: int, message: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(message)):
        validate_geometry(reshaped(home))


def test_a_result_that_is_the_operand_itself_is_no_new_value() -> None:
    x = Value(0, "float32", (3,), (1,))
    call = Call("aten.contiguous.default", (Ref(0),), (), (1,))
    program = Program((Storage(12, Iota("float32")),), (x, x), (Param("x", Ref(0)),), (call,), Ref(1))
    with pytest.raises(ProgramError, match="a new value 1 is recorded; eager returns value 0 itself"):
        validate_geometry(program)


def test_a_new_tensor_is_not_the_operand_itself() -> None:
    x = Value(0, "float32", (3,), (1,))
    call = Call("aten.reshape.default", (Ref(0), List((3,))), (), (0,))
    program = Program((Storage(12, Iota("float32")),), (x,), (Param("x", Ref(0)),), (call,), Ref(0))
    with pytest.raises(ProgramError, match="value 0 is recorded, which exists already; eager returns another"):
        validate_geometry(program)


def test_a_refusal_that_eager_does_not_share_is_named() -> None:
    program = trace_refused(lambda x: x.add_(x.view(4, 3)), torch.ones(3, 4))
    with pytest.raises(ProgramError, match=r"eager raises RuntimeError: .*; recorded is ValueError"):
        validate_geometry(msgspec.structs.replace(program, raises="ValueError"))
    fine = msgspec.structs.replace(program.calls[-1], args=(Ref(0), Ref(0)))
    with pytest.raises(ProgramError, match="RuntimeError is recorded; eager raises nothing"):
        validate_geometry(msgspec.structs.replace(program, calls=(program.calls[0], fine)))
