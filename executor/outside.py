"""The names of tensors that a function uses without being given them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch


def named(fn: Callable[..., Any], tensor: torch.Tensor) -> str:
    """What the tensor is to the function, in words: a parameter or buffer of its module, or one of its outer variables."""
    for name, thing in _things(fn):
        variable = f" {name!r}" if name else ""
        if thing is tensor:
            return f"the variable{variable}"
        if isinstance(thing, torch.nn.Module):
            for kind, members in (("parameter", thing.named_parameters()), ("buffer", thing.named_buffers())):
                found = next((path for path, member in members if member is tensor), None)
                if found is not None:
                    return f"the {kind} {found!r} of the module{variable}"
    return "a tensor"


def _things(fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    yield "", getattr(fn, "__self__", fn)
    try:
        variables = inspect.getclosurevars(inspect.unwrap(fn))
    except TypeError:  # no Python function
        return
    yield from variables.nonlocals.items()
    yield from variables.globals.items()
