"""Whether a program and its rewriting did the same: what corresponds under a relation, compared run against run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from executor.args import refs
from executor.program import Program
from fuzz.oracle import Mismatch, brief, is_dense, kind_of_leaf, same_objects, same_values, steps
from fuzz.relations.base import Relation
from fuzz.runs import Run

SYMPTOM = "relation"

Near = Callable[[int, torch.Tensor, torch.Tensor], bool]
"""Whether two tensors that correspond are near enough: output k of the program, or input k - (its number of outputs)."""


def disagreements(
    relation: Relation, program: Program, rewriting: Program, first: Run, second: Run, near: Near | None = None
) -> list[Mismatch]:
    """The differences between a run of the program and one of its rewriting, in what corresponds.

    That is: the exception's type, each output, what each input holds, which of these tensors share memory (if the relation
    keeps that), and which outputs are the object of an input or of an earlier output. Values are compared bit for bit,
    or, if they are floating-point numbers, by `near`.
    """
    return [
        Mismatch(SYMPTOM, *found, relation.name)
        for found in _differences(relation, program, rewriting, first, second, near)
    ]


Found = tuple[str, str, str]  # where, what the program gave, what its rewriting gave


def _differences(
    relation: Relation, program: Program, rewriting: Program, first: Run, second: Run, near: Near | None
) -> Iterator[Found]:
    if type(first.error) is not type(second.error):
        yield "the run", _ending(first), _ending(second)
    if first.error is not None or second.error is not None:
        return
    count = len(first.leaves)
    order = positions(program, rewriting)
    inputs = first.memory.tensors
    others = [second.memory.tensors[k] for k in order]
    leaves = second.leaves[:count]
    kinds, other_kinds = ([kind_of_leaf(leaf) for leaf in some] for some in (first.leaves, leaves))
    if kinds != other_kinds:
        yield "outputs", str(kinds), str(other_kinds)
        return
    names = [f"output {k}" for k in range(count)] + [f"input {k}" for k in range(len(inputs))]
    pairs = zip(names, (*first.leaves, *inputs), (*leaves, *others), strict=True)
    for k, (name, one, other) in enumerate(pairs):
        yield from _of_pair(k, name, one, other, near)
    if relation.aliases:
        yield from _unlike(names, _places(first, inputs, count), _places(second, others, count))
    yield from _unlike(names, _objects(first, inputs, count), _objects(second, others, count))


def positions(program: Program, rewriting: Program) -> list[int]:
    """For each input of the program the position of the one that it corresponds to: parameters are known by their names."""
    place: dict[str, list[int]] = {}
    at = 0
    for param in rewriting.params:
        size = len(list(refs(param.value)))
        place[param.name] = list(range(at, at + size))
        at += size
    return [k for param in program.params for k in place[param.name]]


def _ending(run: Run) -> str:
    return brief(run.error) if run.error is not None else "no exception"


def _of_pair(k: int, name: str, one: Any, other: Any, near: Near | None) -> Iterator[Found]:
    if not isinstance(one, torch.Tensor):
        if not same_objects(one, other):
            yield name, repr(one), repr(other)
    elif is_dense(one):
        looks = [f"{tensor.dtype} {tuple(tensor.shape)}, strides {steps(tensor)}" for tensor in (one, other)]
        if looks[0] != looks[1]:
            yield name, looks[0], looks[1]
        elif not same_values(one, other) and not (near is not None and _inexact(one) and near(k, one, other)):
            yield name, str(one.tolist()), str(other.tolist())


def _inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _unlike(names: list[str], ones: list[str], others: list[str]) -> Iterator[Found]:
    yield from ((name, a, b) for name, a, b in zip(names, ones, others, strict=True) if a != b)


def _places(run: Run, inputs: list[torch.Tensor], count: int) -> list[str]:
    """For each output, then each input, the first tensor of the inputs and outputs on its storage, and how far from that it lies."""
    first: dict[tuple[str, int], tuple[str, int]] = {}

    def place(name: str, leaf: Any) -> str:
        if not isinstance(leaf, torch.Tensor) or not is_dense(leaf) or not leaf.numel():
            return "no memory"
        home = run.memory.locate(leaf)
        key = ("own", leaf.untyped_storage().data_ptr()) if home is None else ("input", home)
        owner, start = first.setdefault(key, (name, leaf.data_ptr()))
        return f"{leaf.data_ptr() - start} bytes behind {owner}"

    ends = [place(f"input {k}", tensor) for k, tensor in enumerate(inputs)]
    return [place(f"output {k}", leaf) for k, leaf in enumerate(run.leaves[:count])] + ends


def _objects(run: Run, inputs: list[torch.Tensor], count: int) -> list[str]:
    """For each output, then each input, the first of the inputs and outputs that is the same object."""
    first: dict[int, str] = {}
    ends = [first.setdefault(id(tensor), f"the object of input {k}") for k, tensor in enumerate(inputs)]
    return [first.setdefault(id(leaf), f"the object of output {k}") if isinstance(leaf, torch.Tensor) else "no tensor"
            for k, leaf in enumerate(run.leaves[:count])] + ends  # fmt: skip
