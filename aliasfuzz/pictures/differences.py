"""Where the target's memory and outputs differ from eager's, as cells of their storages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from aliasfuzz.pictures.cells import differing, elements, text
from aliasfuzz.pictures.columns import places
from aliasfuzz.pictures.sides import Output, Side
from executor.program import itemsize

Sets = dict[str, set[int]]
Cell = tuple[str, int]


class Difference(NamedTuple):
    """The cells, by storage, in which eager is right and the target wrong.

    `first` is the storage and cell of the first in eager, and `there` those of the element that the target has instead;
    `where` says what that is, and `expected` and `actual` are what the two hold.
    """

    right: Sets
    wrong: Sets
    first: Cell
    there: Cell
    where: str
    expected: str
    actual: str

    def cells(self, name: str) -> set[int]:
        """The cells of a storage that differ on either side."""
        return self.right.get(name, set()) | self.wrong.get(name, set())


def difference(
    eager: Side, target: Side, inputs: Collection[str], dtypes: Mapping[str, str], *, exact: bool
) -> Difference | None:
    """Outputs are compared in order, then the storages `inputs`; None if all that can be compared is equal.

    `dtypes` are those of the cells of eager's storages.
    """
    right: dict[str, set[int]] = defaultdict(set)
    wrong: dict[str, set[int]] = defaultdict(set)
    first: list[tuple[Cell, Cell, str, str, str]] = []
    for one, other, positions in _outputs(eager, target, exact=exact):
        here, there = _cells(one, positions, dtypes), _cells(other, positions, dtypes)
        right[one.storage].update(here)
        if other.storage not in inputs or (one.storage, here) == (other.storage, there):
            wrong[other.storage].update(there)  # else it is not the cell that is wrong, but where the output lies
        expected, actual = (output.tensor.reshape(-1)[positions[0]] for output in (one, other))
        where = f"output {one.number}" if len(eager.outputs) > 1 else "output"
        first.append(((one.storage, here[0]), (other.storage, there[0]), where, text(expected), text(actual)))
    for name in inputs:
        expected, actual = (elements(side.contents[name], dtypes[name]) for side in (eager, target))
        here = differing(expected, actual, exact=exact)
        if here:
            right[name].update(here)
            wrong[name].update(here)
            first.append(((name, here[0]), (name, here[0]), "memory", text(expected[here[0]]), text(actual[here[0]])))
    return Difference(right, wrong, *first[0]) if first else None


def _outputs(eager: Side, target: Side, *, exact: bool) -> Iterator[tuple[Output, Output, list[int]]]:
    """The outputs that can be compared, and the positions of the elements that differ."""
    others = {output.number: output for output in target.outputs}
    for one in eager.outputs:
        other = others.get(one.number)
        if other is None or (one.value.dtype, one.value.shape) != (other.value.dtype, other.value.shape):
            continue
        positions = differing(one.tensor, other.tensor, exact=exact)
        if positions:
            yield one, other, positions


def _cells(output: Output, positions: list[int], dtypes: Mapping[str, str]) -> list[int]:
    """The cells in which elements of an output lie."""
    cells, found = places(output.value, itemsize(dtypes.get(output.storage, output.value.dtype)))
    wanted = set(positions)
    return [int(cell) for cell, position in zip(cells, found, strict=True) if int(position) in wanted]
