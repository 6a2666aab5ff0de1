"""A last statement that eager refuses: a write to a tensor that overlaps itself, or from one that it overlaps in part.

Compilers have to refuse it too. Only refusals are drawn that eager is sure to make; see `get_overlap_status` in torch's
`ATen/MemoryOverlap.cpp`.
"""

from __future__ import annotations

import contextlib

import torch

from strategies.draws import Draw, choice
from strategies.fitting import COPY
from strategies.scope import Scope


def draw_refused(draw: Draw, scope: Scope) -> bool:
    """Records a write that eager refuses, if the values in scope allow one; whether they do."""
    repeated = [i for i in range(scope.count) if _repeats(scope.tensor(i))]
    crossing = [(i, j) for i in range(scope.count) for j in range(scope.count) if _crosses(scope, i, j)]
    writes: list[tuple[str, tuple[int, ...]]] = [("aten.neg_.default", (i,)) for i in repeated]
    writes += [(COPY, pair) for pair in crossing]
    writes = [write for write in writes if scope.takes(write[0])]
    if not writes:
        return False
    op, operands = choice(draw, writes)
    with contextlib.suppress(RuntimeError):
        scope.emit(op, *map(scope.tensor, operands))
    assert scope.recorder.refused is not None, "eager refuses what overlaps so"
    return True


def _repeats(tensor: torch.Tensor) -> bool:
    """Whether a dimension stands for one element several times."""
    if tensor.dtype in (torch.bool, torch.uint8):
        return False
    return tensor.numel() > 1 and any(n > 1 and not step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def _crosses(scope: Scope, target: int, source: int) -> bool:
    """Whether two contiguous values of one shape overlap in part."""
    a, b = scope.tensor(target), scope.tensor(source)
    plain = all(t.is_contiguous() and not t.is_conj() and not t.is_neg() for t in (a, b))
    alike = plain and a.shape == b.shape and a.dtype is b.dtype
    return alike and a.storage_offset() != b.storage_offset() and not scope.apart(target, source)
