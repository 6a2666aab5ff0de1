"""Inputs that require grad: leaves, views of a hidden leaf's clone, calls without grad mode."""

from __future__ import annotations

import pytest
import torch

from executor.args import Ref
from executor.errors import ArgumentError
from executor.interpreter import run
from executor.memory import Memory, allocate, clone, describe
from executor.program import Call, Inputs, Iota, Param, Program, Storage, Value
from executor.recorder import Recorder
from executor.tracing import trace, trace_refused

WHOLE = Value(0, "float32", (4,), (1,))
WINDOW = Value(0, "float32", (3,), (1,), 1)


def memory(values: tuple[Value, ...], twins: tuple[tuple[int, int], ...] = (), **grad: tuple[int, ...]) -> Memory:
    return allocate(Inputs((Storage(16, Iota("float32")),), values, twins, **grad))


def test_leaves_share_memory_and_versions_but_are_no_views() -> None:
    held = memory((WHOLE, WINDOW), leaves=(0, 1))
    a, b = held.tensors
    assert held.leaves == [a, b]
    assert a.is_leaf
    assert a.requires_grad
    assert a._base is b._base is None
    with torch.no_grad():
        b.zero_()
    assert a.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert a._version == b._version == 1


def test_rooted_inputs_are_views_of_one_clone_of_the_root() -> None:
    held = memory((WHOLE, WINDOW), rooted=(0, 1))
    a, b = held.tensors
    (root,) = held.leaves
    assert a._base is b._base
    assert not a.is_leaf
    b.mul_(3)
    a.backward(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert a.tolist() == [1.0, 6.0, 9.0, 12.0]
    assert bytes(held.contents(0)) == a.detach().numpy().tobytes()
    assert root.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert root.grad is not None
    assert root.grad.tolist() == [1.0, 6.0, 9.0, 12.0]


def test_the_order_of_leaves() -> None:
    held = memory((WHOLE, WINDOW, WINDOW, WHOLE), ((3, 1),), leaves=(1, 3), rooted=(0,))
    assert held.tensors[3] is held.tensors[1]
    assert [leaf is held.tensors[1] for leaf in held.leaves] == [True, False]
    assert held.tensors[2].requires_grad is False


def test_a_rooted_input_has_its_storages_dtype() -> None:
    with pytest.raises(ArgumentError, match="rooted input 1 "):
        memory((WHOLE, Value(0, "float64", (2,), (1,))), rooted=(0, 1))


def test_a_call_without_grad_mode() -> None:
    held, recorder = memory((WHOLE,), leaves=(0,)), Recorder()
    a = held.tensors[0]
    recorder.input(a, Storage(16, Iota("float32")))
    with torch.no_grad():
        recorder.call(torch.ops.aten.mul_.Scalar, a, 2)
    out = recorder.call(torch.ops.aten.mul.Tensor, a, a)
    program = recorder.program([Param("a", Ref(0))], recorder.ref(out), leaves=(0,))
    assert [call.no_grad for call in program.calls] == [True, False]
    assert Program.from_json(program.to_json()) == program
    assert program.entry == Inputs((Storage(16, Iota("float32")),), (WHOLE,), leaves=(0,))
    again = allocate(program.entry)
    result = run(program, again.tensors)
    result.sum().backward()
    assert again.leaves[0].grad.tolist() == [4.0, 8.0, 12.0, 16.0]  # type: ignore[union-attr]


def test_nothing_is_written_down_for_programs_without_gradients() -> None:
    call = Call("aten.neg.default", (Ref(0),), (), (1,))
    program = Program((Storage(16), Storage(16)), (WHOLE, WHOLE), (Param("a", Ref(0)),), (call,), Ref(1))
    assert not any(name in program.to_json() for name in (b"leaves", b"rooted", b"no_grad"))


def test_a_clone_requires_grad_as_the_original_does() -> None:
    leaf = torch.arange(4.0).requires_grad_()
    base = leaf * 2
    tensors = [leaf, base[1:], torch.zeros(2)]
    assert (describe(tensors).leaves, describe(tensors).rooted) == ((0,), (1,))
    held = clone(tensors)
    assert [(t.requires_grad, t.is_leaf) for t in held.tensors] == [(True, True), (True, False), (False, True)]
    assert [held.leaves[0].tolist(), held.leaves[1].tolist()] == [leaf.tolist(), base.tolist()]


def test_a_trace_says_what_requires_grad_and_where_grad_mode_is_off() -> None:
    leaf = torch.arange(4.0).requires_grad_()
    base = leaf * 2

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        b.mul_(a)  # autograd keeps a copy of what this overwrites, which is no call of the function's
        with torch.no_grad():
            a.add_(1)
        return b.detach() + a.exp()

    program = trace(fn, leaf, base)
    assert (program.leaves, program.rooted) == ((0,), (1,))
    assert [(call.op.split(".")[1], call.no_grad) for call in program.calls] == [
        ("mul_", False), ("add_", True), ("detach", False), ("exp", False), ("add", False)]  # fmt: skip


def test_a_trace_ends_with_the_call_that_autograd_refuses() -> None:
    leaf = torch.arange(4.0).requires_grad_()
    program = trace_refused(lambda a, b: (b.add_(1), a[1:].mul_(b)), leaf, torch.ones(3))
    assert program.raises == "RuntimeError"
    assert [call.op.split(".")[1] for call in program.calls] == ["add_", "slice", "mul_"]
    memory = allocate(program.entry)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        run(program, memory.tensors)
    assert memory.tensors[1].tolist() == [2.0, 2.0, 2.0]
