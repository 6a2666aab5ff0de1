"""What a compiled function does under autograd, around the programs that compute: views, histories, version counters.

The forward program writes memory and computes new storages, below autograd. Outputs that are views are made again from
inputs, and from what the program returned, by the same operators as in the original; inputs that a write gave another
history get it in one step. Everything happens in the order of the original, because what autograd thinks of a view
depends on whether its base was written before or after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction

from executor.args import refs, to_python
from executor.autograd.relations import Counter, FromSource, Rebase
from executor.interpreter import step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.args import Arg
    from executor.autograd.joint import Joint
    from executor.program import Call


class View(NamedTuple):
    """Makes the results of a call, all on the storage of its operand, which was written `level` times before it."""

    storage: int
    level: int
    call: Call


class History(NamedTuple):
    """Gives a base of inputs the history of a target."""

    storage: int
    level: int
    base: int
    target: int


class Own(NamedTuple):
    """Gives a view the history of a target, of which its base knows nothing: a custom function returned it."""

    storage: int
    level: int
    value: int
    target: int


class Skeleton(NamedTuple):
    """How the outputs of a traced function, and the histories of its inputs, come about.

    `anchors` are the values that the forward program has to return because outputs are views of them, or are them.
    `targets` are what gradients come from: for each an anchor, or the shape, dtype and device of a base or view that gets
    its history. `levels[storage]` is how many writes the inputs and anchors there have seen in the end.
    """

    anchors: tuple[int, ...]
    targets: tuple[int | Like, ...]
    events: tuple[View | History | Own, ...]
    levels: dict[int, int]
    outputs: Arg

    def replay(
        self,
        env: dict[int, Any],
        bases: Sequence[torch.Tensor],
        targets: Sequence[torch.Tensor],
        counters: dict[int, Counter],
    ) -> Any:
        """The outputs, from inputs and anchors in `env`; bases of inputs get their histories."""
        for event in self.events:
            counters[event.storage].raise_to(event.level)
            if isinstance(event, View):
                step(event.call, env)
            elif isinstance(event, History):
                with torch.enable_grad():
                    Rebase.apply(bases[event.base], targets[event.target])  # type: ignore[no-untyped-call]
            else:
                env[event.value] = Attached.apply(env[event.value], targets[event.target])  # type: ignore[no-untyped-call]
        for storage, level in self.levels.items():
            counters[storage].raise_to(level)
        return to_python(self.outputs, env)


class Like(NamedTuple):
    """What a tensor without contents has to have in common with another one."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def carrier(self) -> torch.Tensor:
        """A tensor that only carries gradients: one element, expanded."""
        return torch.zeros((), dtype=self.dtype, device=self.device).expand(self.shape).detach()


def skeleton(joint: Joint) -> tuple[Skeleton, list[torch.Tensor]]:
    """The skeleton of a function that was run, and the tensors of the trace that are its targets."""
    build = _Build(joint)
    for v in refs(joint.outputs):
        build.place(v)
    for k in sorted(joint.changes):
        build.history(k)
    events = tuple(event for _, event in sorted(build.events, key=lambda pair: pair[0]))
    made = Skeleton(tuple(build.anchors), tuple(build.targets), events, build.levels(), joint.outputs)
    return made, build.tensors


class _Build:
    def __init__(self, joint: Joint) -> None:
        self._joint, self._recorder = joint, joint.recorder
        self._inputs = len(joint.copies.tensors)
        self._placed: set[int] = set(range(self._inputs))
        self.anchors: list[int] = []
        self.targets: list[int | Like] = []
        self.tensors: list[torch.Tensor] = []
        self.events: list[tuple[int, View | History | Own]] = []

    def place(self, v: int) -> None:
        """Notes how a value comes about, and the values that it is a view of."""
        if v in self._placed:
            return
        self._placed.add(v)
        tensor, calls = self._recorder.tensors[v], self._recorder.calls
        i = self._joint.maker(v)
        if i is None or not self._joint.is_view(i) or _is_base(tensor):
            self.anchors.append(v)
            if tensor.requires_grad:
                self._target(v, tensor)
            return
        self.place(calls[i].operands[0])
        self._placed.update(calls[i].results)
        storage = self._recorder.values[v].storage
        level = self._joint.levels[i] - self._start(storage)
        self.events.append((i, View(storage, level, calls[i])))
        for result in calls[i].results:
            made = self._recorder.tensors[result]
            if isinstance(_history_of(made), BackwardCFunction):
                self.events.append((i, Own(storage, level, result, self._target(like(made), made))))

    def history(self, base: int) -> None:
        """Notes that a base of inputs gets another history, each time: views that are made in between go by it."""
        tensor, value = self._joint.copies.bases[base], self._joint.template.blueprint.base_of.index(base)
        storage, target = self._recorder.values[value].storage, self._target(like(tensor), tensor)
        for call, version in self._joint.changes[base]:
            level = version - 1 - self._start(storage)  # one more write is counted with the history
            self.events.append((call, History(storage, level, base, target)))

    def levels(self) -> dict[int, int]:
        """For each storage of an input or an anchor how many writes its tensors have seen."""
        found: dict[int, int] = {}
        for v in (*range(self._inputs), *self.anchors):
            storage = self._recorder.values[v].storage
            level = self._recorder.tensors[v]._version - self._start(storage)
            found[storage] = max(level, found.get(storage, 0))
        return found

    def _target(self, what: int | Like, tensor: torch.Tensor) -> int:
        self.targets.append(what)
        self.tensors.append(tensor)
        return len(self.targets) - 1

    def _start(self, storage: int) -> int:
        """The version that the storage's memory had when the function began."""
        starts = zip(self._recorder.values, self._joint.entry, strict=False)
        return next((version for value, version in starts if value.storage == storage), 0)


def like(tensor: torch.Tensor) -> Like:
    """What a carrier of this tensor's gradient has in common with it."""
    return Like(tensor.shape, tensor.dtype, tensor.device)


class Attached(FromSource):
    """A view whose gradient is another tensor's."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, view: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """The view."""
        del source
        ctx.set_materialize_grads(False)
        return view


def _is_base(tensor: torch.Tensor) -> bool:
    """Whether autograd takes the tensor for a computed one, also where it lies on the memory of another."""
    return tensor.requires_grad and tensor._base is None and not tensor.is_leaf


def _history_of(tensor: torch.Tensor) -> object:
    try:
        return tensor.grad_fn
    except RuntimeError:  # a view that has no history any more, since its base was written
        return None
