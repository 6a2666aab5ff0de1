"""How autograd sees the inputs of a call: which are views of one base, which bases are leaves, and copies that it sees alike.

To autograd a tensor is a *base* or a view of one, and memory does not matter: `x.detach()` shares memory with `x` and is a
base of its own. A gradient flows through a write from one view of a base to all others, and never from base to base.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from executor.errors import ArgumentError
from executor.memory import allocate, clone, describe

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from executor.program import Inputs, Value

Kind = Literal["no gradient", "leaf", "leaf and view", "view without grad mode", "one of several", "part of the graph"]

# Views that these nodes make may not be written; the copies have to be made by such an operator, too.
_SEVERAL = ("Unbind", "Split", "UnsafeSplit", "TensorSplit")


class Blueprint(NamedTuple):
    """What autograd thinks of a call's inputs, without the tensors.

    `inputs` are the layouts of the distinct inputs and, after them, of their bases. `base_of[k]` is the position among the
    bases of input k's, and `own[k]` whether it is that base. `kinds` are those of the inputs and then of the bases.
    """

    inputs: Inputs
    base_of: tuple[int, ...]
    own: tuple[bool, ...]
    kinds: tuple[Kind, ...]


class Relations:
    """The distinct tensors among the inputs of a call, and their bases, each once; `roots` are the bases that require grad."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = list({id(tensor): tensor for tensor in tensors}.values())
        found: dict[int, int] = {}
        self.bases: list[torch.Tensor] = []
        self.base_of: list[int] = []
        for tensor in self.tensors:
            base = base_of(tensor)
            if id(base) not in found:
                found[id(base)] = len(self.bases)
                self.bases.append(base)
            self.base_of.append(found[id(base)])
        self.roots = [base for base in self.bases if base.requires_grad]

    def key(self) -> Hashable:
        """What a compiled function depends on, besides the layout of its inputs."""
        kinds = tuple([_kind(tensor) for tensor in (*self.tensors, *self.bases)])
        bases = tuple([(base.shape, base.stride(), base.storage_offset(), base.dtype) for base in self.bases])
        return tuple(self.base_of), self._own(), kinds, bases

    def blueprint(self) -> Blueprint:
        """The same without the tensors."""
        every = (*self.tensors, *self.bases)
        inputs = describe([tensor.detach() for tensor in every], fill=False)  # autograd does not matter here
        return Blueprint(inputs, tuple(self.base_of), self._own(), tuple([_kind(tensor) for tensor in every]))

    def _own(self) -> tuple[bool, ...]:
        return tuple([self.bases[k] is tensor for tensor, k in zip(self.tensors, self.base_of, strict=True)])


class Copies:
    """Copies of the inputs, on memory of their own, that autograd sees as it sees the originals.

    `roots` are what gradients flow to: for each base that requires grad the base itself if it is a leaf, else a leaf that
    it was made from. Without `originals` the memory holds zeros.
    """

    def __init__(self, blueprint: Blueprint, originals: Relations | None = None) -> None:
        self.blueprint = blueprint
        if originals is None:
            self._memory = allocate(blueprint.inputs)
        else:
            self._memory = clone([tensor.detach() for tensor in (*originals.tensors, *originals.bases)])
        count = len(blueprint.base_of)
        self.bases: list[torch.Tensor] = []
        self.roots: list[torch.Tensor] = []
        values = blueprint.inputs.values
        with torch.enable_grad():
            for tensor, kind in zip(self._memory.tensors[count:], blueprint.kinds[count:], strict=True):
                self._add(tensor if kind == "leaf and view" else tensor.detach(), kind)
            self.tensors = [
                self.bases[k] if own else view(self.bases[k], values[count + k], value, kind)
                for value, k, own, kind in zip(values, blueprint.base_of, blueprint.own, blueprint.kinds, strict=False)
            ]

    def _add(self, base: torch.Tensor, kind: Kind) -> None:
        if kind != "no gradient":
            root = base if kind in ("leaf", "leaf and view") else torch.empty_like(base)
            self.roots.append(root.requires_grad_())
            if root is not base:
                Rebase.apply(base, root)  # type: ignore[no-untyped-call]
        self.bases.append(base)


class FromSource(torch.autograd.Function):
    """A function of a tensor and a source, of which the source gets the gradient."""

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *grads: torch.Tensor | None
    ) -> tuple[None, torch.Tensor | None]:
        """All of the gradient goes to the source."""
        del ctx
        return None, grads[0]


class Rebase(FromSource):
    """Gives a tensor the history of another one of the same shape, as if that had been copied into it; no element moves."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """The target, whose gradient flows to the source from now on."""
        del source
        ctx.mark_dirty(target)
        ctx.set_materialize_grads(False)
        return target


def view(base: torch.Tensor, whole: Value, part: Value, kind: Kind) -> torch.Tensor:
    """A view, laid out as `part`, of a base that is laid out as `whole`. Raises `ArgumentError` if dtypes differ."""
    if part.dtype != whole.dtype:
        raise ArgumentError(
            f"an input of dtype {part.dtype} is a view of a tensor of dtype {whole.dtype}, and gradients through such "
            "views are not supported: pass the tensor itself"
        )
    with torch.no_grad() if kind == "view without grad mode" else nullcontext():
        made = base.as_strided(part.shape, part.strides, part.offset)
        made = made.conj() if part.conj is not whole.conj else made
        made = torch._neg_view(made) if part.neg is not whole.neg else made
    return made.unsqueeze(0).unbind(0)[0] if kind == "one of several" else made


def base_of(tensor: torch.Tensor) -> torch.Tensor:
    """What the tensor is a view of, or itself. A view of a tensor without gradient that was made a leaf is one for itself."""
    base = tensor._base
    return tensor if base is None or (tensor.requires_grad and not base.requires_grad) else base


def _kind(tensor: torch.Tensor) -> Kind:
    """What a tensor is to autograd."""
    if not tensor.requires_grad:
        return "no gradient"
    base = base_of(tensor)
    if tensor.is_leaf:
        if base is not tensor:
            return "view without grad mode"
        return "leaf" if tensor._base is None else "leaf and view"
    several = base is not tensor and type(tensor.grad_fn).__name__.startswith(_SEVERAL)
    return "one of several" if several else "part of the graph"


class Counter(NamedTuple):
    """A tensor that shows the version of the memory that it lies on, and what that was when a call began."""

    tensor: torch.Tensor
    start: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Counter:
        """The counter of a tensor's memory, from now on. It keeps the memory, but not the tensor and its history."""
        return cls(tensor.detach(), tensor._version)

    @property
    def level(self) -> int:
        """How many writes were counted since the start."""
        return self.tensor._version - self.start

    def raise_to(self, level: int) -> None:
        """Counts writes until there were so many since the start."""
        for _ in range(level - self.level):
            torch.autograd.graph.increment_version(self.tensor)
