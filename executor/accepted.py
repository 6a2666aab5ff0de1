"""What a traced function may be given, and what it may return; the rest is refused in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from executor.errors import ArgumentError, TraceError

_CONTAINERS = (list, tuple, dict)
_PLAIN = (bool, int, float, complex, str, bytes, bytearray)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, if it is one that a program can hold. Raises `TraceError` for any other."""
    if type(tensor) is not torch.Tensor and not isinstance(tensor, torch.nn.Parameter):
        raise TraceError(f"an argument is a {type(tensor).__name__}; a program takes plain torch.Tensor only")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else f"layout {tensor.layout}"
        raise TraceError(f"an argument is no dense tensor ({kind}); a program takes dense (strided) ones only")
    if tensor.is_meta:
        raise TraceError("an argument is a tensor without contents (device meta); a program takes one on a real device")
    return tensor


def check_containers(args: tuple[Any, ...]) -> None:
    """Refuses containers that calls would not take apart, such as a range or a subclass of list."""
    for leaf in pytree.tree_leaves(args):
        if isinstance(leaf, Mapping | Sequence) and not isinstance(leaf, str | bytes | bytearray):
            raise ArgumentError(
                f"an argument holds {leaf!r} of type {type(leaf).__name__}; a program takes lists, tuples and dicts"
            )


def check_returned(out: Any) -> None:
    """Refuses what a program would return as something else: a named tuple as a tuple, a member of an enum as a number."""
    kind = type(out)
    if kind in _CONTAINERS:
        for item in out.values() if kind is dict else out:
            check_returned(item)
    elif isinstance(out, Mapping | Sequence | int | float | complex) and kind not in _PLAIN:
        raise TraceError(
            f"the function returns an object of type {kind.__module__}.{kind.__qualname__}, and a program returns "
            "tensors, numbers, strings, None, and lists, tuples and string-keyed dicts of those: make it one of them, as "
            "tuple() does of a named tuple"
        )
