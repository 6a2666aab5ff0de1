"""Programs with inputs that require grad: valid by construction, exact, printed as they run, and shrinking."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import Phase, given, settings
from torch.utils import _pytree as pytree

from aliasfuzz.pictures.statements import script
from executor import interpreter, memory
from executor.errors import ProgramError
from executor.limits import EVERYTHING, Limits
from executor.printing import backward, inputs, leaves, listing, load
from executor.program import Backward, Program
from executor.tracing import trace
from executor.validate import validate, validate_geometry
from fuzz.check import check
from fuzz.gradients import followed, state_of
from fuzz.reducer import reduce
from fuzz.runs import Run, run
from fuzz.subjects import of_program
from fuzz.uniform import BACKEND
from strategies.programs import programs

QUICK = settings(max_examples=300, deadline=None, database=None, phases=(Phase.generate,))
MANY = settings(QUICK, max_examples=600, backend=BACKEND)


def eager(program: Program, *, source: bool = False) -> Run:
    subject = of_program(program, source=source)
    return run(subject.fn, *subject.ways[0].build())


@QUICK
@given(programs(gradients=True))
def test_every_program_is_valid_and_runs_under_autograd(program: Program) -> None:
    validate(program)
    validate_geometry(program)
    assert eager(program).error is None


def test_most_programs_give_gradients_that_are_exact_and_few_are_refused() -> None:
    seen: Counter[str] = Counter()

    @MANY
    @given(programs(gradients=True))
    def look(program: Program) -> None:
        passed = followed(eager(program), program.backward, watched=True).passed
        seen["programs"] += 1
        if passed is None:
            return
        careful = program.backward is None or program.backward.written is None
        seen["refused"] += passed.error is not None and careful
        seen["inexact"] += passed.inexact
        seen["gradients"] += any(gradient is not None for _, gradient in passed.gradients)
        seen["no_grad"] += any(call.no_grad for call in program.calls)
        seen["rooted"] += bool(program.rooted)

    look()
    share = {name: count / seen["programs"] for name, count in seen.items()}
    assert share["gradients"] > 0.5
    assert share["refused"] < 0.05
    assert share["inexact"] < 0.02
    assert share["no_grad"] > 0.2
    assert share["rooted"] > 0.2


def test_none_requires_grad_unless_asked() -> None:
    @QUICK
    @given(programs())
    def look(program: Program) -> None:
        assert program.leaves == program.rooted == ()
        assert program.backward is None

    look()


NARROW = Limits(rooted_inputs=False, retained_graphs=False, written_results=False)


@QUICK
@given(programs(NARROW, gradients=True))
def test_programs_lie_within_limits(program: Program) -> None:
    assert NARROW.refuse(program) is None


def test_limits_refuse_in_words() -> None:
    program = trace(lambda x, y: x * y, torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True) * 1)
    assert EVERYTHING.refuse(program) is None
    assert Limits(gradients=False).refuse(program) == "input x requires grad"
    assert Limits(rooted_inputs=False).refuse(program) == "input y is no leaf"
    twice = msgspec.structs.replace(program, backward=Backward(passes=2))
    assert Limits(retained_graphs=False).refuse(twice) == "the caller goes backward several times"
    written = msgspec.structs.replace(program, backward=Backward(written=0))
    assert Limits(written_results=False).refuse(written) == "the caller writes before it goes backward"


@QUICK
@given(programs(Limits(numbers=False), gradients=True))
def test_a_printed_program_does_to_autograd_what_the_interpreter_does(program: Program) -> None:
    one, other = (followed(eager(program, source=source), program.backward) for source in (False, True))
    if one.passed is None or other.passed is None:
        assert (program.leaves, program.rooted) == ((), ())
        return
    assert one.passed.states == other.passed.states
    assert type(one.passed.error) is type(other.passed.error)
    for (_, expected), (_, actual) in zip(one.passed.gradients, other.passed.gradients, strict=True):
        assert (expected is None) is (actual is None)
        if expected is not None and actual is not None:
            assert torch.equal(expected, actual)


@QUICK
@given(programs(Limits(numbers=False), gradients=True))
def test_printed_inputs_are_what_is_allocated(program: Program) -> None:
    names = [f"x{k}" for k in range(len(program.inputs))]
    namespace: dict[str, Any] = {"torch": torch}
    exec("\n".join(inputs(program.entry, names)), namespace)  # noqa: S102 (text that we made)
    held = memory.allocate(program.entry)
    assert [state_of(namespace[name]) for name in names] == [state_of(tensor) for tensor in held.tensors]
    wanted = [namespace[name] for name in leaves(program.entry, names)]
    assert [leaf.shape for leaf in wanted] == [leaf.shape for leaf in held.leaves]
    assert all(torch.equal(leaf, other) for leaf, other in zip(wanted, held.leaves, strict=True))
    env: list[Any] = [namespace[name] for name in names]
    expected = interpreter.run(program, held.tensors)
    for one, other in zip(*map(pytree.tree_leaves, (interpreter.run(program, env), expected)), strict=True):
        assert torch.equal(one, other)


def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x * 2
    with torch.no_grad():
        y[1:].add_(1)
        y.neg_()
    z[:1].mul_(y[:1].detach())
    return z


def test_a_program_reads_like_python() -> None:
    x = torch.arange(3.0, requires_grad=True)
    base = torch.arange(4.0, requires_grad=True) * 1
    assert (
        listing(trace(step, x, base[1:]))
        == """\
s0 = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float32)
s1 = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float32)
s1_root = s1.clone().requires_grad_()
s1_base = s1.detach().copy_(s1_root)
x = s0.view(3).detach().requires_grad_()
y = s1_base[1:]

def program(x, y):
    a = x * 2
    with torch.no_grad():
        b = y[1:]
        b.add_(1)
        y.neg_()
    c = a[:1]
    d = y[:1]
    e = d.detach()
    c.mul_(e)
    return a
# The caller goes backward from all results."""
    )


@pytest.mark.parametrize(("plan", "words"), [
    (None, "The caller goes backward from all results."),
    (Backward(passes=2, apart=True), "The caller goes backward from each result apart 2 times."),
    (Backward(left_out=(0, 2), functional=True),
     "The caller goes backward from all results but 0, 2 with torch.autograd.grad."),
    (Backward(written=1), "The caller adds 1 to result 1 and then goes backward from all results."),
])  # fmt: skip
def test_how_the_caller_goes_backward_is_told(plan: Backward | None, words: str) -> None:
    program = trace(lambda x: x * 2, torch.ones(2, requires_grad=True))
    assert backward(msgspec.structs.replace(program, backward=plan)) == words
    assert backward(trace(lambda x: x * 2, torch.ones(2))) == ""


def test_a_printed_block_without_grad_is_one() -> None:
    x = torch.arange(3.0, requires_grad=True)
    fn = load(trace(step, x, torch.ones(3)))
    assert fn(x, torch.ones(3)).requires_grad


def test_gradients_that_do_not_matter_go() -> None:
    """What fails is that some input is written under autograd."""
    x, y, z = torch.arange(3.0, requires_grad=True), torch.ones(3, requires_grad=True) * 1, torch.ones(3)

    def long(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            z.add_(1)
        y.mul_(2)
        return x + y * z

    program = msgspec.structs.replace(trace(long, x, y, z), backward=Backward(seed=2, functional=True, passes=2))

    def fails(program: Program) -> bool:
        held = eager(program)
        return held.error is None and any(state_of(held.memory.tensors[k]) == "part of the graph" for k in held.written)

    reduced = reduce(program, fails)
    validate_geometry(reduced)
    assert (len(reduced.leaves), len(reduced.rooted), reduced.backward) == (0, 1, None)
    assert [call.op for call in reduced.calls] == ["aten.add_.Tensor"]


def test_a_program_that_fails_without_gradients_loses_them() -> None:
    x = torch.arange(3.0, requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x.add_(1)
        return x * 2

    reduced = reduce(trace(fn, x), lambda program: any(call.op == "aten.add_.Tensor" for call in program.calls))
    assert (reduced.leaves, reduced.rooted) == ((), ())
    assert not any(call.no_grad for call in reduced.calls)
    assert check(reduced, target="null").ok


def broken(program: Program, **changes: Any) -> str:
    with pytest.raises(ProgramError) as raised:
        validate(msgspec.structs.replace(program, **changes))
    return str(raised.value)


def test_what_says_nothing_or_too_much_is_invalid() -> None:
    x = torch.arange(3.0, requires_grad=True)
    program = trace(lambda x, y, n: x * y + n, x, torch.ones(3), torch.ones(3, dtype=torch.int64))
    assert "there is no input 3" in broken(program, leaves=(3,))
    assert "not in order" in broken(program, leaves=(1, 0))
    assert "only floating-point" in broken(program, leaves=(2,))
    assert "is a leaf, too" in broken(program, rooted=(0,))
    assert "no input requires grad" in broken(program, leaves=(), backward=Backward(passes=2))
    assert "passes: it is 0" in broken(program, backward=Backward(passes=0))
    assert "left_out: -1 is negative" in broken(program, backward=Backward(left_out=(-1,)))
    twice = trace(lambda x, y: x * y, x, x)
    assert "inputs 1 and 0 are one tensor" in broken(twice, leaves=(0,))
    without = trace(step, torch.ones(3), torch.ones(3))
    calls = (msgspec.structs.replace(without.calls[0], no_grad=True), *without.calls[1:])
    assert "under no_grad" in broken(without, calls=calls)


def test_a_picture_tells_what_stands_under_no_grad() -> None:
    x = torch.arange(3.0, requires_grad=True)
    program = trace(step, x, torch.ones(3))
    statements = [statement.text for statement in script(program, [x, torch.ones(3)]).statements]
    assert statements[:4] == ["a = x * 2", "b = y[1:]  # no_grad", "b.add_(1)  # no_grad", "y.neg_()  # no_grad"]
