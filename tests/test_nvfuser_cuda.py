"""nvFuser's kernels against eager on a GPU: the corpus under all modes, sizes from nothing to more than a wave, offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpus.case import Case
from corpus.store import Store
from executor.jit import Compiled, jit
from executor.pipeline import Aliases
from executor.targets import Target
from executor.targets.cuda import OnCuda
from executor.targets.null import Null
from executor.targets.pipeline import Pipeline
from fuzz.check import check

pytestmark = pytest.mark.cuda

MODES: tuple[Aliases, ...] = ("barrier", "blend", "auto")
CASES = [(path, case) for path, case in Store().cases() if isinstance(case, Case)]
SMALL = (0, 1, 7, 31, 257)
BLOCK, WAVE = 1025, 1 << 20  # more elements than a block has threads, than the GPU has at once
TIMES = 20  # races show now and then


def on_gpu(mode: Aliases) -> Target:
    return OnCuda(Pipeline("pipeline:nvfuser", "nvfuser", mode), "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("path", "case"), CASES, ids=[path.stem for path, _ in CASES])
def test_corpus(path: Path, case: Case, mode: Aliases) -> None:
    if not check(case.program, target=OnCuda(Null(), ""), exact=case.exact, calls=case.calls).ok:
        pytest.skip("eager itself does on the GPU what it doesn't on the CPU")
    verdict = check(case.program, target=on_gpu(mode), exact=case.exact, calls=case.calls)
    assert verdict.ok, str(verdict)


def in_place(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + 1


def shifted(x: torch.Tensor) -> torch.Tensor:
    x[1:].copy_(x[:-1].clone())
    return x * 2


def interleaved(x: torch.Tensor) -> torch.Tensor:
    x[::2].add_(1)
    x[1::2].mul_(3)
    return x + x[:1]


def halves(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first, second = x[: x.shape[0] // 2], x[x.shape[0] // 2 :]
    first.add_(1)
    second.mul_(2)
    return first.sum(0), second - 1, x + 0


def scaled_by_its_sum(x: torch.Tensor) -> torch.Tensor:
    total = x.sum(0)
    x.add_(1)
    return x * total


def pre_image(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    before = x.clone()
    x.add_(1)
    return before, x.flip(0)


def from_its_head(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1) * x[:1].mul_(2)


LINES = [in_place, shifted, interleaved, halves, scaled_by_its_sum, pre_image, from_its_head]


def transposed_self_copy(x: torch.Tensor) -> torch.Tensor:
    x.copy_(x.t() + 1)
    return x.t() * 2


def diagonal(x: torch.Tensor) -> torch.Tensor:
    x.diagonal().mul_(2)
    return x + 1


def columns(x: torch.Tensor) -> torch.Tensor:
    x[:, 2:7].neg_()
    return x.sum(1)


def strided_target(x: torch.Tensor) -> torch.Tensor:
    x[::2, 1:9:3].add_(x[1::2, 1:9:3])
    return x * 2


def row_over_column(x: torch.Tensor) -> torch.Tensor:
    x[0].copy_(x[:, 1].clone())
    return x + x[:1]


SQUARES = [transposed_self_copy, diagonal, columns, strided_target, row_over_column]


def compare(fn: Callable[..., Any], base: torch.Tensor, view: Callable[[torch.Tensor], torch.Tensor]) -> Compiled:
    """Compiled against eager, on equal memory: what is returned, and all of the storage afterwards."""
    mine, theirs = base.clone(), base.clone()
    compiled = jit(fn, backend="nvfuser")
    actual, expected = compiled(view(mine)), fn(view(theirs))
    assert torch.equal(mine, theirs)
    pairs = zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    assert all(torch.equal(a, b) for a, b in pairs)
    return compiled


def ramp(count: int) -> torch.Tensor:
    return torch.arange(count, device="cuda") % 61 - 30.0


@pytest.mark.parametrize("fn", LINES, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("count", [*SMALL, BLOCK])
@pytest.mark.parametrize("skip", [0, 1, 3])
def test_small_lines(fn: Callable[..., Any], count: int, skip: int) -> None:
    compare(fn, ramp(count + skip + 5), lambda base: base[skip : skip + count])


@pytest.mark.parametrize("fn", LINES, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("skip", [0, 1])
def test_large_lines(fn: Callable[..., Any], skip: int) -> None:
    for _ in range(TIMES):
        compare(fn, ramp(WAVE + skip), lambda base: base[skip:])


@pytest.mark.parametrize("fn", SQUARES, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("side", [10, 31])
@pytest.mark.parametrize("skip", [0, 2])
def test_small_squares(fn: Callable[..., Any], side: int, skip: int) -> None:
    even = side - side % 2
    compare(fn, ramp(side * side + skip), lambda base: base[skip:].view(side, side)[:even, :even])


@pytest.mark.parametrize("fn", SQUARES, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("transposed", [False, True])
def test_large_squares(fn: Callable[..., Any], *, transposed: bool) -> None:
    for _ in range(TIMES):
        compare(fn, ramp(2048 * 2048), lambda base: base.view(2048, 2048).t() if transposed else base.view(2048, 2048))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64])
def test_dtypes(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(1)
        return x * 0.5, x / 2, x.sum(), x > 3, x.float(), -x

    compare(fn, ramp(BLOCK).to(dtype), lambda base: base[:])


def test_early_stores_are_made_by_one_kernel() -> None:
    (detail,) = compared(in_place).last.regions_detail  # type: ignore[union-attr]
    assert detail.early
    assert len(detail.kernels) == 1
    assert "add_output" in detail.definition
    assert "__global__" in detail.cuda


def compared(fn: Callable[..., Any]) -> Compiled:
    return compare(fn, ramp(BLOCK), lambda base: base[:])


def test_stores_beside_a_second_kernel_are_late() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        x.copy_(y)
        return torch.zeros(300, 7, device=x.device) + 1, y

    (detail,) = compared(fn).last.regions_detail  # type: ignore[union-attr]
    assert detail.early == (len(detail.kernels) == 1)


def test_fusions_are_shared_between_programs() -> None:
    from executor.backends.nvfuser.fusion import cache_info

    compared(lambda x: x * 5 - 2)
    before = cache_info()
    compared(lambda x: (x * 5) - 2)
    after = cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


def test_metrics_count_kernels() -> None:
    target = on_gpu("auto")
    compiled = target.compile(in_place, ())
    compiled(torch.ones(5))
    assert target.metrics(compiled) == {"regions": 1, "barriers": 0, "breaks": 0, "copies": 0, "kernels": 1}


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.masked_fill(x, 0),
        lambda x: torch.where(x, 0, x),
        lambda x: torch.where(x, x, True),  # noqa: FBT003
        lambda x: x.logical_or(x) * x,
    ],
)
def test_selections_of_bools_stay_bools(fn: Callable[..., Any]) -> None:
    x = torch.arange(8, device="cuda") % 3 == 0
    compiled = jit(fn, backend="nvfuser")
    assert compiled(x).dtype == fn(x).dtype
    assert torch.equal(compiled(x), fn(x))


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.mul_(x).abs_().neg_(),
        lambda x: x.abs_(),
        lambda x: x.neg_().clone(),
        lambda x: x.sub_(x),
        lambda x: x.abs_().neg(),
    ],
)
def test_signs_of_zeros_are_eagers(fn: Callable[[torch.Tensor], torch.Tensor], zero: float) -> None:
    x = torch.full((9,), zero, device="cuda")
    assert torch.equal(torch.signbit(jit(fn, backend="nvfuser")(x.clone())), torch.signbit(fn(x)))
