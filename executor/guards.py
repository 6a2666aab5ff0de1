"""The key of the compile cache: everything in a call that a compiled program depends on, found without reading data.

Besides each tensor's own layout it holds the *alias signature*: which inputs share a storage. With their offsets and
strides, also in the key, that says exactly how they lie to each other, so code made for one alias pattern never serves
another.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _device
from torch.utils import _pytree as pytree

from executor.errors import ArgumentError

_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_NUMBERS = frozenset({int, bool, str, type(None)})
_LEAVES = _TENSORS | _NUMBERS | {float, complex}
# Constants that a program may hold as well.
_OTHERS = (int, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


def guard(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Hashable, list[torch.Tensor]]:
    """The key of a call with these arguments, and the tensors among them in the order of the program's inputs.

    Raises `ArgumentError` naming the argument for one that cannot be compiled for.
    """
    tree, leaves = _flatten(args, kwargs)
    tensors: list[torch.Tensor] = []
    parts: list[Hashable] = [tree, torch.get_default_dtype(), _device.CURRENT_DEVICE, _autocast()]
    storages: dict[int, int] = {}
    objects: dict[int, int] = {}
    spans: list[tuple[int, int]] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind not in _TENSORS:
            parts.append((kind, _constant(leaf, args, kwargs)))
            continue
        if leaf.layout is not torch.strided or leaf.is_quantized or leaf.is_nested:
            raise ArgumentError(_refusal(leaf, args, kwargs))
        position = len(tensors)
        tensors.append(leaf)
        storage = leaf.untyped_storage()
        home = storages.setdefault(storage._cdata, position)
        if home == position and (start := storage.data_ptr()):
            spans.append((start, start + storage.nbytes()))
        parts.append(
            (
                home,
                objects.setdefault(id(leaf), position),
                leaf.shape,
                leaf.stride(),
                leaf.storage_offset(),
                leaf.dtype,
                leaf.device,
                leaf.is_conj(),
                leaf.is_neg(),
                leaf.requires_grad,
            )
        )
    if len(spans) > 1:
        _check_disjoint(spans)
    return tuple(parts), tensors


def _autocast() -> Hashable:
    """The dtypes to which autocast casts; calls that it adds become part of the program."""
    return tuple([torch.get_autocast_dtype(device) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)])


def _flatten(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Hashable, Sequence[Any]]:
    """The nesting and the leaves. Arguments without containers, the usual case, need no walk (a third of the time)."""
    flat = (*args, *kwargs.values()) if kwargs else args
    for leaf in flat:
        if type(leaf) not in _LEAVES:
            break
    else:
        return (len(args), *kwargs), flat
    leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
    return spec, leaves


def _constant(leaf: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable:
    """What stands for a leaf that is no tensor; floats by their digits, since 0.0 equals -0.0 and NaN not itself."""
    if type(leaf) in _NUMBERS:
        return leaf  # type: ignore[no-any-return]
    if isinstance(leaf, float | complex):
        return repr(leaf)
    if isinstance(leaf, _OTHERS):
        return leaf
    raise ArgumentError(_refusal(leaf, args, kwargs))


def _refusal(leaf: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    where = next(
        _place(path) for path, found in pytree.tree_flatten_with_path((args, dict(kwargs)))[0] if found is leaf
    )
    if not isinstance(leaf, torch.Tensor):
        return (
            f"{where} is {leaf!r} of type {type(leaf).__name__}; a compiled function takes tensors, numbers, strings, "
            "None, dtypes, devices, and lists, tuples and dicts of those"
        )
    if type(leaf) not in _TENSORS:
        return f"{where} is a {type(leaf).__name__}; tensor subclasses are not supported: pass a plain torch.Tensor"
    return f"{where} is not a dense tensor (layout {leaf.layout}); only strided, unquantized ones are supported"


def _place(path: tuple[Any, ...]) -> str:
    half, first, *rest = path
    name = f"args[{first.idx}]" if half.idx == 0 else str(first.key)
    return name + pytree.keystr(tuple(rest))


def _check_disjoint(spans: list[tuple[int, int]]) -> None:
    """Refuses storages that share memory behind torch's back, as two `torch.from_numpy` of one array do."""
    spans.sort()
    end = 0
    for start, stop in spans:
        if start < end:
            raise ArgumentError(
                "two inputs lie on different torch storages over the same memory (made from one buffer "
                "twice, as by torch.from_numpy?): make one a view of the other, so that torch knows"
            )
        end = max(end, stop)
