"""Early write-backs: what is allowed is right under every schedule, what is refused goes wrong under some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from executor.backends.schedules import drawn, under
from executor.backends.tagged import Interner, in_program_order
from executor.early import early_refusal
from executor.memory_ssa import MemorySSA
from executor.partition import Partition, partition
from executor.passes.functional import out_of_place
from executor.tracing import trace

Pair = Callable[[torch.Tensor, torch.Tensor], Any]


def last_store_early(fn: Pair, shape: tuple[int, ...]) -> tuple[str | None, bool]:
    """Whether the last write-back is refused, made early, and whether some schedule then shows something else."""
    program = out_of_place(trace(fn, torch.ones(shape), torch.ones(shape)))
    memory, ids = MemorySSA(program), Interner()
    late = partition(program, lambda _: True, memory)
    store = max(i for i in range(len(program.calls)) if memory.stored(i) is not None)
    found = Partition(program, late.levels, late.fused, frozenset({store}))
    wanted = in_program_order(program, ids)
    return early_refusal(found, memory, store), any(under(found, ids, drawn(seed)) != wanted for seed in range(30))


ALLOWED: dict[str, tuple[Pair, tuple[int, ...]]] = {
    "through a reshape and back": (lambda x, _: x.copy_((x.view(-1) + 1).view(3, 3) * 2), (3, 3)),
    "through a transposition and back": (lambda x, _: x.t().copy_((x * 2).t() + 1), (3, 2)),
    "a view of it in another shape": (lambda x, _: x.view(-1).copy_((x + 1).view(-1) * 2), (2, 3)),
    "an output without the size 1": (lambda x, _: ((x * 2).squeeze(1) + 1, x.add_(1))[0], (4, 1)),
    "stored when all that is read of it is known": (
        lambda x, y: ((x * y).squeeze(1) + 1, x.copy_((x.squeeze(1) + y.squeeze(1)).unsqueeze(1) * x))[0],
        (4, 1),
    ),
    "an output with one more size 1": (lambda x, _: ((x * 2).unsqueeze(0) + 1, x.add_(1))[0], (4,)),
    "a sum over a size 1": (lambda x, _: (x.sum(1) * 2, x.add_(1))[0], (4, 1)),
    "a sum of one element": (lambda x, _: x.copy_(x.sum() * 2), ()),
    "after a store elsewhere": (lambda x, y: (x.add_(1), y.add_(1)), (4,)),
    "after a store elsewhere, the other way round": (lambda x, y: (y.add_(1), x.add_(1)), (4,)),
    "stored when a sum of something else is known": (lambda x, y: x.mul_(y.sum()), (3,)),
    "beside a broadcast of something else": (lambda x, y: (x + (y[0] * 2), x.add_(1))[0], (3,)),
    "a sum that nobody needs": (
        lambda x, y: (torch.as_strided_scatter(y, x.sum(), (), (), 0)[1:] + 1, x[0].add_(1))[0],
        (2,),
    ),
    "elements beside it": (lambda x, _: ((x * 2)[1] + 1, x[0].add_(1))[0], (3, 3)),
    "overwritten elements": (
        lambda x, y: (torch.as_strided_scatter(x, y[0], (3,), (1,), 0) * 2, x[0].copy_(y[0] + 1))[0],
        (3, 3),
    ),
    "scattered to the same place, and stored there": (
        lambda x, y: x.copy_(torch.as_strided_scatter(y, x[:2] * 2, (2,), (1,), 0) + 1),
        (4,),
    ),
}
REFUSED: dict[str, tuple[Pair, tuple[int, ...]]] = {
    "loaded under another name": (lambda x, _: (x.squeeze(1) * 2, x.add_(1))[0], (4, 1)),
    "loaded for an output alone": (lambda x, y: (x + 1, x.copy_(y * 2))[0], (4,)),
    "permuted by a copy": (lambda x, _: (torch.permute_copy(x, (1, 0)) + 1, x.add_(1))[0], (3, 3)),
    "transposed once": (lambda x, _: x.copy_((x * 2).t() + 1), (3, 3)),
    "reshaped to other threads": (lambda x, _: ((x * 2).view(-1) + 1, x.add_(1))[0], (2, 3)),
    "broadcast from a size 1": (lambda x, y: (x * y.t(), x.add_(1))[0], (4, 1)),
    "shifted": (lambda x, _: x[1:].copy_((x * 2)[:3] + 1), (4,)),
    "a sum of two": (lambda x, _: x.mul_(x.sum()), (2,)),
    "less the mean of its row": (lambda x, _: x.sub_(x.mean(1, keepdim=True)), (3, 3)),
    "less the sum of another row": (lambda x, _: x.sub_(x.sum(1)), (3, 3)),
    "less its row's sum, beside its columns'": (lambda x, _: (x.sum(0), x.sub_(x.sum(1, keepdim=True)))[0], (2, 2)),
    "more, beside its sum": (lambda x, _: (x.sum() + 1, x.add_(1))[0], (3,)),
    "an output by way of other threads": (lambda x, _: ((x.view(-1) + 1).view(3, 2) * 2, x.add_(1))[0], (3, 2)),
    "an output that waits for a sum of something else": (lambda x, y: (x * y.sum() + 1, x.add_(1))[0], (3,)),
    "a sum of it and others": (lambda x, _: (x.sum() + 1, x[0].add_(1))[0], (2,)),
    "one element for all": (lambda x, y: (x[0] + y, x.add_(1))[0], (4,)),
    "scattered to the same place by other threads": (
        lambda x, y: (torch.as_strided_scatter(y, x[:2] * 2, (2,), (1,), 0) + 1, x.add_(1))[0],
        (4,),
    ),
    "scattered elsewhere": (
        lambda x, y: (torch.as_strided_scatter(y, x[:2] * 2, (2,), (1,), 1) + 1, x.add_(1))[0],
        (4,),
    ),
    "scattered around": (
        lambda x, y: (torch.as_strided_scatter(x, y[0], (3,), (1,), 3) * 2, x[0].copy_(y[0] + 1))[0],
        (3, 3),
    ),
    "reversed": (lambda x, _: (x.flip(0) + 1, x.mul_(2))[0], (4,)),
    "returned as it was": (lambda x, _: (x.clone(), x.add_(1))[0], (4,)),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_meets_its_target_at_its_own_position_may_be_written_early(name: str) -> None:
    assert last_store_early(*ALLOWED[name]) == (None, False)


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_is_refused_and_goes_wrong(name: str) -> None:
    refusal, wrong = last_store_early(*REFUSED[name])
    assert refusal is not None
    assert wrong


def test_a_sum_over_a_size_1_may_be_the_target_itself() -> None:
    def fn(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        y = x.sum(1)
        x.add_(1)
        return y

    assert last_store_early(fn, (4, 1))[0] is not None
