"""Going backward from what a call gave: which results get cotangents, what the caller does in between, and what comes of it.

Cotangents are small integers, as inputs are, so that gradients are integers too, and compared bit for bit. Where they grow beyond
what is exact in their dtype nothing can be said about the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from executor.program import Backward
from fuzz.runs import Passed, Run, attempt
from fuzz.state import State

PLAIN = Backward()
UNCLEAR = "a view that has no gradient"
# Integers are exact up to here, with room for a sum of some elements whose parts cancel.
_EXACT = {
    torch.float16: 2.0**8, torch.bfloat16: 2.0**5, torch.float32: 2.0**21, torch.float64: 2.0**50,
    torch.complex64: 2.0**21, torch.complex128: 2.0**50,
}  # fmt: skip


class Result(NamedTuple):
    """One tensor that a call returned or was given: its name, and its position among the outputs and then the inputs."""

    name: str
    position: int
    tensor: torch.Tensor


def followed(
    run: Run,
    plan: Backward | None,
    seconds: float = 0,
    state: State | None = None,
    *,
    like: Run | None = None,
    watched: bool = False,
) -> Run:
    """The run with what its caller saw of autograd and got by going backward; as it is where no input requires grad.

    The caller goes backward from what the plan says, or from what it did in another run, as far as that is part of the graph.
    Takes at most `seconds`, if not 0. With `watched`, notes whether all gradients on the way were exact.
    """
    if run.error is not None or not run.memory.leaves:
        return run
    plan = plan or PLAIN
    every = results(run)
    states = tuple((result.name, _state(run, result)) for result in every)
    chosen = like.passed.roots if like is not None and like.passed is not None else _wanted(run, plan)
    roots = [result for result in every if result.position in chosen and _in_graph(result.tensor)]
    watch = _Watch() if watched else None
    found = attempt(_go_back, (run, plan, roots, watch), seconds, state)
    passed = Passed(
        states,
        tuple(root.position for root in roots),
        found.value or (),
        found.error,
        watch is not None and watch.inexact,
    )
    return run._replace(passed=passed, changed=(*run.changed, *found.changed))


def results(run: Run) -> list[Result]:
    """The tensors among a run's outputs, and its inputs."""
    outputs = [tensor for tensor in run.leaves if isinstance(tensor, torch.Tensor)]
    names = [f"output {k}" if len(run.leaves) > 1 else "output" for k in range(len(outputs))]
    names += [f"input {k}" for k in range(len(run.memory.tensors))]
    found = zip(names, (*outputs, *run.memory.tensors), strict=True)
    return [Result(name, k, tensor) for k, (name, tensor) in enumerate(found)]


def _state(run: Run, result: Result) -> str:
    written = ", written" if result.position in _written(run) else ""
    return f"{state_of(result.tensor)}{written}"


def _written(run: Run) -> list[int]:
    """The positions of the inputs that the call wrote, as their version counters tell."""
    return [_first_input(run) + k for k in run.written]


def _first_input(run: Run) -> int:
    return len(results(run)) - len(run.memory.tensors)


def state_of(tensor: torch.Tensor) -> str:
    """Whether the tensor requires grad, and has a grad_fn, in words.

    `UNCLEAR` is a view of what requires grad that has no part in the graph, since it was made under `no_grad` or its base was
    written: torch calls it a leaf that requires grad.
    """
    if not tensor.requires_grad:
        return "no gradient"
    try:
        if tensor.grad_fn is not None:
            return "part of the graph"
    except RuntimeError:  # a view of several whose base was written
        return UNCLEAR
    return UNCLEAR if tensor._is_view() else "a leaf that requires grad"  # noqa: SLF001 (no public way)


def cotangent(plan: Backward, position: int, like: torch.Tensor) -> torch.Tensor:
    """Small integers that differ from one result to the next, shaped like it."""
    count = torch.arange(like.numel(), device=like.device)
    flat = (count * 3 + position + plan.seed) % 5 - 2
    return flat.reshape(like.shape).to(like.dtype)


def _wanted(run: Run, plan: Backward) -> list[int]:
    """The positions of the results from which the plan goes backward, where they are part of the graph."""
    wanted = (*range(_first_input(run)), *_written(run))
    return [position for position in wanted if position not in plan.left_out]


def _in_graph(tensor: torch.Tensor) -> bool:
    return state_of(tensor) == "part of the graph"


def _go_back(
    run: Run, plan: Backward, roots: list[Result], watch: _Watch | None
) -> tuple[tuple[str, torch.Tensor | None], ...]:
    if plan.written is not None:
        _write(run, plan.written)
    leaves, names = run.memory.leaves, leaf_names(run)
    passes = ([[root] for root in roots] if plan.apart else [roots] if roots else []) * plan.passes
    if watch is not None:
        watch.see([root.tensor for root in roots])
    found: list[tuple[str, torch.Tensor | None]] = []
    for number, group in enumerate(passes, 1):
        tensors = [root.tensor for root in group]
        given = [cotangent(plan, root.position, root.tensor) for root in group]
        retained = number < len(passes)
        if plan.functional:
            gradients = torch.autograd.grad(tensors, leaves, given, retain_graph=retained, allow_unused=True)
            found += [(f"{name} in pass {number}", gradient) for name, gradient in zip(names, gradients, strict=True)]
        else:
            torch.autograd.backward(tensors, given, retain_graph=retained)
    return tuple(found) or tuple((name, leaf.grad) for name, leaf in zip(names, leaves, strict=True))


def leaf_names(run: Run) -> list[str]:
    """What the gradient of each leaf is called: that of an input, or of a root behind inputs."""
    place = {id(tensor): k for k, tensor in reversed([*enumerate(run.memory.tensors)])}
    hidden = iter(range(len(run.memory.leaves)))
    return [
        f"gradient of input {place[id(leaf)]}" if id(leaf) in place else f"gradient of root {next(hidden)}"
        for leaf in run.memory.leaves
    ]


def _write(run: Run, position: int) -> None:
    """What the caller does between forward and backward: it adds 1 to a result."""
    every = results(run)
    with torch.no_grad():
        every[position % len(every)].tensor.add_(1)


class _Watch:
    """Looks at every gradient that goes from one node of the graph to the next."""

    def __init__(self) -> None:
        self._seen: list[torch.Tensor] = []

    def see(self, tensors: Sequence[torch.Tensor]) -> None:
        """Watches the nodes behind these tensors from now on."""
        for node in _nodes(tensors):
            node.register_prehook(self._keep)

    def _keep(self, gradients: Sequence[torch.Tensor | None]) -> None:
        self._seen += [gradient for gradient in gradients if gradient is not None]

    @property
    def inexact(self) -> bool:
        """Whether some gradient was larger than is exact in its dtype, or not a whole number."""
        largest = {dtype: [t for t in self._seen if t.dtype is dtype and t.numel()] for dtype in _EXACT}
        return any(_beyond(seen, _EXACT[dtype]) for dtype, seen in largest.items() if seen)


def _beyond(tensors: list[torch.Tensor], limit: float) -> bool:
    flat = torch.cat(
        [(torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).detach().flatten() for t in tensors]
    )
    return not bool(((flat.abs() <= limit) & (flat == flat.round())).all())


def _nodes(tensors: Sequence[torch.Tensor]) -> Iterator[Any]:
    seen: set[Any] = set()
    left: list[Any] = [tensor.grad_fn for tensor in tensors]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += [following for following, _ in node.next_functions]
        yield node
