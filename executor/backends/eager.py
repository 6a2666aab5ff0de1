"""Runs each region call by call in eager PyTorch: the baseline, without any of the memory model's freedoms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from executor.backends.base import Backend, Kernel
from executor.calls import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from executor.program import Call, Program
    from executor.regions import Region


class Eager(Backend):
    """Takes every call, and computes in program order."""

    name = "eager"

    def supports(self, program: Program, call: Call) -> bool:
        """Every call."""
        del program, call
        return True

    def compile(self, region: Region) -> Kernel:
        """The region's calls, one after the other."""
        runners = [prepare(call) for call in region.calls]
        count = len(region.program.values)

        def kernel(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            env: list[Any] = [None] * count
            for index, tensor in zip(region.inputs, inputs, strict=True):
                env[index] = tensor
            for run in runners:
                run(env)
            return [env[index] for index in region.outputs]

        return kernel
