"""Calls that autograd refuses before they are dispatched, such as a write to a leaf that requires grad."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from executor.args import Arg, Ref, to_arg
from executor.interpreter import flatten

if TYPE_CHECKING:
    from executor.recorder import Recorder


def refusal(
    recorder: Recorder,
    error: Exception,
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    start: int,
) -> None:
    """Records the call that a torch function makes after those that were recorded from `start` on.

    To learn which one it is, the function runs once more, on detached tensors, which autograd lets pass.
    """
    refs: dict[int, Arg] = {}

    def detach(tensor: torch.Tensor) -> torch.Tensor:
        apart = tensor.detach()
        refs[id(apart)] = recorder.ref(tensor)
        return apart

    args, kwargs = pytree.tree_map_only(torch.Tensor, detach, (tuple(args), dict(kwargs)))
    try:
        with _UpTo(recorder, refs, start):
            func(*args, **kwargs)
    except _Found as found:
        given = [to_arg(arg, lambda tensor: refs[id(tensor)]) for arg in found.args_]
        named = {key: to_arg(arg, lambda tensor: refs[id(tensor)]) for key, arg in found.kwargs.items()}
        recorder.refuse(found.op, given, named, error)
    except RuntimeError:  # it raises for another reason
        return


class _Found(Exception):
    def __init__(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__(str(op))
        self.op, self.args_, self.kwargs = op, args, kwargs


class _UpTo(TorchDispatchMode):
    """Runs the calls that were recorded, and raises `_Found` at the next one."""

    def __init__(self, recorder: Recorder, refs: dict[int, Arg], start: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder, self._refs, self._next = recorder, refs, start
        self._kept: list[Any] = []  # so that no object takes another one's id

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        while self._next < len(self._recorder.calls) and self._recorder.calls[self._next].op != str(func):
            self._next += 1  # a call that autograd made for itself
        if self._next == len(self._recorder.calls):
            raise _Found(func, args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        self._kept.append(out)
        results = self._recorder.calls[self._next].results
        self._refs.update({id(tensor): Ref(v) for tensor, v in zip(flatten(out), results, strict=False)})
        self._next += 1
        return out
