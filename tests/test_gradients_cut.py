"""What goes from the forward to the backward program: the fewest bytes, and a copy only of what a later write changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from executor.args import refs
from executor.autograd.joint import Joint, Template
from executor.autograd.pair import Pair
from executor.autograd.relations import Relations
from executor.backends.eager import Eager
from executor.facts import facts
from executor.jit import jit
from executor.pipeline import uncompiled
from tests.gradient_behaviour import equal, leaf, plain


def pair(fn: Callable[..., Any], *args: torch.Tensor) -> Pair:
    relations = Relations(args)
    joint = Joint(Template.of(fn, args, {}, relations), relations)
    joint.run()
    return Pair(joint, uncompiled)


def rooted(*shape: int) -> torch.Tensor:
    return leaf(*shape).clone()


def kept_bytes(made: Pair) -> int:
    """Bytes that live on between the two programs because of us: on storages that are neither inputs nor outputs."""
    program = made.forward.program
    values = [program.values[v] for v in refs(program.outputs)][len(made.skeleton.anchors) :]
    seen = {
        program.values[v].storage for v in (*program.inputs, *list(refs(program.outputs))[: len(made.anchor_homes)])
    }
    return sum(program.storages[s].nbytes for s in {value.storage for value in values} - seen)


def copies(made: Pair) -> int:
    return sum(facts(call.op).move for call in made.forward.program.calls)


@pytest.mark.parametrize(("fn", "args", "wanted"), [
    (lambda a: a.exp(), (leaf(4),), 0),  # the output itself is kept
    (lambda a: a.exp().sin().exp() * a, (leaf(4),), 0),  # all again from a, which autograd keeps
    (lambda a: (a.exp().sin().exp() * a, a + 1), (leaf(4),), 16),  # the caller may go backward from a + 1 alone, and write a
    (lambda a: (a * 2).sin(), (leaf(4),), 16),  # autograd does not keep a, which the caller may write
    (lambda a: (a.sum().exp() * a).sin(), (leaf(4),), 4),  # one number is less than four
    (lambda a: (a.cumsum(0).sin().exp()).sin(), (leaf(4),), 16),  # nothing but element-wise operators runs again
    (lambda a, p: (p.exp() * a, p.add_(1))[0], (leaf(4), plain(4)), 16),  # p is written
    (lambda a, p: (b := p * 2, c := b.sin() * a, b.add_(1), c)[-1], (leaf(4), plain(4)), 16),  # so is b
], ids=range(8))  # fmt: skip
def test_bytes_that_are_kept(fn: Callable[..., Any], args: tuple[torch.Tensor, ...], wanted: int) -> None:
    assert kept_bytes(pair(fn, *args)) == wanted


@pytest.mark.parametrize(("fn", "args", "wanted"), [
    (lambda a, b: a.mul_(b), (rooted(4), leaf(4)), 1),  # the gradient of b needs what a was
    (lambda a: a.mul_(2), (rooted(4),), 0),
    (lambda a, b: (a * b).add_(1), (leaf(4), leaf(4)), 0),
    (lambda a, b: (a * b, a.sum(), b.exp()), (leaf(4), leaf(4)), 0),
    (lambda a, b: (c := a + b, c.mul_(a), c.mul_(b))[-1], (leaf(4), leaf(4)), 2),
    (lambda a: (a * 2).tanh_() * a, (leaf(4),), 0),
], ids=range(6))  # fmt: skip
def test_only_what_a_later_write_changes_is_copied(
    fn: Callable[..., Any], args: tuple[torch.Tensor, ...], wanted: int
) -> None:
    assert copies(pair(fn, *args)) == wanted


def test_a_call_from_the_cache_goes_backward_from_some_outputs_for_the_first_time() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        return (a * b).exp2() * a, a.mul(b).sin(), b * b

    compiled = jit(fn)
    compiled(leaf(4), leaf(4))
    for k in range(3):
        found, wanted = ([leaf(4), leaf(4, start=-1)] for _ in range(2))
        gradients = [
            torch.autograd.grad(f(*args)[k].sum(), args, allow_unused=True)
            for f, args in ((compiled, found), (fn, wanted))
        ]
        assert equal(*gradients)
    assert compiled.cache_info() == (3, 1)


def test_autocast_is_part_of_the_trace_but_not_of_going_backward() -> None:
    def train(f: Callable[..., Any]) -> Any:
        a, b = leaf(2, 3), leaf(3, 2)
        with torch.autocast("cpu", torch.bfloat16):
            first, second = f(a, b)
        second.backward(torch.ones_like(second), retain_graph=True)
        first.backward(torch.ones_like(first))
        return first.detach(), second.detach(), a.grad, b.grad

    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        return a @ b, (a @ b).sum(0) * 3

    compiled = jit(fn)
    for _ in range(2):
        assert equal(train(compiled), train(fn))
    assert train(fn)[0].dtype == torch.bfloat16


def test_both_programs_are_proved_and_explained() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return y * y

    base = leaf(6) * 1
    compiled = jit(fn, backend=Eager(), aliases="barrier")
    compiled(base[:4], base[2:]).sum().backward()
    assert compiled.last is not None
    assert compiled.last_backward is not None
    assert [trace.name for trace in compiled.last_backward.traces] == [trace.name for trace in compiled.last.traces]
    assert "barrier before region" in compiled.last.explain()
    assert "barrier before region" in compiled.last_backward.explain()
