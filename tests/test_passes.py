"""What each pass does to small programs, beside keeping their meaning (`tests/test_pipeline.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from executor.args import Ref
from executor.builder import Builder
from executor.cost import CostModel
from executor.jit import jit
from executor.memory_ssa import MemorySSA
from executor.passes.blend import Blend, blend
from executor.passes.cleanup import common_subexpressions, dead_calls
from executor.passes.coalesce import coalesce
from executor.passes.forward import forward
from executor.passes.functional import out_of_place
from executor.passes.index_maps import align, row_major_walk
from executor.passes.writeback import dead_stores
from executor.pipeline import Chooser
from executor.program import Program, Value
from executor.tracing import trace
from tests.alias_programs import meaning


def ops(program: Program) -> list[str]:
    """The operators' names, overloads left out."""
    return [call.op.split(".")[1] for call in program.calls]


def always(plan: Blend) -> bool:
    """Blends whatever can be."""
    del plan
    return True


def through(program: Program, *passes: Callable[[Program], Program]) -> Program:
    """The program after passes that keep its meaning."""
    wanted = meaning(program)
    for run in passes:
        program = run(program)
        assert meaning(program) == wanted, run
    return program


@pytest.mark.parametrize(
    ("write", "computed"),
    [
        (lambda x: x.add_(1), "add"),
        (lambda x: x.fill_(2), "full"),
        (lambda x: x.zero_(), "full"),
        (lambda x: x.copy_(torch.ones(2).add_(1)[0]), "select"),
        (lambda x: x.masked_fill_(x > 1, 3), "masked_fill"),
        (lambda x: torch.add(x, 1, out=x), "add"),
        (lambda x: x.clamp_(2, 3), "clamp"),
        (lambda x: x.floor_divide_(x), "floor_divide"),
        (lambda x: x.index_put_((torch.tensor([0]),), torch.zeros(2)), "index_put"),
    ],
)
def test_a_write_becomes_its_computation_and_a_copy(write: Callable[[torch.Tensor], Any], computed: str) -> None:
    program = through(trace(write, torch.ones(2, 2)), out_of_place)
    assert computed in ops(program)
    assert ops(program)[-1] == "copy_"
    assert not any(name.endswith("_") and name != "copy_" for name in ops(program))


def test_what_has_no_functional_form_stays() -> None:
    program = trace(lambda x: torch._foreach_add_([x], 1), torch.ones(3))
    assert ops(through(program, out_of_place)) == ["_foreach_add_"]


def test_a_write_whose_outcome_depends_on_the_loop_order_stays() -> None:
    program = trace(lambda x: x[:, 1:3].copy_(x[:, 0:2]), torch.arange(12.0).reshape(3, 4))
    assert through(program, out_of_place) == program


def test_what_is_forwarded_has_been_rounded_by_its_target() -> None:
    def fn(half: torch.Tensor, single: torch.Tensor) -> torch.Tensor:
        half.add_(single)
        return half * 1024

    inputs = torch.ones(3, dtype=torch.float16), torch.full((3,), 1 / 4096)
    program = through(trace(fn, *inputs), out_of_place, forward)
    memory = MemorySSA(program)
    assert "_to_copy" in ops(program)
    last = next(i for i, call in enumerate(program.calls) if call.op == "aten.mul.Tensor")
    assert not any(memory.is_memory(v) for v in memory.accesses[last].reads)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[1],
        lambda x: x[:, ::2],
        lambda x: x.view(-1),
        lambda x: x[1:, 1:].t(),
        lambda x: x.diagonal(),
        lambda x: x.view(2, 3, 2)[:, 1],
        lambda x: x[2:3].expand(4, 4),
        lambda x: x.unfold(1, 2, 1),
    ],
)
def test_reads_within_what_was_written_are_forwarded(read: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        seen = read(x)
        x.add_(1)
        return seen * 2

    program = through(trace(fn, torch.arange(12.0).reshape(3, 4)), out_of_place, forward)
    assert MemorySSA(program).reaching_writes() == {}


def test_conjugated_reads_are_forwarded_with_their_bit() -> None:
    def fn(z: torch.Tensor) -> torch.Tensor:
        z.mul_(2)
        return z.conj() + 1

    program = through(trace(fn, torch.tensor([1 + 2j, 3 - 1j])), out_of_place, forward)
    assert MemorySSA(program).reaching_writes() == {}
    assert "_conj" in ops(program)


OVERLAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "row": lambda x: (x[0].add_(1), x * 2)[1],
    "shifted window": lambda x: (x.view(-1)[3:9].add_(1), x.view(-1)[5:11] * 2)[1],
    "diagonal": lambda x: (x.diagonal().mul_(3), x.t() * 2)[1],
    "two columns over all": lambda x: (x.add_(1), x[:, 0].zero_(), x[:, 2].neg_(), x * 2)[3],
    "strided window of the transpose": lambda x: (x.t()[1:3].add_(1), x[:2, ::2] * 2)[1],
    "expanded read": lambda x: (x[0, :2].add_(1), x[0].expand(3, 4) * 2)[1],
    "reshaped": lambda x: (x.view(6, 2)[1:4].mul_(2), x + 1)[1],
    "unfolded": lambda x: (x[0].add_(1), x.view(-1).unfold(0, 5, 2) * 2)[1],
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_partial_overlaps_are_blended_whatever_the_view(name: str) -> None:
    program = trace(OVERLAPS[name], torch.arange(12.0).reshape(3, 4))
    lowered = through(program, out_of_place, forward)
    assert MemorySSA(lowered).reaching_writes() != {}
    blended = through(lowered, lambda p: blend(p, always))
    assert MemorySSA(blended).reaching_writes() == {}
    assert "as_strided_scatter" in ops(blended)


@pytest.mark.parametrize("read", [slice(0, 4), slice(1, 3)], ids=["in the read", "in a window"])
def test_writes_that_cover_a_read_together_need_nothing_from_below(read: slice) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[:2].copy_(y[:2] * 2)
        x[2:].copy_(y[2:] * 3)
        return x[read] + 1

    lowered = through(trace(fn, torch.ones(4), torch.ones(4)), out_of_place, forward)
    blended = through(lowered, lambda p: blend(p, always))
    memory = MemorySSA(blended)
    written = {v for what in memory.accesses for v in what.writes}
    home = {blended.values[v].storage for v in written}
    assert ops(blended).count("as_strided_scatter") == 2
    assert not any(blended.values[v].storage in home for what in memory.accesses for v in what.reads)


def test_overlapping_inputs_are_blended_on_a_common_base() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    base = torch.arange(10.0)
    program = through(trace(fn, base[:6], base[4:]), out_of_place, forward, lambda p: blend(p, always))
    assert MemorySSA(program).reaching_writes() == {}


def test_dtype_changing_views_cannot_be_blended() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x.view(torch.int32) + 1

    program = through(trace(fn, torch.ones(3)), out_of_place, forward)
    assert through(program, lambda p: blend(p, always)) == program


def test_a_blend_within_the_read_costs_less_than_its_window() -> None:
    plans: list[Blend] = []

    def keep(plan: Blend) -> bool:
        plans.append(plan)
        return True

    program = forward(out_of_place(trace(OVERLAPS["row"], torch.ones(3, 4))))
    blend(program, keep)
    [plan] = plans
    assert plan.own
    assert plan.frame.shape == (3, 4)
    assert plan.bytes_moved == 2 * 48
    assert Chooser("auto", CostModel())(plan)


def test_stores_that_later_ones_cover_only_together_are_dead() -> None:
    def fn(x: torch.Tensor) -> None:
        x.fill_(1)
        x[0].fill_(2)
        x[1].fill_(3)

    program = through(trace(fn, torch.ones(2, 3)), out_of_place, forward, dead_stores)
    assert ops(program).count("copy_") == 2


def test_stores_that_leave_a_byte_live_stay_whole_and_in_order() -> None:
    def fn(x: torch.Tensor) -> None:
        x[:2].fill_(1)
        x[1:].fill_(2)

    program = through(trace(fn, torch.ones(3)), out_of_place, dead_stores)
    stores = [call for call in program.calls if call.op == "aten.copy_.default"]
    assert [program.values[call.results[0]].offset for call in stores] == [0, 1]


def test_a_store_that_is_read_before_it_is_covered_lives() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].fill_(1)
        y = x * 2
        x.fill_(3)
        return y

    assert ops(through(trace(fn, torch.ones(3)), out_of_place, dead_stores)).count("copy_") == 2


def test_a_copy_onto_itself_is_no_write() -> None:
    assert ops(through(trace(lambda x: x.view(3).copy_(x), torch.ones(3)), out_of_place)) == ["view"]
    assert "copy_" in ops(through(trace(lambda x: x.copy_(x.flip(0)), torch.ones(3)), out_of_place))


def test_a_store_of_a_copy_of_a_copy_of_its_target_is_dead() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.copy_(x.clone().clone())

    program = through(trace(fn, torch.ones(3)), out_of_place, dead_stores, dead_calls)
    assert ops(program) == []


def test_storing_what_was_loaded_there_is_no_store() -> None:
    program = through(trace(lambda x: x.copy_(x.clone()), torch.ones(3)), out_of_place, dead_stores, dead_calls)
    assert ops(program) == []

    def fn(x: torch.Tensor) -> None:
        y = x.clone()
        x[0].fill_(2)
        x.copy_(y)

    assert ops(through(trace(fn, torch.ones(3)), out_of_place, dead_stores)).count("copy_") == 1


def test_stores_to_a_forgotten_temporary_are_dead() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.add_(1)
        return y * 3

    program = through(trace(fn, torch.ones(3)), out_of_place, forward, dead_stores, dead_calls)
    assert ops(program) == ["mul", "add", "mul"]


def test_equal_reads_are_common_only_within_one_memory_state() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        a, b = x[0] * 2, x[0] * 2
        x[0].add_(1)
        return a + b + x[0] * 2

    program = through(trace(fn, torch.ones(2, 2)), common_subexpressions)
    assert ops(program).count("mul") == 2


def test_equal_results_that_are_both_returned_stay_apart() -> None:
    program = trace(lambda x: (x * 2, x * 2), torch.ones(3))
    assert through(program, common_subexpressions) == program


def test_arguments_that_only_compare_equal_are_not_the_same() -> None:
    program = trace(lambda x: (x * 1).sum() + (x * 1.0).sum() + (x / 0.0).sum() + (x / -0.0).sum(), torch.ones(3))
    assert ops(through(program, common_subexpressions)).count("mul") == 2
    assert ops(through(program, common_subexpressions)).count("div") == 2


def test_a_returned_temporary_is_its_last_value() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        view = y.t()
        y.add_(1)
        return view, y

    program = through(trace(fn, torch.ones(2, 3)), out_of_place, forward, dead_stores, dead_calls, coalesce)
    assert sorted(ops(program)) == ["add", "mul", "t"]


def test_a_value_that_somebody_needs_later_is_not_made_memory_that_changes() -> None:
    def before(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        z = y + 1
        y[0].zero_()
        return y, z

    def after(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        y[0].zero_()
        return y, y[1] + 1

    for fn, stores in ((before, 1), (after, 2)):
        program = through(trace(fn, torch.ones(2, 3)), out_of_place, forward, dead_stores, dead_calls, coalesce)
        assert ops(program).count("copy_") == stores


def test_calls_that_write_are_never_dead() -> None:
    program = trace(lambda x: (x.add_(2), x * 2)[0], torch.ones(2, 2))
    assert ops(through(program, dead_calls)) == ["add_"]


def test_alignment_follows_single_dimensions_only() -> None:
    write = Value(0, "float32", (3, 4), (4, 1))
    assert align(Value(0, "float32", (4, 3), (1, 4)), write) == ([0, 0], [(1, 1), (0, 1)])
    assert align(Value(0, "float32", (2,), (2,), 5), write) == ([1, 1], [(1, 2)])
    assert align(Value(0, "float32", (3,), (5,)), write) is None
    assert row_major_walk(Value(0, "float32", (3,), (5,)), write) == (0, (5,))
    assert row_major_walk(Value(0, "float32", (13,), (1,)), write) is None


def test_results_keep_their_layout_when_an_operand_changes_its() -> None:
    program = trace(lambda x: x.t() + 1, torch.ones(2, 3))
    builder = Builder(program)
    dense = builder.emit("aten.clone.default", Ref(0))
    turned = builder.view("aten.t.default", dense)
    result = program.calls[1].results[0]
    wide = builder.emit("aten.clone.default", Ref(turned), kwargs=())
    packed = builder.emit("aten.contiguous.default", Ref(wide))
    builder.calls.append(program.calls[0])
    builder.replace_operands(program.calls[1], {program.calls[0].results[0]: packed})
    assert builder.values[result] == program.values[result]
    assert meaning(builder.finish()) == meaning(program)


@pytest.mark.parametrize(("size", "strides", "offset"), [((1,), (1,), 3), ((2, 1), (4, 1), 0), ((2,), (2,), 1)])
def test_a_scatter_into_a_value_with_gaps_keeps_them(
    size: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    """Scatters lay out their results with the gaps of their operand, which a forwarded operand does not have."""

    def overwritten(base: torch.Tensor) -> torch.Tensor:
        part = base.as_strided(size, strides, offset)
        part.fill_(0)
        return part.slice_scatter(part[:1] + 1, 0, 0, 1)

    compiled, base = jit(overwritten), torch.arange(12.0)
    expected = overwritten(base.clone())
    out = compiled(base.clone())
    assert torch.equal(out, expected)
    assert (out.stride(), out.storage_offset()) == (expected.stride(), expected.storage_offset())


def test_fresh_memory_that_begins_late_is_allocated_whole() -> None:
    """Scatters keep their operand's offset, and a view may count from the beginning of the storage."""

    def fn(b: torch.Tensor) -> torch.Tensor:
        c = b.slice_scatter(b, 0, 0, 3)
        d = c.as_strided((3,), (2,), 1)
        d.mul_(2)
        return c

    base = torch.arange(7.0)
    expected = fn(base.as_strided((3,), (2,), 1))
    out = jit(fn)(base.clone().as_strided((3,), (2,), 1))
    assert torch.equal(out, expected)
    assert (out.stride(), out.storage_offset()) == (expected.stride(), expected.storage_offset())
