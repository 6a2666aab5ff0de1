"""What the compiler did, to read: the program after each pass, and the steps in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from executor.printing import function

if TYPE_CHECKING:
    from executor.program import Program


@dataclass(frozen=True)
class Trace:
    """The program after a pass, how long the pass took, and what it counted."""

    name: str
    program: Program
    milliseconds: float
    counts: dict[str, int]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"# constructed by {self.name} (took {self.milliseconds:.2f} ms)"]
        lines += [f"# {name}: {count}" for name, count in self.counts.items()]
        lines += [f"# {note}" for note in self.notes]
        return "\n".join([*lines, function(self.program)])
