"""Runs each region call by call in eager PyTorch: the baseline, without any of the memory model's freedoms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.backends.base import Backend, Kernel
from executor.calls import Calls

if TYPE_CHECKING:
    from executor.regions import Region


class Eager(Backend):
    """Takes every call, and computes in program order."""

    name = "eager"

    def compile(self, region: Region) -> Kernel:
        """The region's calls, one after the other."""
        return Calls(region.calls, region.inputs, region.outputs)
