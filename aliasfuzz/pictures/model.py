"""What a memory map shows, as data: steps in time, in each the storages concerned as rows of cells, with bands over them.

A cell is one element, or, where tensors of several dtypes share a storage, as many bytes as the smallest of them has.
"""

from __future__ import annotations

from typing import Literal

import msgspec

# "lies": an input, or a tensor returned; "views": a new view, nothing read; "updates": read, then written.
Access = Literal["lies", "views", "reads", "writes", "updates"]
# "right" and "wrong" are the two sides of a difference between eager and the target.
State = Literal["plain", "changed", "right", "wrong"]


class Pointer(msgspec.Struct, frozen=True):
    """What is to be said of one column, the one in which the first wrong element lies."""

    column: int
    text: str


class Column(msgspec.Struct, frozen=True):
    """The cells from `start` to `stop` of a storage as they are drawn: one, or several that are folded into one.

    `text` is what the cell holds.
    """

    start: int
    stop: int
    text: str
    state: State = "plain"

    @property
    def place(self) -> str:
        """The cell's number, or the first and the last."""
        return str(self.start) if self.stop == self.start + 1 else f"{self.start}..{self.stop - 1}"


class Band(msgspec.Struct, frozen=True):
    """A tensor on a row of cells. Where it touches a column, `marks` has the row-major positions of its elements there.

    Where it does not, that mark is None. Bands of one `colour` are the same tensor. It is `astray` if it lies elsewhere
    than in eager.
    """

    name: str
    access: Access
    colour: int
    marks: tuple[str | None, ...]
    note: str = ""
    astray: bool = False

    @property
    def label(self) -> str:
        """The tensor's name, and its shape where it is introduced, or how it is accessed."""
        words = {"lies": self.note, "views": f"{self.note} view", "reads": "read", "writes": "written"}
        return f"{self.name} {words.get(self.access, 'read, written')}{' ✗ elsewhere' if self.astray else ''}"

    @property
    def extent(self) -> range:
        """The columns from the first that it touches to the last."""
        touched = [k for k, mark in enumerate(self.marks) if mark is not None]
        return range(touched[0], touched[-1] + 1) if touched else range(0)


class Row(msgspec.Struct, frozen=True):
    """A storage at one moment. `side` says whose it is, once eager and the target are told apart.

    One that is `introduced` is shown with all its cells; else lines of cells in which nothing happens are left out.
    """

    storage: str
    about: str
    columns: tuple[Column, ...]
    bands: tuple[Band, ...]
    side: str = ""
    pointer: Pointer | None = None
    introduced: bool = False

    @property
    def label(self) -> str:
        """The storage's name, and what it is made of, or whose it is."""
        return f"{self.storage} {self.side or self.about}"

    def parts(self, size: int) -> list[range]:
        """The columns that are shown, in lines of at most `size`; at least one."""
        lines = [range(start, min(start + size, len(self.columns))) for start in range(0, len(self.columns), size)]
        return [line for line in lines if self._telling(line)] or lines[:1]

    def _telling(self, line: range) -> bool:
        touched = self.introduced or any(band.marks[k] is not None for band in self.bands for k in line)
        return touched or any(self.columns[k].state != "plain" for k in line)


class Step(msgspec.Struct, frozen=True):
    """A moment: the source text of the statement, the storages that it concerns, and what else is to be said of it.

    `faults` are what is wrong there.
    """

    text: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class Wrong(msgspec.Struct, frozen=True):
    """The first wrong cell: where it is, what eager and the target have, and which statement writes it last."""

    storage: str
    cell: int
    where: str
    expected: str
    actual: str
    writer: str | None

    def __str__(self) -> str:
        who = f"last written by {self.writer}" if self.writer else "no statement writes it"
        return f"{self.storage}[{self.cell}], {self.where}: expected {self.expected}, got {self.actual}; {who}"


class Picture(msgspec.Struct, frozen=True):
    """A memory map. `verdict` says in a few lines what the target did; `wrong` is None where no cell is known to be."""

    target: str
    steps: tuple[Step, ...]
    verdict: str
    wrong: Wrong | None = None
