"""Alias-heavy functions for `benchmarks/gpu.py`, at sizes where memory bandwidth is what counts.

Each has its arguments and its floor: the fewest bytes that any implementation has to read and write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

SIDE = 8192
Tensors = tuple[torch.Tensor, ...]


class Function(NamedTuple):
    """`make` gives the arguments, `floor` the bytes from them; `fn` changes some of them."""

    name: str
    fn: Callable[..., Any]
    make: Callable[[], Tensors]
    floor: Callable[..., int]


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers on the GPU."""
    return torch.randn(*shape, device="cuda").to(dtype)


def sized(times: float) -> Callable[..., int]:
    """So many times the bytes of the first argument."""
    return lambda first, *_: int(times * first.nbytes)


def f(a: torch.Tensor) -> torch.Tensor:
    return a.sin_() * a[0, 0].tanh_()


def g(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.sin_() * b.tanh_()


def h(a: torch.Tensor) -> torch.Tensor:
    t = a.sin_()
    a[0, 0].tanh_()
    return t.cos()


def kv_cache(cache: torch.Tensor, new: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    cache[:, 1024].copy_(new)
    return (cache * query).sum(-1)


def adam(flat: torch.Tensor) -> None:
    p, grad, m, v = flat[0], flat[1], flat[2], flat[3]
    m.lerp_(grad, 0.1)
    v.mul_(0.99).addcmul_(grad, grad, value=0.01)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    low, high = x[..., :half], x[..., half:]
    turned = low * cos - high * sin
    high.copy_(high * cos + low * sin)
    low.copy_(turned)
    return x


def residual(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x.add_(a)
    x.add_(b.relu())
    return x * 0.5


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    x.sub_(x.mean(-1, keepdim=True))
    x.mul_((x.square().mean(-1, keepdim=True) + 1e-5).rsqrt())
    return x.mul_(weight).add_(bias)


def ring(buffer: torch.Tensor, new: torch.Tensor) -> None:
    buffer[1:].copy_(buffer[:-1].clone())
    buffer[0].copy_(new)


def masked(x: torch.Tensor, mask: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.masked_fill_(mask, 0.0)
    return x.add_(y)


def columns(x: torch.Tensor) -> torch.Tensor:
    x[:, ::2].mul_(2)
    x[:, 1::2].add_(1)
    return x.sum(1)


def halves(x: torch.Tensor) -> None:
    first, second = x[: SIDE // 2], x[SIDE // 2 :]
    first.add_(second)
    second.mul_(first)


def running(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    var.mul_(0.9).add_((x - mean).square().mean(0), alpha=0.1)
    return (x - mean) * (var + 1e-5).rsqrt()


def gated(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[1] // 2
    gate, up = x[:, :half], x[:, half:]
    gate.copy_(torch.nn.functional.silu(gate))
    return gate.mul_(up)


def _square() -> Tensors:
    return (randn(SIDE, SIDE),)


def _with_corner() -> Tensors:
    a = randn(SIDE, SIDE)
    return a, a[0, 0]


FUNCTIONS = (
    Function("f: a.sin_() * a[0, 0].tanh_()", f, _square, sized(3)),
    Function("g: the same, b = a[0, 0] passed too", g, _with_corner, sized(3)),
    Function("h: a.sin_(); a[0, 0].tanh_(); a.cos()", h, _square, sized(3)),
    Function(
        "KV cache: a slot written, all read",
        kv_cache,
        lambda: (randn(256, 2048, 128), randn(256, 128), randn(256, 1, 128)),
        sized(1),
    ),
    Function("Adam step, rows of one buffer", adam, lambda: (randn(4, SIDE * SIDE // 2).abs_(),), sized(7 / 4)),
    Function(
        "rotary embedding in place",
        rotary,
        lambda: (randn(16, 2048, 16, 128), randn(2048, 1, 64), randn(2048, 1, 64)),
        sized(2),
    ),
    Function("residual chain", residual, lambda: (randn(SIDE, SIDE), randn(SIDE, SIDE), randn(SIDE, SIDE)), sized(5)),
    Function("layer norm in place", layer_norm, lambda: (randn(SIDE, SIDE), randn(SIDE), randn(SIDE)), sized(2)),
    Function("ring buffer shifted by a row", ring, lambda: (randn(SIDE, SIDE), randn(SIDE)), sized(2)),
    Function(
        "masked update", masked, lambda: (randn(SIDE, SIDE), randn(SIDE, SIDE) > 0, randn(SIDE, SIDE)), sized(3.25)
    ),
    Function("interleaved columns", columns, _square, sized(2)),
    Function("halves of one buffer", halves, _square, sized(2)),
    Function("running statistics", running, lambda: (randn(SIDE, SIDE), randn(SIDE), randn(SIDE).abs_()), sized(2)),
    Function("gated MLP, activations in place", gated, _square, sized(1.5)),
)
