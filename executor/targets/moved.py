"""Runs a function that takes CPU tensors on a GPU: whole storages go there, and come back changed.

It needs torch only, so that its text can stand in a script of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


class Moved:
    """Calls `inner` with its arguments on `device`, laid out and aliased as they are, and brings back what it did.

    Inputs show every write; what is returned shares storage with inputs, and is the same object, where `inner`'s is.
    Arguments that lie on a GPU already are passed as they are.
    """

    def __init__(self, inner: Callable[..., Any], device: str) -> None:
        self.inner, self.device = inner, device

    def __call__(self, *args: Any) -> Any:
        """What `inner` returns."""
        leaves = pytree.tree_leaves(args)
        if all(leaf.device.type == "cuda" for leaf in leaves if isinstance(leaf, torch.Tensor)):
            return self.inner(*args)
        there = Copies(self.device)
        moved = pytree.tree_map_only(torch.Tensor, there.tensor, args)
        try:
            with torch.device(self.device):
                out = self.inner(*moved)
        finally:
            back = there.returned()
        return pytree.tree_map_only(torch.Tensor, back.tensor, out)


class Copies:
    """Copies of storages on a device, each made once, and the tensors on them, each an object of its own."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.storages: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def tensor(self, original: torch.Tensor) -> torch.Tensor:
        """The tensor that stands for this one."""
        if id(original) not in self.tensors:
            self.tensors[id(original)] = (original, self._made(original))
        return self.tensors[id(original)][1]

    def returned(self) -> Copies:
        """The way back: what the copies hold is written to the originals, and their tensors stand for themselves."""
        back = Copies("cpu")
        for original, copy in self.storages.values():
            whole(original).copy_(copy)
            back.storages[copy.untyped_storage()._cdata] = (copy, whole(original))
        back.tensors = {id(made): (made, original) for original, made in self.tensors.values()}
        return back

    def _made(self, original: torch.Tensor) -> torch.Tensor:
        storage = original.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = (original, whole(original).to(self.device, copy=True))
        home = self.storages[storage._cdata][1].untyped_storage()
        made = torch.empty(0, dtype=original.dtype, device=self.device)
        made.set_(home, original.storage_offset(), original.shape, original.stride())
        made = made.conj() if original.is_conj() else made
        return torch._neg_view(made) if original.is_neg() else made


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's storage."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))
