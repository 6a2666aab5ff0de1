"""What a caller sees of a function's gradients: tensors' states, values, memory, versions, and what going backward gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from executor.interpreter import flatten

# The arguments of a call, and the leaves whose gradients are looked at.
Made = tuple[list[torch.Tensor], list[torch.Tensor]]
Make = Callable[[], Made]


def leaf(*shape: int, start: int = 1) -> torch.Tensor:
    """A leaf that requires grad, of small integers."""
    count = torch.Size(shape).numel()
    return torch.arange(start, start + count, dtype=torch.float32).reshape(shape).requires_grad_()


def plain(*shape: int, start: int = 1) -> torch.Tensor:
    """The same without gradient."""
    return leaf(*shape, start=start).detach()


def leaves(*shapes: tuple[int, ...]) -> Make:
    """Arguments that are leaves of these shapes."""

    def make() -> Made:
        made = [leaf(*shape, start=2 - k) for k, shape in enumerate(shapes)]
        return made, made

    return make


def cotangent(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Small integers, shaped like the tensor."""
    flat = (torch.arange(tensor.numel()) * 3 + seed) % 5 - 2
    return flat.reshape(tensor.shape).to(tensor.dtype)


def state(tensor: torch.Tensor) -> Any:
    """What autograd thinks of a tensor."""
    try:
        history = tensor.grad_fn is not None
    except RuntimeError as error:
        return type(error).__name__, tensor._version
    return tensor.requires_grad, tensor.is_leaf, history, tensor._version


def observed(fn: Callable[..., Any], make: Make, backward: Callable[[list[Any], list[Any], list[Any]], Any]) -> Any:
    """All that shows: `backward` is called with outputs, arguments and leaves, and returns what it saw, or raises."""
    args, looked_at = make()
    try:
        outputs = flatten(fn(*args))
    except RuntimeError as error:
        return type(error), str(error)[:40], [t.detach().clone() for t in args], [t._version for t in args]
    every = [*outputs, *args]
    homes: dict[int, int] = {}
    places = [(homes.setdefault(t.untyped_storage()._cdata, len(homes)), t.stride(), t.storage_offset()) for t in every]
    same = [next(k for k, other in enumerate(every) if other is t) for t in every]
    bases = [t._base is None for t in outputs]
    seen: list[Any] = [[state(t) for t in every], [t.detach().clone() for t in every], places, same, bases]
    try:
        seen.append(backward(outputs, args, looked_at))
    except RuntimeError as error:
        seen.append((type(error), str(error)[:40]))
    seen.append([None if t.grad is None else t.grad.clone() for t in looked_at if t.is_leaf])
    return seen


def all_of(outputs: Sequence[Any], args: Sequence[Any], looked_at: Sequence[torch.Tensor]) -> Any:
    """Gradients of the leaves from all outputs and arguments that have a history."""
    sources = [t for t in (*outputs, *args) if t.requires_grad and t.grad_fn is not None]
    if not sources:
        return None
    given = [cotangent(t, k) for k, t in enumerate(sources)]
    return torch.autograd.grad(sources, looked_at, given, allow_unused=True)


def equal(a: Any, b: Any) -> bool:
    """Whether two observations are the same, tensors bit for bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
