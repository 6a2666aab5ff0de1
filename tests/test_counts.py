"""How many regions, barriers and late copies well-known programs take: regressions of a compiler are counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks.alias_counts import CASES, MODES, counts, table
from corpus.store import read
from executor.tracing import trace

Program = Callable[..., Any]


def element(fn: Program) -> tuple[Program, list[torch.Tensor]]:
    x = torch.ones(5, 5)
    return fn, [x, x[0, 0]]


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.exp_() * b.tanh_()


def sin_of_the_result(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    t = a.exp_()
    b.tanh_()
    return t.sin()


def product_and_a_write(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a.exp_() * b.tanh_(), a.add_(1)


def columns(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    b.mul_(2)
    return a + b


def four_reads(a: torch.Tensor) -> torch.Tensor:
    a.tanh_()
    return a * a * a * a


def two_full_views(a: torch.Tensor) -> torch.Tensor:
    b, c = a.view(5, 5), a.view(5, 5)
    b.tanh_()
    return c.sin() * 2 * b


def written_slice_of_a_temporary(a: torch.Tensor) -> torch.Tensor:
    b = a * 2
    c = b[:]
    c.tanh_()
    return a * b


def apart() -> list[torch.Tensor]:
    return [torch.ones(5, 5), torch.ones(5, 5)]


def rows() -> list[torch.Tensor]:
    x = torch.ones(4, 5)
    return [x[:2], x[2:]]


def interleaved() -> list[torch.Tensor]:
    x = torch.ones(5, 4)
    return [x[:, ::2], x[:, 1::2]]


# Programs with a partial overlap: at most 2 regions with 1 barrier, or 1 region without.
OVERLAPS = {fn.__name__: element(fn) for fn in (product, sin_of_the_result, product_and_a_write)}
# Programs that need no barrier in any mode.
FREE: dict[str, tuple[Program, list[torch.Tensor]]] = {
    "product of independent inputs": (product, apart()),
    "write after product of independent inputs": (product_and_a_write, apart()),
    "disjoint rows, both written": (columns, rows()),
    "interleaved columns, both written": (columns, interleaved()),
    "four reads after a write": (four_reads, [torch.ones(5, 5)]),
    "two full views": (two_full_views, [torch.ones(5, 5)]),
    "written slice of a temporary": (written_slice_of_a_temporary, [torch.ones(5, 5)]),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_a_partial_overlap_takes_one_barrier_or_one_blend(name: str) -> None:
    fn, inputs = OVERLAPS[name]
    program = trace(fn, *inputs)
    assert counts(program, "barrier")[:3] == (2, 1, 0)
    assert counts(program, "blend")[:3] == (1, 0, 0)
    assert counts(program, "auto")[:3] == (1, 0, 0)


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("mode", MODES)
def test_what_needs_no_barrier_has_none(name: str, mode: Any) -> None:
    fn, inputs = FREE[name]
    assert counts(trace(fn, *inputs), mode)[:3] == (1, 0, 0)


def test_a_temporary_that_is_not_returned_is_never_copied() -> None:
    fn, inputs = FREE["written slice of a temporary"]
    assert counts(trace(fn, *inputs), "barrier") == (1, 0, 0, 0)


def test_two_writes_to_one_tensor_are_one_copy() -> None:
    assert counts(trace(lambda x: x.add_(1).mul_(2), torch.ones(3)), "barrier") == (1, 0, 0, 1)


def test_blending_never_takes_more_regions_on_the_corpus() -> None:
    found = dict(table((file.name, read(file)) for file in sorted(CASES.glob("*.json"))))
    assert len(found) > 50
    for name, (barrier, blend, auto) in found.items():
        assert blend[0] <= barrier[0], name
        assert auto[0] <= barrier[0], name
    assert sum(barrier[1] for barrier, _, _ in found.values()) > sum(blend[1] for _, blend, _ in found.values())
