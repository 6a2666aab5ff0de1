"""Custom autograd functions in programs: what their schemas say, how they print, that they run, are compiled and are drawn."""

from __future__ import annotations

from random import Random
from typing import Any, get_args

import pytest
import torch

from aliasfuzz.pictures.statements import script
from executor.args import Ref
from executor.functions import FUNCTIONS, text
from executor.jit import jit
from executor.memory import allocate
from executor.pipeline import Aliases
from executor.printing import load
from executor.program import Inputs, Iota, Param, Program, Storage, Value
from executor.recorder import Recorder, outputs_tree
from executor.schema import effects, resolve
from executor.targets.pipeline import Pipeline
from executor.tracing import trace
from executor.validate import validate, validate_geometry
from fuzz.check import check
from strategies.programs import drawn
from tests.gradient_behaviour import all_of, equal, leaf, observed, plain

OPS = [*FUNCTIONS]


def program(op: str, *, no_grad: bool = False) -> Program:
    """One call on a part of a computed tensor, and on a part of a plain one; returned are its result and the whole tensor."""
    values = (Value(0, "float32", (4,), (1,)), Value(1, "float32", (4,), (1,)))
    inputs = Inputs((Storage(16, Iota("float32")), Storage(16, Iota("float32", 3))), values, leaves=(0,))
    recorder, tensors = Recorder(), allocate(inputs).tensors
    for tensor, storage in zip(tensors, inputs.storages, strict=True):
        recorder.input(tensor, storage)
    whole = recorder.call(resolve("aten.mul.Tensor"), tensors[0], 2)
    parts = [recorder.call(resolve("aten.slice.Tensor"), t, 0, 1, 4) for t in (whole, tensors[1])]
    with torch.set_grad_enabled(not no_grad):
        made = recorder.call(resolve(op), *parts[: len(effects(op).names)])
    out = outputs_tree([recorder.ref(t).index for t in ([] if made is None else [made]) + [whole]])
    return recorder.program([Param("a", Ref(0)), Param("b", Ref(1))], out, leaves=(0,))


@pytest.mark.parametrize("op", OPS)
def test_the_schema_says_what_is_written_and_viewed(op: str) -> None:
    effect, args = effects(op), [leaf(3) * 1, plain(3, start=4)]
    args = args[: len(effect.names)]
    made = resolve(op)(*args)
    assert {name for name, t in zip(effect.names, args, strict=True) if t._version} == effect.writes
    assert effect.views is (made is not None and made._base is args[0])
    assert (args[0] if made is None else made).requires_grad


@pytest.mark.parametrize("no_grad", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_programs_hold_them(op: str, no_grad: bool) -> None:  # noqa: FBT001
    made = program(op, no_grad=no_grad)
    validate(made)
    validate_geometry(made)
    assert Program.from_json(made.to_json()) == made
    for aliases in get_args(Aliases):
        verdict = check(made, target=Pipeline("pipeline", "weak_memory", aliases))
        assert verdict.ok, verdict


@pytest.mark.parametrize("op", OPS)
def test_a_trace_holds_them_and_a_picture_shows_them(op: str) -> None:
    made = program(op)
    arguments = [leaf(4), plain(4, start=3)]
    assert [call.op for call in trace(made, *arguments).calls] == [call.op for call in made.calls]
    shown = script(made, arguments)
    assert any(f"{FUNCTIONS[op].__name__}.apply(" in statement.text for statement in shown.statements)
    assert [call.op for call in shown.program.calls if call.op in FUNCTIONS] == [op]


@pytest.mark.parametrize("op", OPS)
def test_a_program_prints_the_class_and_applies_it(op: str) -> None:
    made = program(op)
    printed, name = str(made), FUNCTIONS[op].__name__
    assert printed.startswith(f'class {name}(torch.autograd.Function):\n    """')
    assert f"{name}.apply(" in printed
    assert printed.count("class ") == 1

    def arguments() -> Any:
        a = leaf(4)
        return [a, plain(4, start=3)], [a]

    wanted = observed(made, arguments, all_of)
    assert equal(observed(load(made), arguments, all_of), wanted)
    assert equal(observed(jit(load(made)), arguments, all_of), wanted)


def test_gradients_are_those_of_the_class_and_not_of_its_body() -> None:
    compiled = jit(program("aliasfuzz.reversed.default"))
    a = leaf(4)
    compiled(a, plain(4))[0].sum().backward()
    assert a.grad is not None
    assert a.grad.tolist() == [0.0, -2.0, -2.0, -2.0]


def test_a_class_needs_nothing_but_torch() -> None:
    for op, function in FUNCTIONS.items():
        namespace: dict[str, Any] = {"torch": torch}
        exec(text(op), namespace)  # noqa: S102 (text that we made)
        a = leaf(3)
        args = [a * 1, plain(3)][: len(effects(op).names)]
        out = namespace[function.__name__].apply(*args)
        assert out.grad_fn is not None


def test_all_are_drawn_where_inputs_require_grad() -> None:
    random, seen, count = Random(5), set[str](), 0
    while seen != set(OPS):
        assert count < 2000, f"missing: {set(OPS) - seen}"
        count += 1
        seen |= FUNCTIONS.keys() & {call.op for call in drawn(random, gradients=True).calls}
    without = [call.op for _ in range(200) for call in drawn(random).calls]
    assert not FUNCTIONS.keys() & set(without)
