"""The backend: regions as nvFuser fusions on CUDA."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from executor.backends.base import Backend, Detail, Detailed, Kernel
from executor.backends.nvfuser import rules
from executor.backends.nvfuser.body import body_of
from executor.backends.nvfuser.fusion import CompilerError, Fusion, Tally, fusion_of
from executor.backends.nvfuser.loading import nvfuser
from executor.backends.nvfuser.settling import settled
from executor.backends.nvfuser.views import squeezed
from executor.calls import Calls
from executor.cost import CostModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.memory_ssa import MemorySSA
    from executor.partition import Partition
    from executor.pipeline import Compilation
    from executor.program import Call, Program, Value
    from executor.regions import Region


class NvFuser(Backend):
    """Takes what its rules allow. `early`: whether kernels make write-backs themselves where that is safe.

    `validate`: whether each run is also compared with nvFuser's own evaluation on the host, a second oracle: it tells a
    fault of the compiler from one in what it was sent. A difference is an `EvaluationError`, and a fusion on which the
    compiler fails a `CompilerError`; without `validate` such a region runs call by call, and `explain()` says so.

    Raises `TargetError` where there is no CUDA device or nvFuser is not installed.
    """

    name = "nvfuser"
    cost = CostModel(seconds_per_blend=math.inf)  # a blend in a fusion was slower each time (docs/nvfuser.md)

    def __init__(self, *, early: bool = True, validate: bool = False) -> None:
        nvfuser()
        self.early, self.validate = early, validate
        self._tally = Tally()

    def tally(self) -> dict[str, int]:
        """How many fusions were asked for since this was asked last, and how many the cache had."""
        return self._tally.take()

    def refusal(self, program: Program, call: Call) -> str | None:
        """See `rules.refusal`."""
        return rules.refusal(program, call)

    def early_refusal(self, found: Partition, memory: MemorySSA, store: int) -> str | None:
        """See `rules.early_refusal`."""
        return rules.early_refusal(found, memory, store)

    def writes_early(self, found: Partition, memory: MemorySSA, store: int) -> bool:
        """Wherever the rules allow it: it saves a copy."""
        return self.early and self.early_refusal(found, memory, store) is None

    def settled(self, compilation: Compilation, program: Program) -> Compilation:
        """See `settling.settled`."""
        return settled(compilation, program)

    def compile(self, region: Region) -> Kernel:
        """A kernel that compiles when it runs first, unless a region of the same body did."""
        return FusedKernel(region, validate=self.validate)


class FusedKernel(Detailed):
    """Runs one region."""

    def __init__(self, region: Region, *, validate: bool = False) -> None:
        self.fusion: Fusion = fusion_of(body_of(region))
        self._region, self._validate = region, validate
        self._thin = any(1 in region.program.values[v].shape for v in region.inputs)
        self._movable = [v in region.aliases for v in region.outputs]
        self._values = [region.program.values[v] for v in region.outputs]
        self._eager: Kernel | None = None

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The region's outputs. They share memory only with inputs from which moves alone lead to them."""
        thin = [tensor.squeeze() for tensor in inputs] if self._thin else inputs
        if self._validate:
            self.fusion.validate(thin)
        made = self._run(thin, inputs)
        given = {tensor.untyped_storage()._cdata for tensor in inputs}
        taken: set[int] = set()
        for i, (tensor, value) in enumerate(zip(made, self._values, strict=True)):
            home = tensor.untyped_storage()._cdata
            if home in taken or (home in given and not self._movable[i]):
                made[i] = tensor.clone()
            elif home not in given:
                taken.add(home)
            made[i] = _as_eager(made[i], value)
        return made

    def _run(self, thin: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        try:
            return self.fusion.run(thin)
        except CompilerError:
            if self._validate:
                raise
        region = self._region
        if self._eager is None:
            self._eager = Calls(region.calls, region.inputs, (*region.outputs, *(value for _, value in region.early)))
        made = self._eager(inputs)
        for (target, _), value in zip(region.early, made[len(region.outputs) :], strict=True):
            inputs[region.inputs.index(target)].copy_(value)
        return made[: len(region.outputs)]

    @property
    def failure(self) -> str:
        """See `Fusion`."""
        return self.fusion.failure

    def detail(self) -> Detail:
        """What the region becomes for inputs whose storages are aligned."""
        region, device = self._region, self.fusion.body.device
        inputs = [squeezed(region.program.values[v]) for v in region.inputs]
        return self.fusion.detail([_on_memory(value, device) for value in inputs])


def _on_memory(value: Value, device: str) -> torch.Tensor:
    flat = torch.ones(value.end // value.itemsize, dtype=value.torch_dtype, device=device)
    return flat.as_strided(value.shape, value.strides, value.offset)


def _as_eager(tensor: torch.Tensor, value: Value) -> torch.Tensor:
    """The tensor with its dimensions of size 1; in eager's strides, if only theirs differ."""
    found = tensor.stride()
    if found == value.strides:
        return tensor
    steps = iter(found)
    strides = [next(steps) if n != 1 else old for n, old in zip(value.shape, value.strides, strict=True)]
    return tensor.as_strided(value.shape, strides, tensor.storage_offset())
