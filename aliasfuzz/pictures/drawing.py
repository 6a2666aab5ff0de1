"""Draws a memory map: the steps of a story, each with the storages that it concerns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import msgspec

from aliasfuzz.pictures.ending import Ending
from aliasfuzz.pictures.model import Access, Band, Picture, Row, Step, Wrong
from aliasfuzz.pictures.sheets import Sheet, sheet
from aliasfuzz.pictures.sides import Contents
from aliasfuzz.pictures.statements import Statement, uses
from aliasfuzz.pictures.story import NO_RESULT, Story, story
from corpus.case import Case
from executor.memory import allocate
from executor.program import Inputs, Value, itemsize
from fuzz.check import Verdict
from fuzz.provenance import makers

_FAULT = 120  # characters that a step says of one fault; the rest stands beneath the picture
_ACCESS: dict[tuple[bool, bool], Access] = {
    (False, False): "views", (True, False): "reads", (False, True): "writes", (True, True): "updates",
}  # fmt: skip


def draw(case: Case, verdict: Verdict | None, remark: str) -> Picture:
    """The memory map of a case. `verdict` is what its target does now, None if it cannot be run; `remark` says so."""
    told = story(case, verdict)
    writer = _writer(told)
    wrong = _wrong(told, writer)
    drawing = _Drawing(case, told, f"writes {wrong.storage}[{wrong.cell}] last" if wrong is not None else "", writer)
    target = verdict.target if verdict is not None else case.target
    faults = tuple(_faults(verdict)) if verdict is not None else ()
    last = Ending(told, target, drawing.sheets, drawing.colours, wrong).step(faults)
    return Picture(target, (*drawing.before(), drawing.first(), *drawing.middle(), last), remark, wrong)


def _faults(verdict: Verdict) -> Iterator[str]:
    """What went wrong beside wrong numbers, which show in the cells."""
    for mismatch in verdict.mismatches:
        if mismatch.symptom not in ("value", "memory"):
            expected = "" if mismatch.symptom in NO_RESULT else f"expected {mismatch.expected}, got "
            yield textwrap.shorten(f"{mismatch.symptom}: {expected}{mismatch.actual}", _FAULT, placeholder="...")


class _Drawing:
    """A story's steps up to the last. `blame` is said of the call `writer`."""

    def __init__(self, case: Case, told: Story, blame: str, writer: int | None) -> None:
        self.case, self.told, self.blame, self.writer = case, told, blame, writer
        self.program, self.names = told.script.program, told.script.names
        self.colours = {name: k for k, name in enumerate(dict.fromkeys(self.names.values()))}
        self.sheets = {name: self._sheet(number, name) for number, name in told.names.items()}

    def _sheet(self, number: int, name: str) -> Sheet:
        apart, nbytes = self.told.difference, self.program.storages[number].nbytes
        focus = apart.cells(name) if apart is not None else set()
        return sheet(name, nbytes, self.told.values(name), self.told.dtypes[name], focus)

    def _band(self, index: int, access: Access) -> Band:
        value, name = self.program.values[index], self.names[index]
        return self.sheets[self.told.names[value.storage]].band(name, access, self.colours[name], value)

    def before(self) -> Iterator[Step]:
        """What the calls before were given: the compiled function may have been made for that."""
        names = [self.names[i] for i in self.program.inputs]
        for number, inputs in enumerate((self.case.program.entry, *self.case.calls)[: self.told.call]):
            yield Step(f"call {number + 1} was given", tuple(self._given(inputs, names)))

    def _given(self, inputs: Inputs, names: list[str]) -> Iterator[Row]:
        held = allocate(inputs)
        for k, storage in enumerate(inputs.storages):
            lying = [(name, value) for name, value in zip(names, inputs.values, strict=True) if value.storage == k]
            filled = storage.fill.dtype if storage.fill is not None else None
            drawn = sheet(f"s{k}", storage.nbytes, [value for _, value in lying], filled)
            yield drawn.introduced(
                held.contents(k), (drawn.band(name, "lies", self.colours[name], v) for name, v in lying)
            )

    def first(self) -> Step:
        """The inputs, and the constants, before the first statement."""
        rows = []
        for number, data in sorted(self.told.moments[0].items(), key=lambda item: self.told.names[item[0]]):
            on = [
                i for i in (*self.program.inputs, *self.program.constants) if self.program.values[i].storage == number
            ]
            rows.append(self.sheets[self.told.names[number]].introduced(data, [self._band(i, "lies") for i in on]))
        return Step(f"call {self.told.call + 1} is given" if self.told.call else "inputs", tuple(rows))

    def middle(self) -> Iterator[Step]:
        """The statements."""
        for k, statement in enumerate(self.told.script.statements):
            yield self._step(statement, self.told.moments[k], self.told.moments[k + 1])

    def _step(self, statement: Statement, before: Contents, after: Contents) -> Step:
        """A statement's accesses, on the storages as it leaves them."""
        bands: dict[int, list[Band]] = {}
        for i, used in uses(self.program, statement).items():
            if i in self.names:
                bands.setdefault(self.program.values[i].storage, []).append(self._band(i, _ACCESS[used]))
        rows = []
        for number, found in bands.items():
            if number in after:
                row = self.sheets[self.told.names[number]].row(after[number], found, before.get(number))
                about = row.about if number in before else f"{row.about}, new"
                rows.append(msgspec.structs.replace(row, about=about))
        refused = self.program.raises is not None and len(self.program.calls) - 1 in statement.calls
        notes = (f"eager refuses it: {self.program.raises}",) if refused else ()
        return Step(statement.text, tuple(rows), notes, (self.blame,) if self.writer in statement.calls else ())


def _writer(told: Story) -> int | None:
    """The call that writes the first wrong cell last."""
    if told.difference is None:
        return None
    name, cell = told.difference.first
    number = next(number for number, known in told.names.items() if known == name)
    size = itemsize(told.dtypes[name])
    return next(iter(makers(told.script.program, Value(number, "uint8", (size,), (1,), cell * size))), None)


def _wrong(told: Story, writer: int | None) -> Wrong | None:
    apart = told.difference
    if apart is None:
        return None
    statement = told.script.statement_of(writer).text if writer is not None else None
    return Wrong(*apart.first, apart.where, apart.expected, apart.actual, statement)
