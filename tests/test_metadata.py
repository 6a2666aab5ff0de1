"""Calls that change what a tensor is: in memory form the tensor object is a new value from then on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import Phase, given, settings

from aliasfuzz.pictures import draw
from corpus.case import Case
from executor import interpreter, printing, targets
from executor.args import Ref
from executor.errors import ProgramError, TraceError
from executor.limits import EVERYTHING, Limits
from executor.memory import allocate, describe
from executor.program import Param, Program
from executor.recorder import Recorder
from executor.schema import accesses, changes_metadata
from executor.targets.base import Target
from executor.tracing import trace
from executor.validate import validate, validate_geometry
from fuzz import variants
from fuzz.check import check
from fuzz.reducer import reduce
from fuzz.rewriting import last_value, rerecord, without
from fuzz.script import script
from strategies.programs import programs

QUICK = settings(max_examples=60, deadline=None, database=None, phases=(Phase.generate,))


def matrix() -> torch.Tensor:
    return torch.arange(6.0).view(2, 3)


def vector() -> torch.Tensor:
    return torch.arange(10.0, 13.0)


def assign(x: torch.Tensor, y: torch.Tensor) -> None:
    x.data = y


CHANGES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "x.transpose_(0, 1)": lambda x, _: x.transpose_(0, 1),
    "x.t_()": lambda x, _: x.t_(),
    "x.unsqueeze_(1)": lambda x, _: x.unsqueeze_(1),
    "x.squeeze_()": lambda x, _: x.squeeze_(),
    "x.squeeze_(0)": lambda x, _: x.squeeze_(0),
    "x.squeeze_([0, 1])": lambda x, _: x.squeeze_((0, 1)),
    "x.as_strided_([2], [2], 1)": lambda x, _: x.as_strided_((2,), (2,), 1),
    "x.resize_(2, 2)": lambda x, _: x.resize_(2, 2),
    "x.resize_as_(y)": lambda x, y: x.resize_as_(y),
    "x.set_(y)": lambda x, y: x.set_(y),  # type: ignore[call-overload]
    "x.data = y": assign,
}


def changed(change: Callable[[torch.Tensor, torch.Tensor], Any]) -> Program:
    """A program that takes a view, changes its base, writes the view and reads the base."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        row = x[0]
        change(x, y)
        row.add_(1)
        return x * 2, row, x

    return trace(fn, matrix(), vector())


@pytest.mark.parametrize("text", CHANGES)
def test_a_changed_tensor_is_a_new_value_of_the_same_name(text: str) -> None:
    program = changed(CHANGES[text])
    validate_geometry(program)
    call = next(call for call in program.calls if changes_metadata(call.op))
    assert call.operands[0] == 0
    assert call.results == (last_value(program, 0),) != (0,)
    assert accesses(program, call) == ((), ())
    assert text in [line.strip() for line in str(program).splitlines()]


@pytest.mark.parametrize("text", CHANGES)
def test_what_is_printed_is_traced_to_the_same_program(text: str) -> None:
    program = changed(CHANGES[text])
    again = trace(printing.load(program), matrix(), vector())
    assert again.without_sources() == program.without_sources()
    assert Program.from_json(program.to_json()).without_sources() == program.without_sources()


@pytest.mark.parametrize("text", CHANGES)
def test_interpreted_and_printed_it_does_what_the_function_does(text: str) -> None:
    program = changed(CHANGES[text])
    assert check(program, target="null").ok
    held = allocate(program.entry, guarded=False)
    doubled, _, out = interpreter.run(program, held.tensors)
    assert out is held.tensors[0]
    assert out.shape == program.values[last_value(program, 0)].shape
    assert torch.equal(doubled, out * 2)


def test_a_value_that_is_gone_cannot_be_used() -> None:
    program = trace(lambda x: x.t_() * 2, matrix())
    with pytest.raises(ProgramError, match=r"outputs: value 0 is gone; .* is value 1"):
        validate(msgspec.structs.replace(program, outputs=Ref(0)))
    late = msgspec.structs.replace(program.calls[1], args=(Ref(0), 2))
    with pytest.raises(ProgramError, match="value 0 is gone"):
        validate(msgspec.structs.replace(program, calls=(program.calls[0], late)))


def test_what_no_such_call_returns_is_refused() -> None:
    program = trace(lambda x, y: (x.t_(), y.set_(x)), matrix(), vector())
    first, second = program.calls
    for calls, complaint in (
        ((msgspec.structs.replace(first, results=(0,)), second), "value 0 is defined already"),
        ((msgspec.structs.replace(first, results=()), second), "0 results; it changes a tensor's metadata"),
    ):
        with pytest.raises(ProgramError, match=complaint):
            validate(msgspec.structs.replace(program, calls=calls))
    for index, field, complaint in (
        (2, {"storage": 1}, "its tensor stays on 0"),
        (3, {"offset": 0, "shape": (6,), "strides": (1,)}, "as its source does"),
    ):
        values = list(program.values)
        values[index] = msgspec.structs.replace(values[index], **field)
        if index == 2:
            values[index] = msgspec.structs.replace(values[index], shape=(1, 1))
        with pytest.raises(ProgramError, match=re.escape(complaint)):
            validate(msgspec.structs.replace(program, values=tuple(values)))


def test_a_tensor_that_is_passed_twice_must_stay_what_it_is() -> None:
    x = matrix()
    with pytest.raises(TraceError, match="passed twice changes its shape"):
        trace(lambda a, b: (a.t_(), b), x, x)


@QUICK
@given(programs())
def test_programs_with_such_calls_are_valid_and_stable(program: Program) -> None:
    if not any(changes_metadata(call.op) for call in program.calls):
        return
    validate_geometry(program)
    verdict = check(program, target="null", calls=[variants.backwards(program.entry)])
    assert verdict.ok
    assert verdict.unstable is None
    for k in range(len(program.calls)):
        shorter = without(program, {k})
        validate(shorter)
        again = rerecord(shorter, shorter.entry)
        if again is not None:
            validate_geometry(again)


def test_limits_keep_them_away() -> None:
    program = trace(lambda x: x.t_() * 2, matrix())
    fresh = trace(lambda x: (x + 1).t_() * 2, matrix())
    given_data = trace(assign, matrix(), vector())
    assert (
        Limits(metadata_mutation=False).refuse(fresh) == "aten.t_.default changes a tensor's shape or storage in place"
    )
    views_only = Limits(metadata_of_inputs=False)
    assert views_only.refuse(program) == "aten.t_.default changes an input's shape in place"
    assert views_only.refuse(fresh) is views_only.refuse(given_data) is EVERYTHING.refuse(program) is None


def test_a_changed_input_that_is_returned_counts_as_a_written_one() -> None:
    limits = Limits(written_inputs_returned=False)
    assert limits.refuse(trace(lambda x: x.t_(), matrix())) == "an output is input x, whose metadata changes"
    assert limits.refuse(trace(lambda x: x.t_() * 2, matrix())) is None


@QUICK
@given(programs(Limits(written_inputs_returned=False)))
def test_changed_inputs_are_not_returned_where_they_are_not_taken(program: Program) -> None:
    assert Limits(written_inputs_returned=False).refuse(program) is None


@QUICK
@given(programs(Limits(metadata_of_inputs=False)))
def test_changes_of_inputs_are_not_drawn_where_they_are_not_taken(program: Program) -> None:
    assert Limits(metadata_of_inputs=False).refuse(program) is None


@QUICK
@given(programs(Limits(metadata_mutation=False)))
def test_none_is_drawn_where_they_are_not_taken(program: Program) -> None:
    assert not any(changes_metadata(call.op) for call in program.calls)


@pytest.mark.thunder
@pytest.mark.parametrize("text", sorted(CHANGES.keys() - {"x.data = y"}))
def test_thunder_refuses_all_but_assigned_data(text: str) -> None:
    program = changed(CHANGES[text])
    verdict = check(program, target="thunder")
    assert verdict.refused is not None
    assert verdict.refused.startswith("Unknown attribute")
    assert "is not supported" in str(targets.get("thunder").limits.refuse(program))


@pytest.mark.parametrize("text", CHANGES)
def test_dynamo_refuses_what_is_outside_the_limits(text: str) -> None:
    program = changed(CHANGES[text])
    target = targets.get("aot_eager")
    if target.limits.refuse(program) is not None:
        assert check(program, target=target).refused is not None
    else:
        assert text == "x.data = y"
    assert targets.get("aot_eager:breaks").limits.refuse(program) is None


def test_a_tensor_that_an_operator_returns_as_it_is_gets_another_name() -> None:
    recorder = Recorder()
    x = matrix()
    recorder.input(x, describe([x]).storages[0])
    recorder.call(torch.ops.aten.contiguous.default, x)
    recorder.call(torch.ops.aten.unsqueeze_.default, x, 0)
    program = recorder.program([Param("x", Ref(0))], recorder.ref(x))
    validate_geometry(program)
    lines = [line.strip() for line in str(program).splitlines()]
    assert lines[1:] == ["a = x.contiguous()", "a.unsqueeze_(0)", "return a"]
    assert check(program, target="null").ok


class Forgets(Target):
    """Does with other tensor objects what a program does, so that its arguments stay what they are."""

    name = "forgets"
    needs_source = False

    def compile(self, fn: Callable[..., Any], example_args: Any) -> Callable[..., Any]:
        del example_args
        return lambda *args: fn(*[arg.view(arg.shape) for arg in args])


def test_an_input_that_stays_what_it_was_is_seen_and_shrinks_to_the_change() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = y + 1
        x[0].add_(1)
        x.t_()
        y.mul_(2)
        return z

    program = trace(fn, matrix(), vector())
    verdict = check(program, target=Forgets())
    assert verdict.symptoms == ("shape",)
    assert str(verdict.mismatches[0]) == "shape: input 0: expected (3, 2), got (2, 3)"
    reduced = reduce(program, lambda p: check(p, target=Forgets()).symptom == "shape")
    assert [call.op for call in reduced.calls] == ["aten.t_.default"]
    assert len(reduced.inputs) == 1


def test_an_input_that_changes_only_in_the_compiler_is_seen() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.t_()
        return y

    class Both(Forgets):
        def compile(self, fn: Callable[..., Any], example_args: Any) -> Callable[..., Any]:
            del example_args

            def compiled(x: torch.Tensor, y: torch.Tensor) -> Any:
                y.unsqueeze_(0)
                return fn(x, y.squeeze(0))

            return compiled

    assert "state" in check(trace(fn, matrix(), vector()), target=Both()).symptoms


def test_where_an_input_lies_is_compared() -> None:
    program = trace(lambda x, y: x.set_(y)[0], vector(), vector())

    class Copies(Forgets):
        def compile(self, fn: Callable[..., Any], example_args: Any) -> Callable[..., Any]:
            del fn, example_args
            return lambda x, y: x.set_(y.clone())[0]

    assert check(program, target=Copies()).symptoms == ("alias",)


def test_a_script_shows_the_arguments_that_change() -> None:
    program = trace(lambda x: x.t_() * 2, matrix())
    text = script(Case(program=program, target="null", state="fixed"))
    namespace: dict[str, Any] = {"__name__": "some_script"}
    exec(compile(text, "script.py", "exec"), namespace)  # noqa: S102 (the text under test)
    seen = namespace["observe"](namespace["program"], namespace["inputs_1"])
    assert seen["argument[0].shape"] == (3, 2)
    assert namespace["main"]() == 0


@pytest.mark.parametrize("text", CHANGES)
def test_a_memory_map_shows_the_new_value_under_the_same_name(text: str) -> None:
    program = changed(CHANGES[text])
    picture = draw(Case(program=program, target="null", state="fixed"), None, "")
    (step,) = [step for step in picture.steps if step.text == text]
    assert {band.name for row in step.rows for band in row.bands} == {"x"}
