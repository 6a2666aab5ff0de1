"""The out-of-place form: who gets memory of its own."""

from __future__ import annotations

import pytest
import torch

from executor.args import Ref
from executor.jit import jit
from executor.passes.functional import out_of_place
from executor.pipeline import Aliases
from executor.program import Iota, Param, Storage
from executor.recorder import Recorder, outputs_tree
from executor.tracing import trace
from tests.alias_programs import meaning

A = torch.ops.aten


@pytest.mark.parametrize(("use", "copies"), [(A.add.Tensor, 0), (A.add_.Tensor, 2)], ids=["kept", "changed"])
def test_a_reshape_that_copies_gets_memory_only_if_it_is_changed(use: torch._ops.OpOverload, copies: int) -> None:
    recorder, x = Recorder(), torch.arange(6.0).reshape(2, 3)
    given = recorder.input(x, Storage(24, Iota("float32")))
    dense = recorder.call(A.reshape.default, recorder.call(A.t.default, x), [-1])
    recorder.call(use, dense, 1)
    last = recorder.calls[-1].results[0]
    program = recorder.program([Param("x", Ref(given))], outputs_tree([last]))
    found = out_of_place(program)
    assert sum(call.op == "aten.copy_.default" for call in found.calls) == copies
    assert meaning(found) == meaning(program)


@pytest.mark.parametrize(("dtype", "load"), [(torch.float32, "clone"), (torch.float16, "_to_copy")])
def test_a_copy_out_of_memory_is_one_load_and_one_store(dtype: torch.dtype, load: str) -> None:
    program = trace(lambda x, y: x.copy_(y), torch.ones(3), torch.ones(3, dtype=dtype))
    assert [call.op.split(".")[1] for call in out_of_place(program).calls] == [load, "copy_"]


def test_keyword_arguments_stay() -> None:
    program = trace(lambda x, y: (x.add_(y, alpha=3), y.div_(x, rounding_mode="floor")), torch.ones(3), torch.ones(3))
    found = out_of_place(program)
    assert [call.kwargs for call in found.calls if call.kwargs] == [
        (("alpha", 3),),
        (("rounding_mode", "floor"),),
    ]
    assert meaning(found) == meaning(program)


@pytest.mark.parametrize("aliases", ["barrier", "blend", "auto"])
def test_memory_laid_out_like_a_computed_tensor_does_not_wait_for_it(aliases: Aliases) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        made = x.new_zeros([3])
        made[0].copy_(x[0])
        other = made.as_strided([3], [1], 0).new_empty_strided([3], [1])
        other.copy_(made)
        return torch.zeros_like(other) + other

    assert jit(fn, aliases=aliases)(torch.ones(1)).tolist() == [1, 0, 0]
