"""Further calls of a compiled function: fresh data, and another alias pattern."""

from __future__ import annotations

import msgspec
import torch

from executor import memory, targets
from executor.limits import Limits
from executor.program import Inputs
from executor.tracing import trace, trace_refused
from fuzz.variants import backwards, calls, parted, realias, spread, stretched


def entry(*args: torch.Tensor) -> Inputs:
    return trace(lambda *xs: sum(x.sum() for x in xs), *args).entry


def test_backwards_reverses_contents_and_keeps_the_layout() -> None:
    inputs = entry(torch.arange(4.0)[1:])
    again = backwards(inputs)
    assert again.values == inputs.values
    assert memory.allocate(again).tensors[0].tolist() == [2, 1, 0]
    assert backwards(again) == inputs


def test_backwards_of_a_ramp() -> None:
    big = entry(torch.zeros(5000))
    assert memory.allocate(backwards(big)).tensors[0][:2].tolist() == [5000, 4999]


def test_inputs_that_share_are_parted() -> None:
    x = torch.arange(6.0)
    parted = realias(entry(x[:4], x[2:]))
    assert parted is not None
    assert [value.storage for value in parted.values] == [0, 1]
    held = memory.allocate(parted)
    held.tensors[0].zero_()
    assert held.tensors[1].tolist() == [2, 3, 4, 5]


def test_inputs_apart_are_laid_on_each_other() -> None:
    joined = realias(entry(torch.ones(3), torch.zeros(2, 2), torch.zeros(3)))
    assert joined is not None
    assert [value.storage for value in joined.values] == [0, 1, 0]
    assert len(joined.storages) == 2


def test_there_is_none_for_one_input_or_unlike_ones() -> None:
    assert realias(entry(torch.ones(3))) is None
    assert realias(entry(torch.ones(3), torch.ones(2))) is None


def test_inputs_that_share_are_spread_over_a_longer_storage() -> None:
    x = torch.arange(6.0)
    spread_out = spread(entry(x[:4], x[2:], x[2:].view(torch.int32)))
    assert spread_out is not None
    assert [value.storage for value in spread_out.values] == [0, 0, 0]
    a, b, c = memory.allocate(spread_out).tensors
    assert (a.tolist(), b.tolist()) == ([0, 1, 2, 3], [3, 2, 1, 0])
    assert c.view(torch.float32).tolist() == [2, 3, 4, 5]
    assert a.untyped_storage().data_ptr() == c.untyped_storage().data_ptr()
    a.zero_()
    c.zero_()
    assert b.tolist() == [3, 2, 1, 0]


def test_one_tensor_passed_twice_is_spread_and_others_stay() -> None:
    x, y = torch.arange(3.0), torch.arange(5.0)
    inputs = entry(x, y, x)
    spread_out = spread(inputs)
    assert spread_out is not None
    assert spread_out.storages[1] == inputs.storages[1]
    a, _, c = memory.allocate(spread_out).tensors
    assert a is not c
    assert (a.tolist(), c.tolist()) == ([0, 1, 2], [2, 1, 0])


def test_nothing_is_spread_where_nothing_is_shared_or_copies_would_begin_within_an_element() -> None:
    assert spread(entry(torch.ones(3), torch.ones(3))) is None
    x = torch.ones(3)
    assert spread(entry(x, x[:2].view(torch.int64))) is None


def test_a_target_that_takes_no_displaced_inputs_is_not_called_with_such() -> None:
    x = torch.ones(3)
    program, null = trace(lambda a, b: a + b, x, x), targets.get("null")
    assert len(calls(program, null)) == 7
    null.limits = Limits(displaced_inputs=False)
    assert len(calls(program, null)) == 6


def test_a_target_that_takes_no_overlap_gets_none() -> None:
    program = trace(lambda a, b: a + b, torch.ones(3), torch.zeros(3))
    assert len(calls(program, targets.get("null"))) == 5
    assert len(calls(program, targets.get("functionalize"))) == 4


def test_the_first_two_calls_are_made_again() -> None:
    program = trace(lambda a, b: a + b, torch.ones(3), torch.zeros(3))
    assert calls(program, targets.get("null"))[-2:] == (program.entry, backwards(program.entry))


def test_one_tensor_passed_twice_becomes_two_on_the_same_memory() -> None:
    x = torch.ones(3)
    two = parted(entry(x, x))
    assert two is not None
    a, b = memory.allocate(two).tensors
    assert a is not b
    assert a.data_ptr() == b.data_ptr()
    assert parted(entry(x, x[:2])) is None


def test_inputs_are_stretched_with_their_overlap() -> None:
    x = torch.arange(6.0)
    wide = stretched(entry(x[:4], x[2:], torch.ones(1)))
    assert wide is not None
    a, b, _ = memory.allocate(wide).tensors
    assert (a.stride(), a.tolist(), b.tolist()) == ((2,), [0, 1, 2, 3], [2, 3, 4, 5])
    assert a[2:].data_ptr() == b.data_ptr()
    assert a.as_strided((4,), (2,), 1).tolist() == [5, 4, 3, 2]


def test_storages_of_two_dtypes_are_not_stretched() -> None:
    x = torch.ones(4)
    assert stretched(entry(x, x.view(torch.int32))) is None


def test_programs_with_addresses_of_their_own_are_not_called_on_stretched_inputs() -> None:
    x = torch.ones(4)
    one, other = (trace(fn, x) for fn in (lambda a: a[1:] + 1, lambda a: a.as_strided((3,), (1,), 1) + 1))
    assert len(calls(one, targets.get("null"))) == len(calls(other, targets.get("null"))) + 1


def test_a_refused_program_is_called_in_its_own_layout_only() -> None:
    def fn(x: torch.Tensor) -> None:
        x[1:].copy_(x[:-1])  # refused for dense operands; of others eager copies one after the other

    refused = trace_refused(fn, torch.arange(6.0))
    assert [way.values for way in calls(refused, targets.get("null"))] == [refused.entry.values] * 3


def test_large_inputs_are_called_again_with_other_contents_in_their_own_layout() -> None:
    large = trace(lambda x: x + 1, torch.zeros(20_000))
    first, second = calls(large, targets.get("null"))
    assert memory.allocate(first).tensors[0][:2].tolist() == [2, 3]
    assert second == large.entry
    assert sum(len(msgspec.json.encode(way)) for way in (first, second)) < 2000
