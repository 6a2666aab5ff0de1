"""`Program`: JSON both ways, digests, hashing, and what is said of JSON that is no program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from executor.args import Const, Device, Dict, List, Number, Ref, Tuple, refs, rename, to_arg, to_python
from executor.errors import ProgramError
from executor.program import (
    FORMAT,
    VERSION,
    Call,
    Iota,
    Literal,
    Param,
    Program,
    Source,
    Storage,
    Value,
    contiguous_strides,
    itemsize,
)
from executor.tracing import trace

ROOT = Path(__file__).parents[1]
# Of `sample()`. It may change only with `VERSION`: files of older releases are found by their digests.
DIGEST = "56c3a207b067d9503a69385f6d325d3d798acd171d09f312bf362c8d91d2e4e9"


def sample() -> Program:
    """A program that has one of everything."""
    storages = (Storage(48, Iota("float32", 5, 7)), Storage(16, Literal("complex64", ("(1+2j)", 3))), Storage(48))
    values = (
        Value(0, "float32", (3, 4), (4, 1)),
        Value(0, "float32", (2, 2), (4, 2), 1),
        Value(0, "float32", (2, 2), (4, 2), 1),
        Value(1, "complex64", (2,), (1,), conj=True),
        Value(2, "float32", (3, 4), (4, 1)),
        Value(1, "float32", (2,), (2,), 1, neg=True),
    )
    params = (
        Param("x", Ref(0)),
        Param("tree", Dict((("pair", Tuple((Ref(1), Ref(2)))), ("rest", List((None, True, 3, 0.5, "s")))))),
    )
    calls = (
        Call("aten.add.Tensor", (Ref(0), Number("inf")), (("alpha", 2),), (4,), Source("/home/me/model.py", 7)),
        Call("aten.imag.default", (Ref(3),), (), (5,)),
        Call("aten.mul_.Tensor", (Ref(1), Number("(1+2j)")), (), (1,)),
    )
    outputs = Tuple((Ref(4), List((Ref(1), Const("float32"), Device("cpu"))), Dict((("k", Ref(5)), ("n", 1e-300)))))
    return Program(storages, values, params, calls, outputs, ((2, 1),), (3,), "RuntimeError")


def test_a_program_survives_json() -> None:
    program = sample().without_sources()
    assert Program.from_json(program.to_json()) == program
    assert Program.from_json(program.to_json().decode()) == program
    assert Program.from_json(program.to_json()).digest == program.digest


def test_a_traced_program_survives_json_and_still_runs() -> None:
    x = torch.arange(12.0).view(3, 4)
    program = trace(lambda a, b: (a.mul_(b.sum()), torch.tensor([float("nan"), -0.0]) + a[0, :2]), x, x[1])
    again = Program.from_json(program.to_json())
    assert again.without_sources() == program.without_sources()
    ours, theirs = again(x.clone(), x[1].clone()), program(x.clone(), x[1].clone())
    assert torch.equal(ours[0], theirs[0])
    assert torch.allclose(ours[1], theirs[1], rtol=0, atol=0, equal_nan=True)


def test_json_keeps_number_types_and_signs() -> None:
    numbers = List((True, 1, 1.0, -0.0, 0.1, 2**53 + 1, -(2**63), 1e308, 5e-324))
    program = msgspec.structs.replace(sample(), outputs=numbers)
    again = Program.from_json(program.to_json()).outputs
    assert isinstance(again, List)
    assert [repr(item) for item in again.items] == [repr(item) for item in numbers.items]


def test_json_says_which_file_and_line_but_nothing_of_folders() -> None:
    data = sample().to_json()
    assert b"/home/me" not in data
    assert Program.from_json(data).calls[0].source == Source("model.py", 7)


def test_json_names_its_format_and_version() -> None:
    envelope = json.loads(sample().to_json())
    assert envelope["format"] == FORMAT == "aliasfuzz.program"
    assert envelope["version"] == VERSION == 1


def test_a_digest_ignores_source_lines_only() -> None:
    program = sample()
    assert program.without_sources().digest == program.digest
    calls = list(program.calls)
    calls[0] = msgspec.structs.replace(calls[0], kwargs=(("alpha", 3),))
    assert msgspec.structs.replace(program, calls=tuple(calls)).digest != program.digest


def test_equal_programs_that_were_built_differently_have_one_digest() -> None:
    device = str(torch.device("cpu"))
    plain, spelled = Storage(4, Iota("float32")), Storage(4, Iota("float32", 1, 0), device)
    params, values = (Param("x", Ref(0)),), (Value(0, "float32", (1,), (1,)),)
    explicit = (Value(0, "float32", (1,), (1,), 0, False, False),)  # noqa: FBT003 (the defaults, written out)
    one = Program((plain,), values, params, (), Ref(0))
    other = Program((spelled,), explicit, params, (), Ref(0), (), (), None)
    assert one == other
    assert one.digest == other.digest


@pytest.mark.parametrize("seed", ["0", "12345"])
def test_a_digest_is_the_same_in_every_process(seed: str) -> None:
    code = "from tests.test_program import sample; print(sample().digest)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, env={"PYTHONHASHSEED": seed},
                          capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    assert done.stdout.strip() == sample().digest == DIGEST


def test_programs_and_their_parts_are_hashable() -> None:
    one, other = sample(), sample()
    assert hash(one) == hash(other)
    assert len({one, other, one.without_sources()}) == 2
    assert len({*one.storages, *one.values, *one.calls, *one.params, one.outputs, one.entry}) == 3 + 5 + 3 + 2 + 2


def test_programs_are_immutable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        sample().raises = None  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        sample().values[0].offset = 1  # type: ignore[misc]


def test_entry_is_how_the_program_is_called() -> None:
    program = sample()
    assert program.inputs == (0, 1, 2)
    assert program.entry.storages == program.storages[:1]
    assert program.entry.values == program.values[:3]
    assert program.entry.twins == ((2, 1),)


def test_entry_numbers_the_storages_of_inputs_anew() -> None:
    values = (Value(0, "float32", (1,), (1,)), Value(2, "float32", (1,), (1,)), Value(1, "float32", (1,), (1,)))
    storages = (Storage(4, Literal("float32", (1.0,))), Storage(4, Iota("float32")), Storage(4, Iota("float32", 9)))
    program = Program(storages, values, (Param("x", Ref(1)), Param("y", Ref(2))), (), None, constants=(0,))
    assert program.entry.storages == storages[1:]
    assert [value.storage for value in program.entry.values] == [1, 0]


def broken(**fields: Any) -> str:
    """The JSON of the sample with some top-level fields changed."""
    return json.dumps(json.loads(sample().to_json()) | fields)


def within(path: str, new: Any) -> str:
    """The JSON of the sample with one field deep inside changed; `...` deletes it."""
    envelope = json.loads(sample().to_json())
    *outer, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place = envelope["program"]
    for key in outer:
        place = place[key]
    if new is ...:
        del place[last]
    else:
        place[last] = new
    return json.dumps(envelope)


@pytest.mark.parametrize(("data", "message"), [
    ("", "this is no program in JSON: Input data was truncated"),
    (sample().to_json()[:-20], "this is no program in JSON: Input data was truncated"),
    (b"\xff\xfe", "this is no program in JSON"),
    ("[]", "this is no program in JSON: Expected `object`, got `array`"),
    ("{}", "missing required field `format`"),
    (broken(format="onnx"), "format is 'onnx'; a program has 'aliasfuzz.program'"),
    (broken(version=2), "version is 2; this release reads 1: upgrade aliasfuzz"),
    (broken(version="1"), "Expected `int`, got `str` - at `$.version`"),
    (broken(program=[]), "in program: Expected `object`, got `array`"),
    (within("values", ...), "in program: Object missing required field `values`"),
    (within("values.1.shape", ...), "in program: Object missing required field `shape` - at `$.values[1]`"),
    (within("values.1.offset", "2"), "in program: Expected `int`, got `str` - at `$.values[1].offset`"),
    (within("values.1.shape.0", 1.5), "in program: Expected `int`, got `float` - at `$.values[1].shape[0]`"),
    (within("calls.0.args.0.type", "reference"), "in program: Invalid value 'reference' - at `$.calls[0].args[0].type`"),
    (within("calls.0.args.0.index", None), "in program: Expected `int`, got `null` - at `$.calls[0].args[0].index`"),
    (within("storages.0.fill.type", "random"), "in program: Invalid value 'random' - at `$.storages[0].fill.type`"),
    (within("twins.0", [1]), "in program: Expected `array` of length 2"),
    ("[" * 100_000, "this is no program in JSON"),
    (broken(program=[]).replace("[]", '{"outputs":' + '{"type":"list","items":[' * 20_000), "this is no program in JSON"),
])  # fmt: skip
def test_json_that_is_no_program_is_refused_with_the_field(data: bytes | str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        Program.from_json(data)
    assert message in str(caught.value)


def test_a_value_knows_its_size_and_where_it_ends() -> None:
    value = Value(0, "complex64", (3, 4), (10, 2), 5)
    assert (value.numel, value.itemsize, value.torch_dtype) == (12, 8, torch.complex64)
    assert value.end == (5 + 2 * 10 + 3 * 2 + 1) * 8
    assert Value(0, "float32", (3, 0), (1, 1), 100).end == 0
    assert Value(0, "float32", (), (), 2).end == 12


@pytest.mark.parametrize("shape", [(), (3,), (3, 4), (2, 0, 3), (1, 5, 1)])
def test_contiguous_strides_are_torchs(shape: tuple[int, ...]) -> None:
    assert contiguous_strides(shape) == torch.empty(shape).stride()


def test_itemsize_is_torchs() -> None:
    assert [itemsize(name) for name in ("bool", "bfloat16", "float8_e5m2", "complex128")] == [1, 2, 1, 16]


def test_arguments_translate_both_ways() -> None:
    t = torch.ones(2)
    made: list[Any] = [None, True, 2, -0.0, 1 + 2j, float("inf"), "s", torch.int8, torch.strided, torch.channels_last,
                       torch.device("cpu"), [t, (t, {"k": t})], torch.Size([2, 3]), range(2)]  # fmt: skip
    args = [to_arg(obj, lambda _: Ref(0)) for obj in made]
    assert args[4:6] == [Number("(1+2j)"), Number("inf")]
    assert args[7:11] == [Const("int8"), Const("strided"), Const("channels_last"), Device("cpu")]
    assert args[11] == List((Ref(0), Tuple((Ref(0), Dict((("k", Ref(0)),))))))
    back = [to_python(arg, [t]) for arg in args]
    assert back[:11] == made[:11]
    assert back[11][1][1]["k"] is t
    assert back[12:] == [(2, 3), (0, 1)]


def test_subclasses_become_plain() -> None:
    import enum

    import numpy as np

    class Mode(enum.IntEnum):
        FAST = 3

    class Name(enum.StrEnum):
        ONE = "one"

    args = [to_arg(obj, lambda _: Ref(0)) for obj in (Mode.FAST, Name.ONE, np.float64(0.5))]
    assert [(type(arg), arg) for arg in args] == [(int, 3), (str, "one"), (float, 0.5)]


@pytest.mark.parametrize(("obj", "message"), [
    ({1, 2}, r"a program cannot hold \{1, 2\} of type set; it holds tensors"),
    (b"ab", "a program cannot hold b'ab' of type bytes"),
    ([object], "a program cannot hold <class 'object'> of type type"),
    ({1: 2}, "string keys, not 1 of type int"),
])  # fmt: skip
def test_what_a_program_cannot_hold_is_named(obj: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        to_arg(obj, lambda _: Ref(0))


def test_references_are_found_and_renamed_in_trees() -> None:
    tree = List((Ref(3), Tuple((1, Ref(5))), Dict((("k", Ref(3)),))))
    assert list(refs(tree)) == [3, 5, 3]
    renamed = rename(tree, lambda i: Ref(i + 1) if i == 3 else None)
    assert renamed == List((Ref(4), Tuple((1, None)), Dict((("k", Ref(4)),))))


def test_a_call_lists_its_operands_in_order() -> None:
    call = Call("aten.index_put_.default", (Ref(4), List((None, Ref(2)))), (("values", Ref(4)), ("accumulate", True)))
    assert call.operands == (4, 2, 4)


def test_printing_a_program_prints_its_function() -> None:
    program = trace(lambda a: a.neg(), torch.ones(2))
    assert str(program) == "def program(a):\n    b = -a\n    return b\n"
