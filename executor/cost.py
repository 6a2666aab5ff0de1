"""What a lowering costs, in seconds: bytes moved and kernels launched. `aliases="auto"` decides by it each time.

The two rates are those of one H200 with nvFuser: a copy of a 256 MiB tensor takes 0.128 ms, one execution of a compiled
fusion 12 us on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from executor.passes.blend import Blend

BYTES_PER_SECOND = 4.2e12
SECONDS_PER_LAUNCH = 12e-6


class Estimate(NamedTuple):
    """Seconds for one read that several writes reach, by either lowering."""

    blend: float
    barrier: float

    @property
    def blends(self) -> bool:
        """Whether to blend."""
        return self.blend <= self.barrier

    def __str__(self) -> str:
        chosen = "blend" if self.blends else "barrier"
        return f"{chosen}: blend {self.blend * 1e6:.2f} us, barrier {self.barrier * 1e6:.2f} us"


@dataclass(frozen=True, slots=True)
class CostModel:
    """Rates of the machine that the code is for."""

    bytes_per_second: float = BYTES_PER_SECOND
    seconds_per_launch: float = SECONDS_PER_LAUNCH
    seconds_per_blend: float = 0.0  # beside the bytes that it moves

    def estimate(self, plan: Blend) -> Estimate:
        """A blend moves its frame once for what lies below and once for the result.

        A barrier costs another launch, the read from memory, and the layers' late copies, which a temporary needs for
        nothing else.
        """
        layers = sum(layer.target.numel for layer in plan.layers) if plan.temporary else 0
        moved = (plan.read.numel + layers) * plan.read.itemsize
        return Estimate(
            self.seconds_per_blend + plan.bytes_moved / self.bytes_per_second,
            self.seconds_per_launch + moved / self.bytes_per_second,
        )
