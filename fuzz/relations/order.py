"""What has no order may come in another one: statements that do not touch each other, and parameters."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from executor.args import refs
from executor.program import Call, Program
from executor.schema import accesses
from fuzz.relations.base import Relation, recorded
from fuzz.rewriting import rerecord


class SwappedStatements(Relation):
    """Two neighbouring calls change places: neither takes what the other makes, and what one writes the other never touches."""

    name = "swapped-statements"

    def places(self, program: Program) -> Iterator[int]:
        """Positions of the first of two such calls."""
        pairs = zip(program.calls, program.calls[1:], strict=False)
        yield from (k for k, (one, other) in enumerate(pairs) if _independent(program, one, other))

    def at(self, program: Program, place: int, draw: random.Random) -> Program | None:  # noqa: ARG002 - no choice is left
        """See `Relation.at`."""
        calls = list(program.calls)
        calls[place : place + 2] = reversed(calls[place : place + 2])
        return recorded(program, calls)


def _independent(program: Program, one: Call, other: Call) -> bool:
    if not set(one.results).difference(one.operands).isdisjoint(other.operands):
        return False
    first, second = accesses(program, one), accesses(program, other)
    meetings = [(a, b) for a in first.writes for b in (*second.reads, *second.writes)]
    meetings += [(a, b) for a in first.reads for b in second.writes]
    return not any(program.values[a].meets(program.values[b]) for a, b in meetings)


class PermutedParameters(Relation):
    """The parameters come in another order."""

    name = "permuted-parameters"

    def places(self, program: Program) -> Iterator[int]:
        """The number of parameters, if it is more than one."""
        if len(program.params) > 1:
            yield len(program.params)

    def at(self, program: Program, place: int, draw: random.Random) -> Program | None:
        """See `Relation.at`."""
        order = list(range(place))
        while order == sorted(order):
            draw.shuffle(order)
        params = tuple(program.params[k] for k in order)
        inputs = [i for param in params for i in refs(param.value)]
        moved = msgspec.structs.replace(program, params=params, twins=_twins(program, inputs))
        return rerecord(moved, moved.entry)


def _twins(program: Program, inputs: list[int]) -> tuple[tuple[int, int], ...]:
    """The pairs of inputs that are one object, in the new order: each with the first that it equals."""
    first = {program.inputs[later]: program.inputs[earlier] for later, earlier in program.twins}
    seen: dict[int, int] = {}
    pairs = []
    for position, index in enumerate(inputs):
        earlier = seen.setdefault(first.get(index, index), position)
        if earlier != position:
            pairs.append((position, earlier))
    return tuple(pairs)
