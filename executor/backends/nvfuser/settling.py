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
_TURNS, _RUNS = 4, 5  # the first turn warms up
_AHEAD = 10_000_000  # cycles that the GPU waits, so that the host is ahead of it


def settled(compilation: Compilation, program: Program) -> Compilation:
    """The compilation, or the program uncompiled if that takes less GPU time on memory laid out like its inputs."""
    homes = {program.values[v].storage for v in program.inputs}
    if sum(program.storages[home].nbytes for home in homes) < LARGE or not compilation.regions:
        return compilation
    plain = uncompiled(program)
    inputs = _inputs(program)
    turns = [[_milliseconds(one, inputs) for one in (compilation, plain)] for _ in range(_TURNS)]
    fused, eager = map(min, zip(*turns[1:], strict=True))  # whatever disturbs a turn makes it longer
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
    """The GPU time of one run, from several. The GPU waits while the host launches them, so that the host's time does not show."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_AHEAD)  # noqa: SLF001 - there is no public way
    start.record()
    for _ in range(_RUNS):
        compilation.run(inputs)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / _RUNS
