"""Blends of values under lazy bits: what is scattered and read is what lies in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from executor.memory_ssa import MemorySSA
from executor.passes.blend import blend
from executor.passes.forward import forward
from executor.passes.functional import out_of_place
from executor.tracing import trace
from tests.alias_programs import meaning


@pytest.mark.parametrize(
    "fn",
    [
        lambda z: (z[:2].mul_(2), z.conj() + 1)[1],
        lambda z: (z.conj()[:2].mul_(2j), z + 1)[1],
        lambda z: (z.imag[:2].mul_(2), z.conj().imag + 1)[1],
    ],
    ids=["read conjugated", "written conjugated", "read negated"],
)
def test_lazy_bits_are_applied(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    program = trace(fn, torch.tensor([1 + 2j, 3 - 1j, 2 + 1j]))
    lowered = forward(out_of_place(program))
    blended = blend(lowered, lambda _: True)
    assert MemorySSA(lowered).reaching_writes() != MemorySSA(blended).reaching_writes() == {}
    assert meaning(blended) == meaning(program)
