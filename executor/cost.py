"""What a lowering costs, in seconds: bytes moved and kernels launched. `aliases="auto"` decides by it each time.

Two rates are those of one H200 with nvFuser: a copy of a 256 MiB tensor takes 0.128 ms, one execution of a compiled
fusion 12 us on the host. A call that the host makes on a few elements is taken to cost a third of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from executor.passes.blend import Blend
    from executor.passes.hoist import Hoist
    from executor.passes.patch import Patch

BYTES_PER_SECOND = 4.2e12
SECONDS_PER_LAUNCH = 12e-6
SECONDS_PER_CALL = 4e-6


class Estimate(NamedTuple):
    """Seconds for a read that several writes reach, by each lowering; `patch` is infinite where it cannot be."""

    blend: float
    barrier: float
    patch: float = math.inf

    @property
    def patches(self) -> bool:
        """Whether to patch."""
        return self.patch < min(self.blend, self.barrier)

    @property
    def blends(self) -> bool:
        """Whether to blend."""
        return not self.patches and self.blend <= self.barrier

    def __str__(self) -> str:
        chosen = "patch" if self.patches else "blend" if self.blends else "barrier"
        patch = f"patch {self.patch * 1e6:.2f} us, " if self.patch < math.inf else ""
        return f"{chosen}: {patch}blend {self.blend * 1e6:.2f} us, barrier {self.barrier * 1e6:.2f} us"


@dataclass(frozen=True, slots=True)
class CostModel:
    """Rates of the machine that the code is for. `seconds_per_call` is for a call on a few elements."""

    bytes_per_second: float = BYTES_PER_SECOND
    seconds_per_launch: float = SECONDS_PER_LAUNCH
    seconds_per_blend: float = 0.0  # beside the bytes that it moves
    seconds_per_call: float = SECONDS_PER_CALL

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

    def patch(self, plan: Patch) -> Estimate:
        """A patched call reads and computes each part alone and stores it, by two calls.

        If the result is read again by calls that cannot be patched, it has been written for them and there is a barrier
        after all.
        """
        read = sum(value.numel * value.itemsize for value in plan.reads)
        parts = plan.part_bytes * (len(plan.call.operands) + 3)
        again = 2 * plan.again / self.bytes_per_second + (self.seconds_per_launch if plan.again else 0)
        return Estimate(
            self.seconds_per_blend + read / self.bytes_per_second,
            self.seconds_per_launch + read / self.bytes_per_second,
            2 * len(plan.boxes) * self.seconds_per_call + parts / self.bytes_per_second + again,
        )

    def hoists(self, plan: Hoist) -> bool:
        """Whether a part alone moves less than the whole, and its calls cost less than waiting for what is written."""
        moved = 3 * len(plan.needed) * plan.part.numel
        waiting = self.seconds_per_launch + plan.whole.numel * plan.whole.itemsize / self.bytes_per_second
        return moved < plan.whole.numel and len(plan.needed) * self.seconds_per_call < waiting
