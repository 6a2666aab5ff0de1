"""The nvFuser backend's rules and tables, which need no GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from aliasfuzz import kernels
from executor import targets
from executor.backends.base import Backend, Detail
from executor.backends.nvfuser import NvFuser, fusion, rules
from executor.backends.nvfuser.backend import FusedKernel
from executor.backends.nvfuser.body import Body, body_of
from executor.backends.nvfuser.definition import common_dtype, define
from executor.backends.nvfuser.dtypes import NAMES, computed_in, number, promoted
from executor.backends.nvfuser.fusion import Tally, fusion_of, kernel_names
from executor.backends.nvfuser.operators import OPERATORS
from executor.backends.nvfuser.pointwise import POINTWISE, SELECTIONS
from executor.errors import AliasRaceError, TargetError
from executor.jit import jit
from executor.memory_ssa import MemorySSA
from executor.partition import Partition, partition
from executor.pipeline import Chooser, passes
from executor.program import Call, Program
from executor.regions import Layout, Region
from executor.schema import resolve
from executor.targets.cuda import placed
from executor.targets.moved import Moved
from executor.tracing import trace
from executor.verify import early_refusal, verify

on_cpu = partial(rules.refusal, device="cpu")
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")


def compiled(fn: Callable[..., Any], *args: torch.Tensor) -> tuple[Partition, MemorySSA]:
    """The partition of a function, as the backend would cut it if it took CPU tensors."""
    program = trace(fn, *args)
    for _, run in passes(Chooser("blend", None)):  # type: ignore[arg-type]
        program = run(program)
    memory = MemorySSA.of(program)
    return partition(program, lambda call: on_cpu(program, call) is None, memory), memory


def refused(fn: Callable[..., Any], *args: torch.Tensor) -> list[str]:
    program = trace(fn, *args)
    memory = MemorySSA.of(program)
    found = [
        on_cpu(program, call)
        for call, what in zip(program.calls, memory.accesses, strict=True)
        if not (what.address or what.writes)
    ]
    return [why for why in found if why is not None]


@pytest.mark.parametrize("op", sorted({*POINTWISE, *SELECTIONS, *OPERATORS}))
def test_tables_name_operators_that_exist(op: str) -> None:
    assert not resolve(op)._schema.is_mutable


def test_dtypes_are_torchs() -> None:
    assert all(isinstance(getattr(torch, name), torch.dtype) for name in NAMES)
    assert "uint8" not in NAMES
    assert "int16" not in NAMES


def test_half_types_are_computed_in_float32() -> None:
    assert [computed_in(name) for name in ("float16", "bfloat16", "float64", "int32")] == [
        "float32",
        "float32",
        "float64",
        "int32",
    ]


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [(2, "float32", 2.0), (True, "int64", 1), (2, "bool", True), (1, "complex64", 1 + 0j)],
)
def test_numbers_take_the_dtype(value: complex, dtype: str, expected: complex) -> None:
    found = number(value, dtype)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(("a", "b"), [("int64", "float16"), ("float32", "float64"), ("bool", "int32")])
@pytest.mark.parametrize("ranks", [(1, 1), (0, 1), (1, 0), (0, 0)])
def test_comparisons_promote_as_eager_does(a: str, b: str, ranks: tuple[int, int]) -> None:
    x, y = (torch.ones((2,) * rank, dtype=getattr(torch, name)) for name, rank in zip((a, b), ranks, strict=True))
    program = trace(torch.gt, x, y)
    assert common_dtype(program.calls[0], program.values) == str(torch.result_type(x, y)).removeprefix("torch.")


def test_numbers_promote_by_kind() -> None:
    program = trace(lambda x: x > 1.5, torch.ones(2, dtype=torch.int64))
    assert promoted([program.values[0], 1.5]) == "float32"
    assert promoted([program.values[0], 1]) == "int64"


@pytest.mark.parametrize(
    ("fn", "args", "why"),
    [
        (lambda x: x + 1, [torch.ones(3, dtype=torch.uint8)], "nvFuser has no uint8"),
        (lambda x: x + 1, [torch.ones(3, dtype=torch.complex64).conj()], "a tensor is lazily conjugated or negated"),
        (lambda x: x + 1, [torch.ones(0)], "a tensor has no elements"),
        (lambda x: x + 1, [torch.ones((1,) * 9)], "a tensor has 9 dimensions"),
        (lambda x: x.sort()[0], [torch.ones(3)], "nvFuser has nothing for aten.sort.default"),
        (lambda x: x.floor(), [torch.ones(3, dtype=torch.int64)], "aten.floor.default is not taken for int64"),
        (lambda x: x.sum(), [torch.ones(3, dtype=torch.complex64)], "aten.sum.default is not taken for complex64"),
        (lambda x: x + 1j, [torch.ones(3)], "aten.add.Tensor casts to complex"),
        (lambda x: (x + 1).view(torch.int32) + 1, [torch.ones(3)], "aten.view.dtype reads elements as others than they are"),
        (lambda x: (x + 1).unfold(0, 2, 1) + 1, [torch.ones(3)], "that no slices, permutations and broadcasts make"),
        (lambda x: (x + 1)[::2] + 1, [torch.ones(8)], "aten.slice.Tensor gives a layout"),
        (lambda x: x.sum() * 2, [torch.ones(3)], "aten.mul.Tensor gives one element, which the host computes as fast"),
        (lambda x: torch.cat([x, x]), [torch.ones(3)], "nvFuser has nothing for aten.cat.default"),
        (lambda x: x.clone(), [torch.ones(3)], "aten.clone.default is a copy, which the host makes as fast"),
        (lambda x: (x + 1)[1:] + 1, [torch.ones(3)], "aten.slice.Tensor begins where nvFuser would load several"),
        (lambda x: torch.arange(0.0, 3.0), [torch.ones(3)], "aten.arange.start is taken for integers only"),
        (lambda x: (x + 1)[:1] - x, [torch.ones(3)], "aten.slice.Tensor picks from a dimension"),
        (lambda x: (x + 1)[0] * 2, [torch.ones(3, 4)], "aten.select.int picks from a dimension"),
        (lambda x: (torch.zeros(8) * 2)[:4] + 1, [torch.ones(3)], "aten.slice.Tensor is a part of what nvFuser may"),
        (lambda x: (x.expand(8, 2) * 2)[:4] + 1, [torch.ones(2)], "aten.slice.Tensor is a part of what nvFuser may"),
        (lambda x: x.sum(0) + x.amax(0), [torch.ones(4, 4)], "aten.amax.default is another kind of reduction than the"),
    ],
)  # fmt: skip
def test_what_is_refused(fn: Callable[..., Any], args: list[torch.Tensor], why: str) -> None:
    assert any(why in found for found in refused(fn, *args))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x + 1)[4:, :3] * 2,
        lambda x: (x + 1).t().reshape(-1) + 1,
        lambda x: (x + 1)[:, 4:].unsqueeze(0).expand(3, 8, 4) + 1,
        lambda x: torch.zeros(8, 8)[:4] + x[:4],
        lambda x: x.sum(0) + x.mean(),
        lambda x: ((x + 1)[4:] + torch.empty(4, 8).copy_(x[4:]))[:4] * 2,
        lambda x: torch.where(x > 0, x, 1.0),
        lambda x: x.half().mul(0.5).sum(0, keepdim=True),
        lambda x: torch.softmax(x, 0),
    ],
)
def test_what_is_taken(fn: Callable[..., Any]) -> None:
    assert refused(fn, torch.ones(8, 8)) == []


def test_a_tensor_elsewhere_is_refused() -> None:
    program = trace(lambda x: x + 1, torch.ones(3))
    assert rules.refusal(program, program.calls[0]) == "a tensor lies on cpu"


def early(fn: Callable[..., Any], *args: torch.Tensor) -> list[str | None]:
    """For each write-back that the memory model allows to be early, why nvFuser's kernel may not make it."""
    found, memory = compiled(fn, *args)
    stores = [i for i in range(len(found.program.calls)) if memory.stored(i) is not None]
    return [rules.early_refusal(found, memory, i) for i in stores if early_refusal(found, memory, i) is None]


@pytest.mark.parametrize(
    "args",
    [
        [torch.ones(4, 4)],
        [torch.ones(4, 4).t()],
        [torch.ones(2, 3, 4).permute(2, 0, 1)],
        [torch.ones(20)[3:19]],
        [torch.ones(4, 1)],
    ],
)
def test_dense_targets_are_written_early(args: list[torch.Tensor]) -> None:
    assert early(lambda x: x.mul_(2), *args) == [None]


def test_a_broadcast_beside_what_is_stored_does_no_harm() -> None:
    assert early(lambda x, y: x.sin_() * y, torch.ones(3), torch.ones(())) == [None]


@pytest.mark.parametrize(
    ("fn", "args", "why"),
    [
        (lambda x: x.mul_(2), [torch.ones(8, 8)[:, 2:7]], "not dense"),
        (lambda x: x.mul_(2), [torch.ones(8, 8)[::2]], "not dense"),
        (lambda x, y: x.copy_(y.sum()), [torch.ones(()), torch.ones(4)], "less than two elements"),
        (lambda x: x.copy_(torch.ones(1, 4).expand(4, 4) * 2), [torch.ones(4, 4)], "broadcast"),
        (lambda x: x.fill_(2), [torch.ones(4)], None),
        (lambda x, y: (x.copy_(y), x.amin(0))[1], [torch.ones(1, 2), torch.ones(1, 2)], "elements moved"),
        (lambda x, y: (x.copy_(y), x * 2)[1], [torch.ones(2), torch.ones(2)], "elements moved"),
        (lambda x, y: x.add_(y), [torch.ones(2, 3), torch.ones(3)], "after a broadcast"),
        (lambda x, y: x.mul_(y), [torch.ones(3), torch.ones(())], "after a broadcast"),
        (lambda x, y: x.add_((y + 1).expand(4, 3)), [torch.ones(4, 3), torch.ones(3)], "after a broadcast"),
    ],
)
def test_what_is_not_written_early(fn: Callable[..., Any], args: list[torch.Tensor], why: str | None) -> None:
    found = early(fn, *args)
    assert found == [] if why is None else len(found) == 1 and why in str(found[0])


def test_verify_applies_the_backends_rules() -> None:
    found, memory = compiled(lambda x: x.mul_(2), torch.ones(8, 8)[:, 2:7])
    store = next(i for i in range(len(found.program.calls)) if memory.stored(i) is not None)
    found = found._replace(early=frozenset({store}))
    verify(found, memory)  # the memory model alone has nothing against it
    with pytest.raises(AliasRaceError, match="is written early, but its target is not dense"):
        verify(found, memory, rules.early_refusal)


def only_region(program: Program) -> Region:
    memory = MemorySSA.of(program)
    found = partition(program, lambda call: on_cpu(program, call) is None, memory)
    (region,) = [step for step in Layout(found, memory).run() if isinstance(step, Region)]
    return region


@pytest.mark.parametrize(
    ("fn", "clones"),
    [
        (lambda x, y: x[0].copy_(y[1].clone()), 0),
        (lambda x, _: x[1:].copy_(x[:-1].clone()), 1),  # they meet
        (lambda x, y: (copied := y.clone(), x.copy_(copied))[0], 1),  # it is returned too
        (lambda x, y: (copied := y.clone(), y.mul_(2), x.copy_(copied))[2], 0),  # what was copied changes later
        (lambda x, y: (copied := y.clone(), y.cumsum_(0), x.copy_(copied))[2], 1),  # it changes first
    ],
)
def test_the_host_stores_memory_without_a_detour(fn: Callable[..., Any], clones: int) -> None:
    found, memory = compiled(fn, torch.ones(4, 4), torch.ones(4, 4))
    steps = Layout(found, memory).run()
    ops = [step.op for step in steps if isinstance(step, Call)]
    assert (ops.count("aten.clone.default"), "aten.copy_.default" in ops) == (clones, True)


def test_equal_regions_of_different_programs_have_one_body() -> None:
    first = trace(lambda x, y: (x + 1) * y, torch.ones(3), torch.ones(3))
    second = trace(lambda y, z, x: (x + 1) * z, torch.ones(5, 5), torch.ones(9)[4:7], torch.ones(3))
    assert body_of(only_region(first)) == body_of(only_region(second))


def test_bodies_differ_by_layout() -> None:
    bodies = {
        body_of(only_region(trace(lambda x: x + 1, x)))
        for x in (torch.ones(4, 4), torch.ones(4, 4).t(), torch.ones(4, 8)[:, ::2], torch.ones(4, 4).double())
    }
    assert len(bodies) == 4


def test_the_cache_counts_what_it_had_since_it_was_asked() -> None:
    tally = Tally()
    tally.take()
    body = body_of(only_region(trace(lambda x: (x + 5) * x, torch.ones(11))))
    first, again = fusion_of(body), fusion_of(body)
    assert first is again
    assert tally.take() == {"fusions": 2, "fusions from the cache": 1}
    assert tally.take() == {}


def left(fn: Callable[..., Any], *args: torch.Tensor, early: bool) -> list[bool]:
    """For each value that leaves the fusion of a function's only region, whether a copy of it does."""
    found, memory = compiled(fn, *args)
    stores = [i for i in range(len(found.program.calls)) if memory.stored(i) is not None]
    (region,) = [s for s in Layout(found._replace(early=frozenset(stores)), memory).run() if isinstance(s, Region)]
    nvfuser = MagicMock()
    fd = nvfuser.FusionDefinition().__enter__()
    for name in ("sin", "cos", "add", "set"):
        getattr(fd.ops, name).side_effect = lambda *args, name=name: (name, args)
    define(nvfuser, body_of(region), early=early)
    return [call.args[0][0] == "set" for call in fd.add_output.call_args_list]


def test_what_is_stored_early_leaves_without_a_copy_once() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sin_().cos()

    assert left(fn, torch.ones(4), early=True) == [False, False]
    assert left(fn, torch.ones(4), early=False) == [True, True]


def test_a_value_that_leaves_twice_is_copied() -> None:
    def twice(x: torch.Tensor, y: torch.Tensor) -> None:
        new = x.sin()
        x.copy_(new)
        y.copy_(new)

    def beside_a_copy_of_it(x: torch.Tensor) -> torch.Tensor:
        return x.sin_().clone()

    assert left(twice, torch.ones(4), torch.ones(4), early=True) == [True, True]
    assert left(beside_a_copy_of_it, torch.ones(4), early=True) == [True, True]
    assert left(beside_a_copy_of_it, torch.ones(4, dtype=torch.float16), early=True) == [True, True]


class Failing:
    """An nvFuser whose compiler fails with a message: on definitions that store early, or on all."""

    def __init__(self, message: str, *, early_only: bool = False) -> None:
        self.message, self.early_only = message, early_only

    def define(self, _: object, body: Body, *, early: bool) -> MagicMock:
        """In the place of `definition.define`."""
        fd = MagicMock()
        fd.execute.side_effect = RuntimeError(self.message)
        if self.early_only and not early:
            fd.execute.side_effect = lambda inputs, **_: [inputs[0] + 1 for _ in (*body.outputs, *body.early)]
        return fd


ASSERT = "INTERNAL ASSERT FAILED at segmenter.cpp:1, please report a bug\nExpected nothing of the kind\nframe #0"


def failing(monkeypatch: pytest.MonkeyPatch, found: Failing, *, validate: bool = False) -> FusedKernel:
    """The kernel of `x.add_(1); return x.mul(1).clone()` with an early store, over that nvFuser."""
    monkeypatch.setattr(fusion, "define", found.define)
    monkeypatch.setattr(fusion, "nvfuser", MagicMock())
    fusion.fusion_of.cache_clear()
    found_, memory = compiled(lambda x: x.add_(1) * 1, torch.ones(4))
    stores = frozenset(i for i in range(len(found_.program.calls)) if memory.stored(i) is not None)
    (region,) = [s for s in Layout(found_._replace(early=stores), memory).run() if isinstance(s, Region)]
    assert len(region.early) == 1
    return FusedKernel(region, validate=validate)


BETWEEN = "Error from segmentation group 3: Expected (stride)==(0)\nExpected nothing of the kind\nframe #0"


@pytest.mark.parametrize("message", [ASSERT, BETWEEN])
def test_a_region_on_which_the_compiler_fails_runs_call_by_call(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    kernel, x = failing(monkeypatch, Failing(message)), torch.arange(4.0)
    before = fusion.cache_info().failures
    for count in (1, 2):
        (out,) = kernel([x])
        assert x.tolist() == [count + i for i in range(4)]
        assert out.tolist() == x.tolist()
        assert out.untyped_storage()._cdata != x.untyped_storage()._cdata
    assert kernel.failure == "Expected nothing of the kind"
    assert fusion.cache_info().failures == before + 1
    assert kernel.detail().kernels == ()


def test_where_early_stores_fail_to_compile_late_ones_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x = failing(monkeypatch, Failing(ASSERT, early_only=True)), torch.arange(4.0)
    (out,) = kernel([x])
    assert (x.tolist(), out.tolist(), kernel.failure) == ([1, 2, 3, 4], [1, 2, 3, 4], "")


def test_the_second_oracle_shows_the_compilers_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fusion.CompilerError, match="nothing of the kind"):
        failing(monkeypatch, Failing(ASSERT), validate=True)([torch.arange(4.0)])


def test_errors_of_kernels_are_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "INTERNAL ASSERT FAILED at compiled_kernel.cpp:1\nExpected CUDA_SUCCESS. CUDA error: misaligned address"
    with pytest.raises(RuntimeError, match="misaligned"):
        failing(monkeypatch, Failing(message))([torch.arange(4.0)])


def test_kernel_names() -> None:
    code = "// text\n__global__ void nvfuser_pointwise_f0_c1_r0_g2(Tensor<float, 1, 1> T0) {\n}\n__global__ void b(int x) {}"
    assert kernel_names(code) == ("nvfuser_pointwise_f0_c1_r0_g2", "b")


def test_programs_are_placed_on_a_device() -> None:
    program = placed(trace(lambda x: x + torch.zeros(3, device="cpu"), torch.ones(3)), "meta")
    assert {storage.device for storage in program.storages} == {"meta"}
    assert program(torch.ones(3, device="meta")).device.type == "meta"


def test_moved_functions_write_through() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y.add_(1)
        return x, x.t(), x + 1

    base = torch.zeros(3, 4)
    out = Moved(fn, "cpu")(base, base[1:])
    assert base.tolist() == [[0] * 4, [1] * 4, [1] * 4]
    assert out[0] is base
    assert out[1].untyped_storage()._cdata == base.untyped_storage()._cdata
    assert out[1].stride() == (1, 4)
    assert out[2].tolist() == [[1] * 4, [2] * 4, [2] * 4]


@needs_no_gpu
@pytest.mark.parametrize("name", ["pipeline:nvfuser", "pipeline:nvfuser:validated", "thunder:nvfuser"])
def test_targets_say_what_they_need(name: str) -> None:
    with pytest.raises(TargetError, match="needs a CUDA device"):
        targets.get(name)


@needs_no_gpu
def test_jit_says_what_it_needs() -> None:
    with pytest.raises(TargetError, match="needs a CUDA device"):
        jit(lambda x: x, backend="nvfuser")


class Picky(Backend):
    """Takes nothing."""

    name = "picky"

    def refusal(self, program: Program, call: Any) -> str | None:
        return "it is no Tuesday"

    def compile(self, region: Region) -> Any:
        raise AssertionError


def test_explain_says_what_runs_on_the_host() -> None:
    fn = jit(lambda x: x + 1, backend=Picky())
    fn(torch.ones(2))
    assert fn.last is not None
    text = fn.last.explain()
    assert "on the host:" in text
    assert "aten.add.Tensor" in text
    assert "it is no Tuesday" in text


def test_backends_without_code_have_no_detail() -> None:
    fn = jit(lambda x: x + 1)
    fn(torch.ones(2))
    assert fn.last is not None
    assert fn.last.regions_detail == []


def test_kernels_as_text() -> None:
    lines = list(
        kernels.text([Detail("definition", "code", ("one", "two"), early=False), Detail("d", "c", ("k",), early=True)])
    )
    assert lines[0] == "region 0: 2 kernels: one, two"
    assert lines[3] == "region 1: 1 kernels, which makes the region's stores: k"


def test_no_blends_are_chosen_for_nvfuser() -> None:
    program = trace(lambda x: (x[:2].add_(1), x.mul(2))[1], torch.ones(4, 1 << 14))
    choose = Chooser("auto", NvFuser.cost)
    for _, run in passes(choose):
        program = run(program)
    assert choose.estimates
    assert not any(estimate.blends for estimate in choose.estimates)
