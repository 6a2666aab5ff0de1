"""A memory map for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from aliasfuzz.pictures.model import Access, Band, Picture, Row, State, Step

# What surrounds an element's position tells how it is accessed, also where there are no colours.
_MARKS: dict[Access, str] = {"lies": "··", "views": "··", "reads": "()", "writes": "[]", "updates": "{}"}
_SIGNS: dict[State, str] = {"plain": "", "changed": "*", "right": "✓", "wrong": "✗"}
# Legible on light and on dark: a band sets its background, and black is what it holds; the others are weights alone.
_BANDS = tuple(f"black on bright_{name}" for name in ("cyan", "yellow", "magenta", "green", "blue"))
_STATES: dict[State, str] = {
    "plain": "",
    "changed": "bold",
    "right": "black on bright_green",
    "wrong": "bold white on red",
}
_LEGEND = (
    "·0· lies there  (0) read  [0] written  {0} read, then written",
    "the number is the element's position in its tensor, in row-major order",
    "* changed by the statement   ✓ what eager leaves   ✗ what is wrong",
)
_MOST_LABEL = 26


class Terminal:
    """Prints a memory map in as many columns as there are."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        picture, width = self._picture, options.max_width
        rows = [row for step in picture.steps for row in step.rows]
        labels = [row.label for row in rows] + [band.label for row in rows for band in row.bands]
        indent = min(max(map(len, labels), default=0), _MOST_LABEL) + 4
        cells = {
            name: 1 + max(_cell(row) for row in rows if row.storage == name) for name in {row.storage for row in rows}
        }
        for number, step in enumerate(picture.steps):
            last = number == len(picture.steps) - 1
            corner = "└" if last else "├" if number else "┌"
            yield Text.assemble(f"{corner} ", (step.text, "bold"), *_remarks(step))
            for row in step.rows:
                for line in _row(row, indent, cells[row.storage], width):
                    yield Text(" " if last else "│").append(line)
        yield from (Text(line, style="dim") for line in _LEGEND)
        if picture.wrong is not None:
            yield Text.assemble((f" ✗ {picture.wrong} ", _STATES["wrong"]))
        yield Text(picture.verdict)


def _cell(row: Row) -> int:
    """The characters that the widest cell takes."""
    held = [_SIGNS[column.state] + column.text for column in row.columns]
    marks = [_mark(band, k) for band in row.bands for k in range(len(held))]
    return max(map(len, (*held, *marks, *(column.place for column in row.columns))), default=0)


def _remarks(step: Step) -> Iterator[tuple[str, str]]:
    yield from ((f"   {note}", "italic") for note in step.notes)
    yield from ((f"   ✗ {fault}", "bold red") for fault in step.faults)


def _row(row: Row, indent: int, cell: int, width: int) -> Iterator[Text]:
    """The lines of one storage: its cells' numbers, what they hold, and a line for each band."""
    if not row.columns:
        yield Text(f" {row.label}")
        yield from (Text(f"   {band.label}") for band in row.bands)
        return
    for part in row.parts(max((width - indent - 1) // cell, 1)):
        columns = [row.columns[k] for k in part]
        yield _line("", [(column.place, "dim") for column in columns], indent, cell)
        held = [(_SIGNS[column.state] + column.text, _STATES[column.state]) for column in columns]
        yield _line(f" {row.label}", held, indent, cell)
        for band in row.bands:
            if any(band.marks[k] is not None for k in part):
                yield _line(f"   {band.label}", [_piece(band, k, cell) for k in part], indent, cell)
        if row.pointer is not None and row.pointer.column in part:
            place = indent + (row.pointer.column - part[0]) * cell + (cell - 1) // 2
            yield Text(" " * place).append(f"▲ {row.pointer.text}", style="bold red")


def _mark(band: Band, column: int) -> str:
    mark, around = band.marks[column], _MARKS[band.access]
    return "" if mark is None else f"{around[0]}{mark}{around[1]}"


def _piece(band: Band, column: int, cell: int) -> tuple[str, str]:
    """A band at one column: its mark on its colour, a thin line where it leaves cells out, or nothing."""
    if mark := _mark(band, column):
        return mark, _BANDS[band.colour % len(_BANDS)]
    return ("╌" * cell, "dim") if column in band.extent else ("", "")


def _line(label: str, pieces: list[tuple[str, str]], indent: int, cell: int) -> Text:
    shown = label if len(label) < indent else f"{label[: indent - 2]}…"
    text = Text(shown.ljust(indent))
    for piece, style in pieces:
        text.append(piece.center(cell), style=style)
    text.rstrip()
    return text
