"""A memory map as SVG: one file, no fonts or scripts from elsewhere, in the reader's light or dark colours."""

from __future__ import annotations

import textwrap
from html import escape
from itertools import groupby

from aliasfuzz.pictures.model import Band, Column, Picture, Pointer, Row, State, Step
from aliasfuzz.pictures.style import TENSORS, css

_CHAR = 7.25  # the width of a character of 12px
_CELL, _BAND, _GAP = 24, 18, 5  # heights
_CODE = 34  # characters of a statement in a line
_WORDS = 110  # characters of what is said beneath
_ROW_WIDTH = 860  # of cells, at most
_SIGNS: dict[State, str] = {"plain": "", "changed": "", "right": "✓", "wrong": "✗"}


def svg(picture: Picture, title: str = "") -> str:
    """The picture as the text of an SVG file."""
    return _Page(picture, title).text()


class _Page:
    """Elements so far, and how far down they go."""

    def __init__(self, picture: Picture, title: str) -> None:
        self.picture, self.title = picture, title
        rows = [row for step in picture.steps for row in step.rows]
        said = (
            text
            for step in picture.steps
            for text in (step.text, *step.notes, *(f"✗ {fault}" for fault in step.faults))
        )
        lines = [line for text in said for line in _wrapped(text)]
        labels = [row.label for row in rows] + [f"  {band.label}" for row in rows for band in row.bands]
        self.wide = {
            name: max(_wide(row) for row in rows if row.storage == name) for name in {row.storage for row in rows}
        }
        self.left = 30 + max(map(len, lines)) * _CHAR + 16
        self.cells = self.left + max(map(len, labels), default=0) * _CHAR + 10
        self.y, self.right = 14.0, self.cells + 360
        self.parts: list[str] = []

    def text(self) -> str:
        """The file."""
        if self.title:
            self.write(14, self.y + 8, self.title, "bold")
            self.y += 24
        top = self.y
        for step in self.picture.steps:
            self.step(step)
        axis = f'<line class="axis" x1="18" x2="18" y1="{top + 12:g}" y2="{self.y - 24:g}"/>'
        self.parts.insert(0, axis)
        self.legend()
        size = f'width="{self.right:g}" height="{self.y:g}"'
        head = f'<svg class="memory-map" xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.right:g} {self.y:g}" role="img">'
        about = escape(f"{self.title}: {self.picture.verdict}" if self.title else self.picture.verdict)
        paper = f'<rect class="paper" width="{self.right:g}" height="{self.y:g}"/>'
        return "\n".join([head, f"<title>{about}</title>", f"<style>{css()}</style>", paper, *self.parts, "</svg>\n"])

    def write(self, x: float, y: float, text: str, *classes: str) -> None:
        """A line of text whose baseline is at y."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{" ".join(classes)}">{escape(text)}</text>')
        if "mid" not in classes:
            self.right = max(self.right, x + len(text) * _CHAR + 12)

    def box(self, place: tuple[float, float, float, float], *classes: str, more: str = "") -> None:
        """A rectangle: x, y, width, height."""
        x, y, width, height = place
        self.parts.append(
            f'<rect class="{" ".join(classes)}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{more}/>'
        )

    def step(self, step: Step) -> None:
        """A statement, and beside it the storages."""
        self.parts.append(f'<line class="rule" x1="30" x2="100%" y1="{self.y:g}" y2="{self.y:g}"/>')
        top = self.y
        self.parts.append(f'<circle class="{"bad" if step.faults else "dot"}" cx="18" cy="{top + 25:g}" r="5"/>')
        said = top + 29
        for kind, lines in (
            ("bold", [step.text]),
            ("faint", step.notes),
            ("bad", [f"✗ {fault}" for fault in step.faults]),
        ):
            for line in (part for text in lines for part in _wrapped(text)):
                self.write(32, said, line, kind)
                said += 16
        for row in step.rows:
            self.row(row)
        self.y = max(self.y, said) + 8

    def row(self, row: Row) -> None:
        """A storage: its cells with their numbers, and the bands beneath."""
        if not row.columns:
            self.write(self.left, self.y + 29, row.label, "bold")
            self.y += 20
            for band in row.bands:
                self.write(self.left, self.y + 24, f"  {band.label}", f"text{band.colour % TENSORS}")
                self.y += 18
            self.y += 14
            return
        wide = self.wide[row.storage]
        for part in row.parts(max(int(_ROW_WIDTH / wide), 1)):
            self.part(row, part, wide)

    def part(self, row: Row, part: range, wide: float) -> None:
        """Some columns of a row."""
        self.y += 15
        self.write(self.left, self.y + 16, row.label, "bold")
        for k in part:
            self.column(row.columns[k], self.cells + (k - part[0]) * wide, wide, row.pointer, k)
        self.y += _CELL + _GAP
        for band in row.bands:
            if any(band.marks[k] is not None for k in part):
                self.band(band, part, wide)
        if row.pointer is not None and row.pointer.column in part:
            middle = self.cells + (row.pointer.column - part[0] + 0.5) * wide
            self.write(middle - 4, self.y + 11, f"▲ {row.pointer.text}", "bad", "bold")
            self.y += 17
        self.right = max(self.right, self.cells + len(part) * wide + 14)
        self.y += 4

    def column(self, column: Column, x: float, wide: float, pointer: Pointer | None, k: int) -> None:
        """A cell: its number above it, and what it holds."""
        first = pointer is not None and pointer.column == k and column.state == "wrong"
        middle, colour = x + wide / 2, "on" if first else {"right": "good", "wrong": "bad"}.get(column.state, "")
        self.write(middle, self.y - 3, column.place, "mid", "small", "faint")
        inset = 1 if column.state in ("right", "wrong") else 0
        place = (x + inset, self.y + inset, wide - 2 * inset, _CELL - 2 * inset)
        self.box(place, "cell", *([] if column.state == "plain" else [column.state]), *(["first"] if first else []))
        weight = [] if column.state == "plain" else ["bold"]
        self.write(
            middle, self.y + 16, _SIGNS[column.state] + column.text, "mid", *weight, *([colour] if colour else [])
        )

    def band(self, band: Band, part: range, wide: float) -> None:
        """A tensor: boxes under the cells that it touches, joined where they are neighbours, on a line over the gaps."""
        number, y = band.colour % TENSORS, self.y
        self.write(self.left, y + 13, f"  {band.label}", *(["bad", "bold"] if band.astray else [f"text{number}"]))
        inside = [k for k in part if k in band.extent]
        ends = [self.cells + (k - part[0]) * wide for k in (inside[0], inside[-1] + 1)]
        self.parts.append(
            f'<line class="line{number}" x1="{ends[0] + 2:g}" x2="{ends[1] - 2:g}" y1="{y + _BAND / 2:g}" y2="{y + _BAND / 2:g}"/>'
        )
        for touched, run in groupby(part, key=lambda k: band.marks[k] is not None):
            if touched:
                columns = list(run)
                x = self.cells + (columns[0] - part[0]) * wide
                self.shape(band, (x + 1.5, y, len(columns) * wide - 3, _BAND))
        for k in inside:
            if (mark := band.marks[k]) is not None:
                solid = ["on", "bold"] if band.access in ("writes", "updates") else [f"text{number}"]
                self.write(self.cells + (k - part[0] + 0.5) * wide, y + 13, mark, "mid", *solid)
        self.y += _BAND + _GAP

    def shape(self, band: Band, place: tuple[float, float, float, float]) -> None:
        """The form of a band tells how the tensor is accessed, without its colour."""
        number = band.colour % TENSORS
        self.box(place, "paper")
        if band.access in ("writes", "updates"):
            self.box(place, f"full{number}", more=' rx="3"')
        else:
            dashes = ' stroke-dasharray="3 2"' if band.access in ("lies", "views") else ""
            self.box(place, f"empty{number}", more=f' rx="3"{dashes}')
        if band.access == "updates":
            x, y, width, height = place
            self.box((x - 2.5, y - 2.5, width + 5, height + 5), f"empty{number}", more=' rx="4"')

    def legend(self) -> None:
        """What the forms mean, and what was found."""
        self.y += 8
        x = 30.0
        for access, words in (
            ("lies", "lies there"),
            ("reads", "read"),
            ("writes", "written"),
            ("updates", "read, then written"),
        ):
            self.shape(Band("", access, 0, ()), (x, self.y, 26, _BAND))  # type: ignore[arg-type]
            self.write(
                x + 13, self.y + 13, "0", "mid", *(["on", "bold"] if access in ("writes", "updates") else ["text0"])
            )
            self.write(x + 36, self.y + 13, words, "faint")
            x += 36 + len(words) * _CHAR + 24
        self.write(x, self.y + 13, "0: the element's position in its tensor", "faint")
        self.y += 36
        wrong = self.picture.wrong
        if wrong is not None:
            self.write(30, self.y, f"✗ {wrong}", "bad", "bold")
            self.y += 20
        for line in self.picture.verdict.splitlines():
            for part in textwrap.wrap(line, _WORDS, subsequent_indent="    ") or [""]:
                self.write(30, self.y, part)
                self.y += 17
        self.y += 4


def _wide(row: Row) -> float:
    """The width that a row's widest cell needs."""
    marks = [mark or "" for band in row.bands for mark in band.marks]
    texts = [text for column in row.columns for text in (_SIGNS[column.state] + column.text, column.place)]
    return max(max(map(len, [*marks, *texts]), default=0) * _CHAR + 10, 30)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _CODE, subsequent_indent="  ") or [""]
