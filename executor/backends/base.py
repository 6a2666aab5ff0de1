"""The contract between the pipeline and what runs its regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from executor.memory_ssa import MemorySSA
    from executor.partition import Partition
    from executor.program import Call, Program
    from executor.regions import Region

Kernel = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


class Backend(ABC):
    """Compiles regions. It says by rule what it takes; everything else runs eagerly between its regions."""

    name: str

    @abstractmethod
    def supports(self, program: Program, call: Call) -> bool:
        """Whether a call that writes nothing may be part of a region."""

    @abstractmethod
    def compile(self, region: Region) -> Kernel:
        """A function from the region's inputs to its outputs, in their order.

        It may compute in any way that the memory model allows. An output need not have the strides of its value: the
        host sees to that. It makes the early write-backs of the region, and writes nothing else.
        """

    def writes_early(self, found: Partition, memory: MemorySSA, store: int) -> bool:
        """Whether the kernel should make this write-back, which `verify` allows. Late is always right."""
        del found, memory, store
        return False
