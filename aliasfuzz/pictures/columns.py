"""Which cells of a storage are drawn one by one, and which are folded: rows stay readable for storages of any size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from executor.program import Value

READABLE = 64  # cells that are all drawn
_CLOSE = 24  # cells that are drawn one by one around what matters, in a storage of more

Cells = npt.NDArray[np.int64]


def places(value: Value, unit: int) -> tuple[Cells, Cells]:
    """The cells, of `unit` bytes, that a value touches, and with each the position of the element that lies there."""
    width = max(value.itemsize // unit, 1)
    first = value.footprint.offsets() * value.itemsize // unit
    cells = (first[:, None] + np.arange(width)).reshape(-1)
    return cells, np.repeat(np.arange(value.numel), width)


def columns(count: int, touched: Sequence[Cells], focus: int) -> list[tuple[int, int]]:
    """The ranges of a row of `count` cells, of which each of `touched` is a set that must stay recognisable.

    Up to `READABLE` cells: each alone. Of more, those around `focus` alone, and elsewhere neighbours that belong to the
    same sets together; if those are too many, all before and all after.
    """
    if count <= READABLE:
        return [(i, i + 1) for i in range(count)]
    low = max(min(focus - _CLOSE // 2, count - _CLOSE), 0)
    edges = {0, *range(low, low + _CLOSE + 1), count}
    for cells in touched:
        inside = np.zeros(count + 1, dtype=bool)
        inside[cells] = True
        edges.update((np.flatnonzero(np.diff(inside[:-1])) + 1).tolist())
    if len(edges) > READABLE:
        edges = {0, *range(low, low + _CLOSE + 1), count}
    return list(pairwise(sorted(edges)))


def marks(cells: Cells, positions: Cells, ranges: Sequence[tuple[int, int]]) -> tuple[str | None, ...]:
    """For each range what a band has there: an element's position, how many cells of a folded range, or None."""
    order = np.argsort(cells, kind="stable")
    cells, positions = cells[order], positions[order]
    return tuple(_mark(cells, positions, start, stop) for start, stop in ranges)


def _mark(cells: Cells, positions: Cells, start: int, stop: int) -> str | None:
    low, high = np.searchsorted(cells, (start, stop))
    if low == high:
        return None
    if stop > start + 1:
        inside = len(np.unique(cells[low:high]))
        return "all" if inside == stop - start else f"{inside} of {stop - start}"
    found = np.unique(positions[low:high]).tolist()
    return ",".join(map(str, found)) if len(found) < 3 else f"{len(found)}x"
