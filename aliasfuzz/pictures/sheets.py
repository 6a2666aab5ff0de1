"""`Sheet`: how one storage is drawn, in every step alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from aliasfuzz.pictures.cells import Bytes, dtype_of, elements, text
from aliasfuzz.pictures.columns import columns, marks, places
from aliasfuzz.pictures.model import Access, Band, Column, Row, State
from executor.program import Value, itemsize


class Sheet(NamedTuple):
    """The dtype in which a storage's cells are shown, and which of them stand alone."""

    name: str
    dtype: str
    about: str
    ranges: Sequence[tuple[int, int]]

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.ranges[-1][1] if self.ranges else 0

    def band(self, name: str, access: Access, colour: int, value: Value, *, astray: bool = False) -> Band:
        """The band of a value that lies on the storage."""
        note = str(value.shape) + (f" {value.dtype}" if value.dtype != self.dtype else "")
        return Band(name, access, colour, marks(*places(value, itemsize(self.dtype)), self.ranges), note, astray)

    def row(
        self,
        data: Bytes,
        bands: Iterable[Band],
        before: Bytes | None = None,
        marked: tuple[State, Collection[int]] = ("plain", ()),
    ) -> Row:
        """The storage as it is now. Cells are changed from `before`, or are among those that are `marked`."""
        held, size = elements(data, self.dtype), itemsize(self.dtype)

        def state(start: int, stop: int) -> State:
            if any(start <= cell < stop for cell in marked[1]):
                return marked[0]
            part = slice(start * size, stop * size)
            return "plain" if before is None or np.array_equal(before[part], data[part]) else "changed"

        drawn = tuple(
            Column(start, stop, text(held[start]) if stop == start + 1 else "…", state(start, stop))
            for start, stop in self.ranges
        )
        return Row(self.name, self.about, drawn, tuple(bands))

    def introduced(self, data: Bytes, bands: Iterable[Band]) -> Row:
        """The storage when it is seen first."""
        return msgspec.structs.replace(self.row(data, bands), introduced=True)

    def column(self, cell: int) -> int:
        """The column in which a cell is drawn."""
        return next(k for k, (_, stop) in enumerate(self.ranges) if cell < stop)


def sheet(
    name: str, nbytes: int, values: Sequence[Value], filled: str | None = None, focus: Collection[int] = ()
) -> Sheet:
    """The sheet of a storage on which these values lie. Cells in `focus` are recognisable, the first of them above all."""
    dtype = dtype_of(values, filled)
    size = itemsize(dtype)
    count = nbytes // size
    touched = [places(value, size)[0] for value in values]
    wanted = np.array(sorted(focus), dtype=np.int64)
    first = next((int(cells.min()) for cells in (wanted, *touched) if len(cells)), 0)
    several = f", by {size} bytes" if len({value.dtype for value in values}) > 1 else ""
    about = f"{dtype}[{count}]{several}" if count else "no elements"
    return Sheet(name, dtype, about, columns(count, [*touched, wanted], first))
