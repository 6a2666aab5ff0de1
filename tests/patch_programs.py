"""Random programs that write whole tensors, then small parts of them, and read them whole: what patching is for."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from executor.program import Program
from executor.tracing import trace

_SHAPES = ((12,), (4, 6), (6, 4), (3, 2, 4), (1, 8))


def patch_program(seed: int) -> Program:
    """The program of this seed: up to 12 statements on tensors of up to 24 elements, some of which share memory."""
    rng = random.Random(seed)
    shape = rng.choice(_SHAPES)
    dtype = rng.choice([torch.float32, torch.float32, torch.int64])
    whole = torch.arange(1, 25, dtype=dtype)[: torch.Size(shape).numel()].reshape(shape)
    if len(shape) > 1 and rng.random() < 0.3:
        whole = whole.transpose(0, 1).contiguous().transpose(0, 1)
    other = torch.arange(2, 2 + shape[-1], dtype=dtype)
    return trace(lambda *args: _Body(rng, args).run(), whole, _part(rng, whole), other)


def _part(rng: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """A view of some elements, most often of few."""
    for dim in range(tensor.dim() - 1, -1, -1):
        size = tensor.shape[dim]
        kind = rng.randrange(4)
        start = rng.randrange(size)
        if kind == 0:
            tensor = tensor.select(dim, start)
        elif kind < 3:
            tensor = tensor.narrow(dim, start, rng.randint(1, min(2, size - start)))
        elif size > 3:
            tensor = tensor[(slice(None),) * dim + (slice(start % 2, None, 3),)]
    return tensor.t() if tensor.dim() == 2 and rng.random() < 0.3 else tensor


class _Body:
    def __init__(self, rng: random.Random, args: tuple[torch.Tensor, ...]) -> None:
        self.rng = rng
        self.wholes, self.parts, self.others = [args[0]], [args[1]], [args[2]]

    def run(self) -> tuple[torch.Tensor, ...]:
        """Runs the statements; what is returned."""
        rng = self.rng
        steps: list[Callable[[], None]] = [self._overwrite, self._write_part, self._compute, self._read_part]
        for _ in range(rng.randint(3, 12)):
            rng.choices(steps, [2, 4, 4, 1])[0]()
        if rng.random() < 0.15:
            self.others.append(self.wholes[-1].sum())
        pool = [*self.wholes, *self.wholes, *self.parts, *self.others]
        return tuple(rng.choice(pool) for _ in range(rng.randint(1, 3)))

    def _overwrite(self) -> None:
        rng, x = self.rng, self.rng.choice(self.wholes)
        kind = rng.randrange(4)
        if kind == 0:
            x.add_(self._fitting(x).clone())
        elif kind == 1:
            x.neg_()
        elif kind == 2:
            x.copy_(self._fitting(x) - 1)
        else:
            x.clamp_(-40, 40)

    def _write_part(self) -> None:
        rng = self.rng
        x = _part(rng, rng.choice(self.wholes)) if rng.random() < 0.7 else rng.choice(self.parts)
        kind = rng.randrange(4)
        if kind == 0:
            x.fill_(rng.choice([0, 7]))
        elif kind == 1:
            x.add_(3)
        elif kind == 2:
            x.copy_(x.clone() * 2)
        else:
            x.neg_()

    def _compute(self) -> None:
        rng, x = self.rng, self.rng.choice(self.wholes[-3:])
        kind = rng.randrange(5)
        if kind == 0:
            made = x + self._fitting(x)
        elif kind == 1:
            made = self._fitting(x) * x
        elif kind == 2:
            made = torch.where(x > 2, x, self._fitting(x))
        elif kind == 3:
            made = (x.t() if x.dim() == 2 else x) - 5
        else:
            made = x.neg().clone()
        self.wholes.append(made)

    def _read_part(self) -> None:
        self.parts.append(_part(self.rng, self.rng.choice(self.wholes)) + 1)

    def _fitting(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor that is broadcast to this shape."""
        pool = [y for y in (*self.wholes, *self.parts, *self.others) if _broadcasts(y, x)]
        return self.rng.choice(pool)


def _broadcasts(tensor: torch.Tensor, x: torch.Tensor) -> bool:
    pairs = zip(reversed(tensor.shape), reversed(x.shape), strict=False)
    return tensor.dim() <= x.dim() and all(n in (1, m) for n, m in pairs)
