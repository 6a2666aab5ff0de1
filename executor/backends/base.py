"""The contract between the pipeline and what runs its regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from executor.cost import CostModel

if TYPE_CHECKING:
    from executor.memory_ssa import MemorySSA
    from executor.partition import Partition
    from executor.pipeline import Compilation
    from executor.program import Call, Program
    from executor.regions import Region
Kernel = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


class Detail(NamedTuple):
    """What a kernel of a backend that generates code became: its own form of the region, the code, kernels' names.

    `early`: whether it makes the stores itself that it was asked to make.
    """

    definition: str
    cuda: str
    kernels: tuple[str, ...]
    early: bool


class Detailed(ABC):
    """A kernel that shows what it became."""

    @abstractmethod
    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See `Backend.compile`."""

    @abstractmethod
    def detail(self) -> Detail:
        """Its generated code, and what else there is."""

    @property
    def failure(self) -> str:
        """Why it runs call by call, if its backend's compiler failed on it; empty if it did not."""
        return ""


class Backend(ABC):
    """Compiles regions. It says by rule what it takes; everything else runs eagerly between its regions."""

    name: str
    cost: CostModel = CostModel()

    def refusal(self, program: Program, call: Call) -> str | None:
        """Why a call that writes nothing may not be part of a region; None if it may. By default each may."""
        del program, call
        return None

    def supports(self, program: Program, call: Call) -> bool:
        """Whether a call that writes nothing may be part of a region."""
        return self.refusal(program, call) is None

    def tally(self) -> dict[str, int]:
        """What the backend did in this process since it was asked last, by name; by default it counts nothing."""
        return {}

    @abstractmethod
    def compile(self, region: Region) -> Kernel:
        """A function from the region's inputs to its outputs, in their order.

        It may compute in any way that the memory model allows. An output need not have the strides of its value: the
        host sees to that. It makes the early write-backs of the region, and writes nothing else.
        """

    def settled(self, compilation: Compilation, program: Program) -> Compilation:
        """The compilation to keep for a program, if the backend may choose; here, the one that there is."""
        del program
        return compilation

    def early_refusal(self, found: Partition, memory: MemorySSA, store: int) -> str | None:
        """Why this backend would make a write-back wrong that the memory model allows to be early; None if it would not."""
        del found, memory, store
        return None

    def writes_early(self, found: Partition, memory: MemorySSA, store: int) -> bool:
        """Whether the kernel should make this write-back, which `verify` allows. Late is always right."""
        del found, memory, store
        return False
