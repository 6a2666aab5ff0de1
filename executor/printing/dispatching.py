"""Whether two Python expressions reach torch's dispatcher with the same operator and the same arguments.

Both are run on meta tensors under a mode that stops them at the first operator they reach, so nothing is computed.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from executor.functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from executor.program import Value

_CLASSES = {function.__name__: function for function in FUNCTIONS.values()}
# What an expression raises whose arguments don't fit what it calls.
_MISFITS = (AttributeError, IndexError, NotImplementedError, RuntimeError, SyntaxError, TypeError, ValueError)


def same_dispatch(text: str, wanted: str, values: Mapping[str, Value]) -> bool:
    """Whether `text` reaches the operator that `wanted` reaches, with the same arguments; False if either fails.

    Both are expressions over `torch` and tensors named as in `values`.
    """
    tensors = {name: _meta(value) for name, value in values.items()}
    reached = _reached(wanted, tensors)
    return reached is not _Stop and _equal(_reached(text, tensors), reached)


class _Stop(Exception):
    pass


class _First(TorchDispatchMode):
    """Keeps the first operator that is reached, with its arguments, and ends the run."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.seen: tuple[Any, ...] | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        # Memory that isn't pinned is what torch gives where it isn't asked, so asking makes no difference.
        self.seen = (
            func,
            args,
            {key: arg for key, arg in (kwargs or {}).items() if (key, arg) != ("pin_memory", False)},
        )
        raise _Stop


def _reached(text: str, tensors: dict[str, torch.Tensor]) -> Any:
    """The first operator that the text reaches, and its arguments; None if it reaches none; `_Stop` if it fails."""
    mode = _First()
    with warnings.catch_warnings(), torch._C.DisableTorchFunction(), mode:  # noqa: SLF001 (no public way)
        warnings.simplefilter("ignore")
        try:
            eval(text, {"torch": torch, **_CLASSES, **tensors})  # noqa: S307 (text that we made)
        except _Stop:
            pass
        except _MISFITS:
            return _Stop
    return mode.seen


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a is b
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b or (a != a and b != b))


def _meta(value: Value) -> torch.Tensor:
    return torch.empty_strided(value.shape, value.strides, dtype=value.torch_dtype, device="meta")
