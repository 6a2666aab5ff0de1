"""Compiled functions whose inputs require grad, against eager: everything that a caller can see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch

from executor.functions import Doubled, Multiplied, Reversed
from executor.jit import jit
from executor.pipeline import Aliases
from tests.gradient_behaviour import Made, Make, all_of, equal, leaf, leaves, observed, plain


def check(fn: Callable[..., Any], make: Make, backward: Callable[..., Any] = all_of) -> None:
    """Eager and compiled in all modes, twice each, show the same."""
    wanted = observed(fn, make, backward)
    for aliases in get_args(Aliases):
        compiled = jit(fn, aliases=aliases)
        for _ in range(2):
            found = observed(compiled, make, backward)
            assert equal(found, wanted), f"{aliases}: {found}, not {wanted}"


def rooted(*views: tuple[int, int]) -> Make:
    """Windows of one tensor of six elements that is no leaf."""

    def make() -> Made:
        root = leaf(6)
        base = root.clone()
        return [base[a:b] for a, b in views], [root]

    return make


def windows(*views: tuple[int, int]) -> Make:
    """Leaves that are windows of the same memory, each for itself."""

    def make() -> Made:
        base = plain(6)
        made = [base[a:b].detach().requires_grad_() for a, b in views]
        return made, made

    return make


def with_plain(make: Make, *shapes: tuple[int, ...]) -> Make:
    """The same with more arguments, which do not require grad."""

    def more() -> Made:
        args, looked_at = make()
        return [*args, *(plain(*shape, start=-2) for shape in shapes)], looked_at

    return more


def overlap(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.mul_(b)
    return a.sum() + b, b * 2


def complex_window() -> Made:
    """A leaf, and the second of two complex numbers."""
    a = leaf(start=3)
    return [a, torch.arange(1.0, 3.0).to(torch.complex64)[1]], [a]


def lazy(view: Callable[[torch.Tensor], torch.Tensor]) -> Make:
    """A leaf, and a view of the second of two complex numbers; nothing else is known of that one's memory."""

    def make() -> Made:
        a = leaf(start=3)
        return [a, view((torch.arange(1.0, 3.0) * (1 + 2j)).to(torch.complex64)[1])], [a]

    return make


def a_and_written(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    b.add_(a)
    return a


FUNCTIONS: list[tuple[Callable[..., Any], Make]] = [
    # The history of c is made anew from the base of b, which is no argument.
    (lambda a, b: (c := b.conj(), b.add_(a), c + a)[1:], complex_window),
    # Here the base that gets a history has other lazy bits than the argument.
    (a_and_written, lazy(torch.conj)),
    (a_and_written, lazy(torch._neg_view)),
    (lambda a, b: (c := b * a, b.add_(a), c, b * 2)[2:], lazy(lambda b: torch._neg_view(b.conj()))),
    (lambda a: a * 3, leaves((4,))),
    (lambda a: (a * 3, a, a.detach(), a.sum(), torch.ones(2)), leaves((2, 2))),
    (lambda a, b: (a * b, (a > b)), leaves((4,), (4,))),
    (lambda a, b: a + b, leaves((3, 1), (1, 2))),
    (lambda a: a.expand(3, 4).t(), leaves((4,))),
    (lambda a: a[1:], leaves((4,))),
    (lambda a: a.chunk(2), leaves((4,))),
    (lambda a: (a * 2).view(2, 2).t(), leaves((4,))),
    (lambda a: [(b := a * 2), b[1:], b], leaves((4,))),
    (lambda a: [(b := a * 2)[1:], b[:2].mul_(3)], leaves((4,))),
    (lambda a: a, leaves((4,))),
    (lambda a, b: a.mul_(b), rooted((0, 4), (2, 6))),
    (lambda a, b: a[1:].mul_(2), rooted((0, 4), (2, 6))),
    (lambda a, b: (b[::2], a.mul_(2), b[::2], b.detach()), rooted((0, 4), (2, 6))),
    (lambda a, b: (b.chunk(2), a.mul_(2)), rooted((0, 4), (2, 6))),
    (lambda a, b: (a.mul_(2), b.chunk(2)), rooted((0, 4), (2, 6))),
    (lambda a, b: (a * 2).add_(b), windows((0, 4), (2, 6))),
    (lambda a, b: a.detach().mul_(2) * b, windows((0, 4), (2, 6))),
    (overlap, rooted((0, 4), (1, 5))),
    (overlap, windows((0, 4), (1, 5))),
    (lambda a, p: p.mul_(a), with_plain(leaves((4,)), (4,))),
    (lambda a, p: (p[1:].mul_(a[1:]), p.sum()), with_plain(leaves((4,)), (4,))),
    (lambda a, p: p.add_(1) * a, with_plain(leaves((4,)), (4,))),
    (lambda a, p: p.add_(1), with_plain(leaves((4,)), (4,))),
    (lambda a, p: p.copy_(a).add_(p), with_plain(leaves((4,)), (4,))),
    (lambda a: a.exp_(), leaves((4,))),
    (lambda a: a[1:].mul_(2), leaves((4,))),
    (lambda a, p: (p.add_(1), a.add_(1)), with_plain(leaves((4,)), (4,))),
    (lambda a: (b := a * 2, c := b * b, b.add_(1), c)[-1], leaves((4,))),
    (lambda a: (b := a * 2, c := b * b, b.add_(1), c + a, b), leaves((4,))),
    (lambda a: (b := (a * 2).relu_(), b.mul_(b).sum()), leaves((4,))),
    (lambda a: torch.cat([a, a * 2]).view(2, 4).sum(0), leaves((4,))),
    (lambda a: a.unbind(), leaves((2, 3))),
    (lambda a, b: a @ b, leaves((2, 3), (3, 2))),
    (lambda a: a[torch.tensor([0, 2, 2])], leaves((4,))),
    (lambda a: a.index_put((torch.tensor([0, 2]),), a[:2]), leaves((4,))),
    (lambda a: torch.where(a > 2, a, a * 2), leaves((4,))),
    (lambda a: a.cumsum(0).flip(0), leaves((4,))),
    (lambda a: a.max(), leaves((4,))),
    (lambda a: a.sort().values, leaves((4,))),
    # A custom function gives a history too, before views are made that have none otherwise.
    (lambda a: (Doubled.apply(a), a[:1], a.chunk(2)), rooted((0, 4))),  # type: ignore[no-untyped-call]
    (lambda a, b: (Doubled.apply(a), Reversed.apply(b), b.unbind(), a), rooted((0, 4), (2, 6))),  # type: ignore[no-untyped-call]
    (lambda a, p: (Multiplied.apply(p, a), p[1:], Reversed.apply(p)), with_plain(leaves((4,)), (4,))),  # type: ignore[no-untyped-call]
    (lambda a, p: (p.add_(a), p.chunk(2), p.mul_(2)), with_plain(leaves((4,)), (4,))),
    (lambda a, p: [p.add_(a), p[1:].mul_(2), p.chunk(2), Doubled.apply(p)], with_plain(leaves((4,)), (4,))),  # type: ignore[no-untyped-call]
    # Its derivative is zero, which autograd writes to memory of its own, in part.
    (lambda a: [(b := a + 1)[1:3].add_(10), b.sgn_()], leaves((3,))),
    # Nor does a kernel read it where there is no memory.
    (lambda a: torch.ops.aten.mul.Scalar(a, 2).sgn_(), leaves((3, 4))),
    # Their own derivative would look which indices are distinct.
    (lambda a, b: (a * 1).index_fill_(0, torch.tensor([0, 2, 0]), b[1]), leaves((4,), (2,))),
    (lambda a, b: a.index_fill(-1, torch.tensor([1, 2]), b.sum()), leaves((2, 3), (2,))),
    (lambda a, b: torch.index_fill(a, 0, torch.tensor(0), value=b[0]), leaves((), (2,))),
    # What is no view to autograd but lies on memory of a computed tensor: `flatten` has copied.
    (lambda a: a.t().flatten().split(2)[0], leaves((2, 2))),
    (lambda a: [(b := a.t().flatten()), (c := b[1:]), c.mul_(2), b.chunk(2)], leaves((2, 2))),
    (lambda a: [(b := a * 2), *b.unsafe_split(2)], leaves((4,))),
    (lambda a: (b := (a * 2).unsafe_split(2))[1][1:] * b[0][:1], leaves((4,))),
]


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_as_eager(number: int) -> None:
    check(*FUNCTIONS[number])
