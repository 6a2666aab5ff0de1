"""What nvFuser makes of a program's regions, as text."""

from __future__ import annotations

from collections.abc import Iterator

from executor.args import to_python
from executor.backends.base import Detail
from executor.jit import jit
from executor.memory import allocate
from executor.program import Program
from executor.targets.cuda import DEVICE, placed


def kernels(program: Program) -> str:
    """Definition and CUDA code of each region. Raises `TargetError` where there is no GPU, or no nvFuser."""
    moved = placed(program, DEVICE)
    compiled = jit(moved, backend="nvfuser")
    held = allocate(moved.entry)
    tensors = dict(zip(moved.inputs, held.tensors, strict=True))
    compiled(*[to_python(param.value, [tensors.get(v) for v in range(len(moved.values))]) for param in moved.params])
    assert compiled.last is not None, "it was called"
    return "\n".join([*text(compiled.last.regions_detail), compiled.last.explain()])


def text(details: list[Detail]) -> Iterator[str]:
    """The regions one after the other."""
    for number, detail in enumerate(details):
        stores = ", which makes the region's stores" if detail.early else ""
        yield f"region {number}: {len(detail.kernels)} kernels{stores}: {', '.join(detail.kernels)}"
        yield detail.definition
        yield detail.cuda
