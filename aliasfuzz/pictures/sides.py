"""What lay in memory when: in eager after each statement, and on either side, eager's and the target's, at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

import msgspec
import torch

from aliasfuzz.pictures.cells import Bytes
from aliasfuzz.pictures.statements import Script
from executor.interpreter import step
from executor.memory import Memory, literal_tensor, storage_tensor, value_of
from executor.program import Value
from executor.targets import Target
from fuzz.check import TIME_LIMIT
from fuzz.runs import Run, attempt, run
from fuzz.subjects import Subject

Contents = dict[int, Bytes]


def moments(script: Script, held: Memory) -> Iterator[Contents]:
    """The bytes of all storages that there are, by their number in the program: at first, then after each statement."""
    program, env = script.program, list[Any]([None] * len(script.program.values))
    for index, tensor in zip(program.inputs, held.tensors, strict=True):
        env[index] = tensor
    for index in program.constants:
        env[index] = literal_tensor(program.storages[program.values[index].storage], program.values[index])
    # A flat tensor on each storage: a tensor may leave its own for another.
    homes: dict[int, torch.Tensor] = {}
    _enter(homes, program.values, env)
    yield {home: whole(tensor) for home, tensor in homes.items()}
    for statement in script.statements:
        for k in statement.calls:
            attempt(step, (program.calls[k], env))
            _enter(homes, program.values, env)
        yield {home: whole(tensor) for home, tensor in homes.items()}


def _enter(homes: dict[int, torch.Tensor], values: tuple[Value, ...], env: list[Any]) -> None:
    for value, tensor in zip(values, env, strict=True):
        if tensor is not None and value.storage not in homes:
            homes[value.storage] = storage_tensor(tensor)


def whole(tensor: torch.Tensor) -> Bytes:
    """A copy of the bytes of the storage on which a tensor lies."""
    storage = tensor.untyped_storage()
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return raw.set_(storage, 0, (storage.nbytes(),), (1,)).cpu().numpy().copy()


def target_run(target: Target, subject: Subject, call: int) -> Run:
    """What this call of the compiled function leaves, counting from 0, after all those before it."""
    limit = TIME_LIMIT if target.unsafe else 0
    compiled = attempt(target.compile, (subject.fn, tuple(subject.ways[0].build()[1])), limit)
    for way in subject.ways[:call]:
        run(compiled.value, *way.build(), limit)
    return run(compiled.value, *subject.ways[call].build(), limit)


class Output(NamedTuple):
    """An output tensor: its number among them, and how it lies on the storage of this name."""

    number: int
    tensor: torch.Tensor
    value: Value
    storage: str


class Side(NamedTuple):
    """What a run left: the bytes of its storages by their names, and its output tensors."""

    contents: dict[str, Bytes]
    outputs: tuple[Output, ...]


def side(left: Run, inputs: Mapping[int, str], fresh: Mapping[int, str]) -> Side:
    """What a run left, with names for the storages of its memory, and for those that its outputs brought along.

    `fresh` has the name of the storage on which an output lies in eager, by the output's number; of others nothing is kept.
    """
    contents = {name: left.memory.contents(k).copy() for k, name in inputs.items()}
    outputs: list[Output] = []
    brought: dict[int, str] = {}
    for k, leaf in enumerate(leaf for leaf in left.leaves if isinstance(leaf, torch.Tensor)):
        if k not in fresh or not leaf.numel():
            continue
        home, first = left.memory.locate(leaf), leaf.untyped_storage().data_ptr()
        if home is not None:
            start = (leaf.data_ptr() - left.memory.bases[home].data_ptr()) // leaf.itemsize
            outputs.append(Output(k, leaf, msgspec.structs.replace(value_of(leaf, home), offset=start), inputs[home]))
            continue
        if first not in brought:
            taken = {*inputs.values(), *brought.values()}
            brought[first] = _unlike(taken) if fresh[k] in taken else fresh[k]
            contents[brought[first]] = whole(leaf)
        outputs.append(Output(k, leaf, value_of(leaf, -1), brought[first]))
    return Side(contents, tuple(outputs))


def _unlike(taken: set[str]) -> str:
    """A name for a storage that is in none of eager's places."""
    return next(name for k in count(1) if (name := f"new{k}") not in taken)
