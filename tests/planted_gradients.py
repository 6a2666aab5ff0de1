"""For each fault of `benchmarks/faults/gradients.py` a small program on which it shows, and how its caller goes backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from executor.program import Backward

Example = tuple[Callable[..., Any], tuple[Any, ...], Backward]


def leaf(*shape: int, start: int = 2) -> torch.Tensor:
    """A leaf of distinct numbers."""
    return torch.arange(start, start + torch.Size(shape).numel(), dtype=torch.float32).view(shape).requires_grad_()


def rooted(*shape: int) -> torch.Tensor:
    """A tensor that requires grad and is no leaf."""
    return leaf(*shape).clone()


def plain(*shape: int) -> torch.Tensor:
    """The same without gradient."""
    return leaf(*shape).detach()


def _times_twice(a: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return a * (p * 2)


def _times_twice_then_written(a: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    b = a * p
    c = b * (p * 2)
    p.detach().add_(1)
    return c


def _without_grad_mode(a: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        b = a * 2
    return a * b


_ALL = Backward()

EXAMPLES: dict[str, Example] = {
    "kept value not copied before a write": (lambda a, b: a.mul_(b), (rooted(3), leaf(3)), _ALL),
    "computed anew from what was written": (
        lambda a, p: (b := p * 2, c := a * b, p.add_(1), c)[-1], (leaf(3), plain(3)), _ALL),
    "computed anew from what the caller writes": (_times_twice, (leaf(3), plain(3)), Backward(written=2)),
    "kept values in another order": (lambda a, b: a * b, (leaf(3), leaf(3, start=-3)), _ALL),
    "kept values of the first call": (lambda a, b: a * b, (leaf(3), leaf(3, start=-3)), _ALL),
    "cotangents of two outputs swapped": (lambda a: (a * 2, a * 3), (leaf(3),), _ALL),
    "missing cotangent taken for ones": (lambda a: (a * 2, a * 3), (leaf(3),), Backward(left_out=(1,))),
    "missing cotangent taken for zeros": (lambda a, b: (a * 2, b * 3), (leaf(3), leaf(3)), Backward(left_out=(1,))),
    "writes by the caller not noticed": (_times_twice, (leaf(3), leaf(3)), Backward(written=1)),
    "gradient of what was overwritten lost": (lambda a: a.mul_(2), (rooted(3),), _ALL),
    "written input without its history": (lambda a: a.mul_(2), (rooted(3),), _ALL),
    "versions not counted": (lambda a, p: (p.add_(1), a * 2)[1], (leaf(3), plain(3)), _ALL),
    "no_grad ignored": (_without_grad_mode, (leaf(3),), _ALL),
    "detach ignored": (lambda a: a * a.detach(), (leaf(3),), _ALL),
    "views without their history": (lambda a: a[1:], (leaf(3),), _ALL),
    "only the last use counts": (lambda a: a * a, (leaf(3),), _ALL),
    "gradient of a broadcast value not summed": (lambda a: a.expand(2, 3) * 2, (leaf(3),), _ALL),
}  # fmt: skip
