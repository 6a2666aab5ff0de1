"""Large programs are measured before they are kept: where call by call is faster than fused, they run call by call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from executor.memory import on_base
from executor.pipeline import uncompiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.pipeline import Compilation
    from executor.program import Program

LARGE = 1 << 25  # bytes of inputs; below, the time of launches counts, not that of kernels
_WARM, _RUNS = 3, 10


def settled(compilation: Compilation, program: Program) -> Compilation:
    """The compilation, or the program uncompiled if that takes less GPU time on memory laid out like its inputs."""
    homes = {program.values[v].storage for v in program.inputs}
    if sum(program.storages[home].nbytes for home in homes) < LARGE or not compilation.regions:
        return compilation
    plain = uncompiled(program)
    fused, eager = (_milliseconds(one, _inputs(program)) for one in (compilation, plain))
    chosen = compilation if fused <= eager else plain
    chosen.note = f"measured: {fused:.3f} ms fused, {eager:.3f} ms call by call"
    return chosen


def _inputs(program: Program) -> list[torch.Tensor]:
    bases: dict[int, torch.Tensor] = {}
    for v in program.inputs:
        home = program.values[v].storage
        if home not in bases:
            storage = program.storages[home]
            bases[home] = torch.zeros(storage.nbytes, dtype=torch.uint8, device=storage.device)
    return [on_base(bases[program.values[v].storage], program.values[v]) for v in program.inputs]


def _milliseconds(compilation: Compilation, inputs: Sequence[torch.Tensor]) -> float:
    """The GPU time of one run. The host runs ahead, so that its own time does not show."""
    for _ in range(_WARM):
        compilation.run(inputs)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(_RUNS):
        compilation.run(inputs)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / _RUNS
