"""The last step of a memory map: what the run leaves, eager's storages and beneath each the target's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from aliasfuzz.pictures.model import Pointer, Row, State, Step, Wrong
from aliasfuzz.pictures.sheets import Sheet, sheet
from aliasfuzz.pictures.sides import Output, Side
from aliasfuzz.pictures.story import Story
from executor.args import refs
from executor.program import itemsize
from executor.schema import accesses


@dataclass(frozen=True)
class Ending:
    """What is drawn, and how the storages, and names, are drawn in the steps before."""

    told: Story
    target: str
    sheets: dict[str, Sheet]
    colours: dict[str, int]
    wrong: Wrong | None

    def step(self, faults: tuple[str, ...]) -> Step:
        """The storages on which outputs lie, that are written, or that are wrong."""
        sides = [("eager", self.told.eager), *([(self.target, self.told.target)] if self.told.target else [])]
        told = self._telling([side for _, side in sides])
        names = dict.fromkeys(name for _, side in sides for name in side.contents if name in told)
        rows = (
            self._row(name, side, label) for name in names for label, side in sides if len(side.contents.get(name, ()))
        )
        return Step(self.told.script.returned, tuple(rows), (), faults)

    def _telling(self, sides: Collection[Side]) -> set[str]:
        program, apart = self.told.script.program, self.told.difference
        found = {output.storage for side in sides for output in side.outputs}
        for call in program.calls:
            found.update(self.told.names[program.values[i].storage] for i in accesses(program, call).writes)
        return found | ({*apart.right, *apart.wrong} if apart is not None else set())

    def _row(self, name: str, side: Side, label: str) -> Row:
        data, drawn, apart = side.contents[name], self.sheets.get(name), self.told.difference
        state: State = "right" if side is self.told.eager else "wrong"
        cells = (apart.right if state == "right" else apart.wrong).get(name, set()) if apart is not None else set()
        lying = [output for output in side.outputs if output.storage == name]
        if drawn is None or len(data) // itemsize(drawn.dtype) != drawn.size:
            drawn = sheet(name, len(data), [output.value for output in lying], None, cells)
        names = [self.told.script.names[i] for i in refs(self.told.script.program.outputs)]
        bands = [
            drawn.band(names[o.number], "lies", self.colours[names[o.number]], o.value, astray=self._astray(o))
            for o in lying
        ]
        row = drawn.row(data, bands, None, (state, cells))
        there = apart.there[1] if apart is not None and state == "wrong" and apart.there[0] == name else None
        pointer = Pointer(drawn.column(there), self._told()) if there is not None else None
        return msgspec.structs.replace(row, side=label, pointer=pointer)

    def _told(self) -> str:
        """What is said of the first wrong cell."""
        assert self.wrong is not None, "there is one"
        nobody = "" if self.wrong.writer else "; no statement writes it"
        return f"expected {self.wrong.expected}, got {self.wrong.actual}{nobody}"

    def _astray(self, output: Output) -> bool:
        """Whether an output lies elsewhere than in eager; one fresh storage is as good as another."""
        there = next((one for one in self.told.eager.outputs if one.number == output.number), output)
        if output.storage != there.storage:
            return True
        return output.storage in self.told.shared and output.value != there.value
