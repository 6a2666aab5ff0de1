"""Runs a function forward and backward once, under the dispatch mode, so that autograd's own calls become a program, too.

What views, writes in place and version counters mean for gradients is thus decided by PyTorch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from executor.accepted import check_containers, plain
from executor.args import Arg, List, Ref
from executor.autograd.fills import FILLS, needs_mask
from executor.autograd.relations import Blueprint, Copies, Relations
from executor.errors import TraceError
from executor.facts import access, facts
from executor.interpreter import flatten
from executor.memory import dtype_name
from executor.program import Iota, Param, Program, Storage
from executor.recording import Recording
from executor.schema import op_name

# Zeros that torch knows to be zeros, without memory, which cannot be written. While it traces torch has done what follows from
# that, and the program needs memory.
_NO_MEMORY = torch.ops.aten._efficientzerotensor.default  # noqa: SLF001 (no public way)
_CHANGED = "one of the variables needed for gradient computation has been modified by an inplace operation: "


class Pass(NamedTuple):
    """What going backward with some of the cotangents does.

    `calls` are a range of the recorder's. `cotangents` and `gradients` are values, None where there is none. `unpacked`:
    which of the kept tensors it looks at. `error` is what it raises, if it does.
    """

    calls: range
    cotangents: tuple[int | None, ...]
    gradients: tuple[int | None, ...]
    unpacked: frozenset[int]
    error: Exception | None


class Template(NamedTuple):
    """A function and its arguments, each tensor among them replaced by a slot: which of the distinct inputs it is.

    `autocast` are the devices for which autocast is on, and to which dtype.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    blueprint: Blueprint
    autocast: tuple[tuple[str, torch.dtype], ...]

    @classmethod
    def of(cls, fn: Callable[..., Any], args: Any, kwargs: Any, relations: Relations) -> Template:
        """The template of a call. Raises `ArgumentError` or `TraceError` for arguments that a program cannot take."""
        check_containers((tuple(args), dict(kwargs)))
        for tensor in relations.tensors:
            plain(tensor)
        slots = {id(tensor): Slot(k) for k, tensor in enumerate(relations.tensors)}
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: slots[id(t)], (tuple(args), dict(kwargs)))
        devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
        autocast = tuple((device, torch.get_autocast_dtype(device)) for device in devices)
        return cls(fn, args, kwargs, relations.blueprint(), autocast)


class Slot(NamedTuple):
    """Stands for a tensor among arguments."""

    number: int


class Joint(Recording):
    """One function, run on copies of its inputs, which hold zeros unless there are originals.

    Once `run`, `forward` are the numbers of its calls, `outputs` is the tree of what it returned, `levels[i]` the version
    of call i's first operand before it, and `changes[k]` says when base k got another history: the number of the last call
    before that, and the base's version after it.
    """

    def __init__(self, template: Template, originals: Relations | None = None) -> None:
        super().__init__(template.fn, metadata=False)
        self.template = template
        self.copies = Copies(template.blueprint, originals)
        for tensor in self.copies.tensors:
            self.recorder.input(tensor, Storage(tensor.untyped_storage().nbytes(), Iota(dtype_name(tensor.dtype))))
        self.given = len(self.copies.tensors)
        self.entry = [tensor._version for tensor in self.copies.tensors]
        self.levels: dict[int, int] = {}
        self.changes: dict[int, list[tuple[int, int]]] = {}
        self._histories: list[Any] = [base.grad_fn for base in self.copies.bases]
        self._versions: list[int] = []  # of what autograd keeps, when it was kept
        self.forward = range(0)
        self.outputs: Arg = None
        self._makers: dict[int, int] = {}
        self._unpacked: set[int] = set()
        self._changes: list[str] = []

    def run(self) -> None:
        """Runs the function. Raises what it raises, and `TraceError` for what cannot become a program."""
        args, kwargs = self.template.args, self.template.kwargs
        args, kwargs = pytree.tree_map_only(
            Slot, lambda slot: self.copies.tensors[slot.number], (args, kwargs), is_leaf=lambda x: isinstance(x, Slot)
        )
        with ExitStack() as ambient:  # traced again it may be where the caller goes backward
            ambient.enter_context(torch.enable_grad())
            for device, dtype in self.template.autocast:
                ambient.enter_context(torch.autocast(device, dtype))
            out = self.watching(args, kwargs)
        self._look()
        if any(root.grad is not None for root in self.copies.roots):
            raise TraceError(
                "the function goes backward and adds to the gradient of an argument, which is not supported: use "
                "torch.autograd.grad, and return what it gives"
            )
        self.forward = range(len(self.recorder.calls))
        self._makers = {v: i for i in reversed(self.forward) for v in self.recorder.calls[i].results}
        for k in range(len(self.copies.tensors)):
            self._makers.pop(k, None)  # written in place by calls that return them
        self.outputs = self.returned(out)

    def refused(self) -> Program:
        """The program up to and including the call that eager refused, after `run` raised `recorder.refused`."""
        tensors = List(tuple(Ref(k) for k in range(len(self.copies.tensors))))
        return self.recorder.program([Param("tensors", tensors)])

    def autograds_own(self, op: torch._ops.OpOverload, function: str) -> bool:
        """None: what autograd does for itself the backward program may need."""
        del op, function
        return False

    def instead(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """See `Recording.instead`."""
        return FILLS[func] if needs_mask(func, args, kwargs) else super().instead(func, args, kwargs)

    def record(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """See `Recording.record`."""
        first = next(iter(flatten(args)), None)
        level = 0 if first is None else first._version
        self._look()
        if op is _NO_MEMORY:
            op = torch.ops.aten.zeros.default  # kernels that are called under the mode would read its memory
        out = super().record(op, args, kwargs)
        self.levels[len(self.recorder.calls) - 1] = level
        if op_name(op).startswith("aten._foreach_") and facts(op_name(op)).written:
            # In eager each member's own operator counts this write, but none of those is reached under the mode.
            torch.autograd.graph.increment_version(args[0])
        return out

    def _look(self) -> None:
        """Notes which bases got another history since the call before: by a write, or by a custom function's."""
        for k, base in enumerate(self.copies.bases):
            if base.grad_fn is not self._histories[k]:
                self._histories[k] = base.grad_fn
                self.changes.setdefault(k, []).append((len(self.recorder.calls) - 1, base._version))

    def maker(self, value: int) -> int | None:
        """The call of the function that makes this value; none for inputs and constants."""
        return self._makers.get(value)

    def is_view(self, call: int) -> bool:
        """Whether a call only computes addresses on the memory of its operand."""
        found = self.recorder.calls[call]
        return bool(found.operands) and access(self.recorder.values, found).address

    def backward(self, targets: Sequence[torch.Tensor], pattern: Sequence[bool]) -> Pass:
        """Goes backward from those targets that have a cotangent, and records it."""
        recorder, start = self.recorder, len(self.recorder.calls)
        cotangents = [
            torch.zeros_like(t.detach()) if given else None for t, given in zip(targets, pattern, strict=True)
        ]
        places = [None if t is None else self._cotangent(t) for t in cotangents]
        self._unpacked, self._changes = set(), []
        gradients: Sequence[torch.Tensor | None] = [None] * len(self.copies.roots)
        error: Exception | None = None
        try:
            with self.recording(), ExitStack() as ambient:
                for device, _ in self.template.autocast:  # what the caller goes backward under is not known
                    ambient.enter_context(torch.autocast(device, enabled=False))
                gradients = torch.autograd.grad(
                    [t for t, given in zip(targets, pattern, strict=True) if given],
                    self.copies.roots,
                    [t for t in cotangents if t is not None],
                    retain_graph=True,
                    allow_unused=True,
                )
        except TraceError:
            raise
        except Exception as raised:  # noqa: BLE001 (a derivative may raise anything, and does so when it is asked for)
            error = raised.with_traceback(None)  # the frames hold the trace
        if self._changes:
            error = RuntimeError(self._changes[0])
        values = tuple(None if t is None else recorder.ref(t).index for t in gradients)
        calls = range(start, len(recorder.calls))
        return Pass(calls, tuple(places), values, frozenset(self._unpacked), error)

    def _cotangent(self, tensor: torch.Tensor) -> int:
        nbytes = tensor.untyped_storage().nbytes()
        return self.recorder.input(tensor, Storage(nbytes, Iota(dtype_name(tensor.dtype))))

    def pack(self, tensor: torch.Tensor) -> int:
        """See `Recording.pack`."""
        self._versions.append(tensor._version)
        return super().pack(tensor)

    def unpack(self, number: int) -> torch.Tensor:
        """See `Recording.unpack`."""
        tensor = super().unpack(number)
        self._unpacked.add(number)
        if tensor._version != self._versions[number]:
            self._changes.append(changed(tensor, self._versions[number]))
        return tensor


def changed(tensor: torch.Tensor, expected: int) -> str:
    """What autograd says of a tensor that it kept and that was written since."""
    return (
        f"{_CHANGED}[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; "
        f"expected version {expected} instead."
    )
