"""One call of a compiled function whose inputs require grad, and the node of the graph that stands for it.

The node is handed the bases that require grad, so that gradients find their way, and returns what gradients come from:
outputs and, for each input that gets another history, a carrier without contents. All else happens around it.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import torch

from executor.autograd.joint import changed
from executor.autograd.relations import Counter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.autograd.joint import Joint
    from executor.autograd.pair import Backward, Pair
    from executor.autograd.relations import Relations
    from executor.program import Value

_TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


# Not public, so it may be missing: then nothing is let go of after a backward pass.
_KEEPS = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)  # noqa: SLF001 (there is no public way)


def run(pair: Pair, relations: Relations, joint: Joint | None = None) -> Any:
    """What the function returns. `joint` is its trace, if it was traced for this call."""
    call = _Call(pair, relations, joint)
    targets = _Node.apply(call, *relations.roots) if pair.skeleton.targets else call.forward()  # type: ignore[no-untyped-call]
    env = dict(enumerate(relations.tensors))
    env.update(zip(pair.skeleton.anchors, call.anchors, strict=True))
    env.update({t: made for t, made in zip(pair.skeleton.targets, targets, strict=True) if isinstance(t, int)})
    outputs = pair.skeleton.replay(env, relations.bases, targets, call.counters)
    call.settle()
    return outputs


class _Call:
    """What one call computed, and keeps for going backward."""

    def __init__(self, pair: Pair, relations: Relations, joint: Joint | None) -> None:
        self._pair, self._joint = pair, joint
        self._inputs = [tensor.data for tensor in relations.tensors]  # with version counters of their own
        self.counters: dict[int, Counter] = {}
        for storage, tensor in zip(pair.homes, relations.tensors, strict=True):
            if storage not in self.counters:
                self.counters[storage] = Counter.of(tensor)
        self.anchors: list[torch.Tensor] = []
        self._saved: list[torch.Tensor] = []
        self._levels: dict[int, int] = {}
        self._freed: frozenset[int] = frozenset()

    def forward(self) -> tuple[torch.Tensor, ...]:
        """Runs the forward program; the targets."""
        pair = self._pair
        with torch.enable_grad():  # which some operators ask for; nothing here requires grad
            made = pair.forward.run(self._inputs)
        self._inputs = []
        count = len(pair.skeleton.anchors)
        self.anchors, self._saved = [tensor.data for tensor in made[:count]], list(made[count:])
        for storage, anchor in zip(pair.anchor_homes, self.anchors, strict=True):
            self.counters.setdefault(storage, Counter.of(anchor))
        place = dict(zip(pair.skeleton.anchors, self.anchors, strict=True))
        return tuple([place[t] if isinstance(t, int) else t.carrier() for t in pair.skeleton.targets])

    def settle(self) -> None:
        """Notes the versions that the tensors have when the caller gets them, and lets go of what only the way there took."""
        self._levels = {storage: counter.level for storage, counter in self.counters.items()}
        self.anchors = []

    def backward(self, cotangents: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
        """The gradients of the roots. Raises what autograd raises."""
        found = self._pair.backward(tuple([t is not None for t in cotangents]), self._joint)
        self._check(found)
        defined = [t for t in cotangents if t is not None]
        given = [laid_out(t, value) for t, value in zip(defined, found.layouts, strict=True)]
        assert found.compilation is not None, "what does not raise was compiled"
        self._pair.last = found.compilation
        made = found.compilation.run([*(self._saved[k] for k in found.kept), *given])
        if not keeps_graph():
            self._free(found.unpacked)
        return tuple([None if place is None else made[place] for place in found.gradients])

    def _check(self, found: Backward) -> None:
        """Raises if autograd would: what it kept is gone, or was written."""
        if found.unpacked & self._freed:
            raise RuntimeError(_TWICE)
        for storage in found.storages:
            counter = self.counters.get(storage)
            if counter is not None and counter.level != self._levels[storage]:
                raise RuntimeError(changed(counter.tensor, counter.start + self._levels[storage]))
        if found.error is not None:
            raise copy(found.error)

    def _free(self, numbers: frozenset[int]) -> None:
        self._freed |= numbers


class _Node(torch.autograd.Function):
    """Stands in the user's graph for all that a compiled function computes."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *roots: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `_Call.forward`."""
        del roots
        ctx.call = call
        ctx.set_materialize_grads(False)
        return call.forward()

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """See `_Call.backward`."""
        with torch.no_grad():
            gradients = ctx.call.backward(cotangents)
        if torch.is_grad_enabled():  # the caller wants derivatives of the derivatives
            gradients = tuple([None if t is None else _Once.apply(t, _leaf()) for t in gradients])  # type: ignore[no-untyped-call]
        return None, *gradients


class _Once(torch.autograd.Function):
    """A gradient that has no derivative: going backward through it raises."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
        """The gradient."""
        del ctx, leaf
        return gradient

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Raises `RuntimeError`."""
        del ctx, grads
        raise RuntimeError(
            "trying to differentiate twice a function that aliasfuzz.jit compiled, which is not supported: call the "
            "function that was compiled instead"
        )


def _leaf() -> torch.Tensor:
    return torch.zeros((), requires_grad=True)


def laid_out(tensor: torch.Tensor, value: Value) -> torch.Tensor:
    """The tensor as the value says, copied if it lies otherwise."""
    lies = (tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg())
    if lies == (value.strides, value.offset, value.conj, value.neg):
        return tensor
    return torch.empty_strided(value.shape, value.strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def keeps_graph() -> bool:
    """Whether the backward pass that runs now was asked to retain the graph."""
    return _KEEPS is None or bool(_KEEPS())
