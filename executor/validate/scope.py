"""What is in scope at a place of a program under validation, and the error that names the place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NoReturn

from executor.args import children
from executor.errors import ProgramError

if TYPE_CHECKING:
    from executor.args import Arg
    from executor.program import Program


def fail(where: str, wrong: str, right: str) -> NoReturn:
    """Raises the error for one broken rule."""
    raise ProgramError(f"{where}: {wrong}; {right}")


def check_floats(where: str, arg: Arg) -> None:
    """Raises `ProgramError` for a float in the tree that JSON would turn into null."""
    if isinstance(arg, float) and not math.isfinite(arg):
        fail(where, f"{arg!r} is a float that JSON cannot write", f"it stands as Number({str(arg)!r})")
    for child in children(arg):
        check_floats(where, child)


class Scope:
    """The values that are defined so far, and the storages that they lie on (`homes`).

    A tensor whose metadata changes is another value from then on (`successors`).
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.defined: set[int] = set()
        self.homes: set[int] = set()
        self.successors: dict[int, int] = {}
        self._twins = {program.inputs[k] for pair in program.twins for k in pair if 0 <= k < len(program.inputs)}

    def storage(self, index: int) -> int:
        """The storage on which a value lies."""
        return self.program.values[index].storage

    def check_exists(self, where: str, index: int) -> None:
        """Raises `ProgramError` for an index out of range."""
        if not 0 <= index < len(self.program.values):
            fail(where, f"value {index} does not exist", f"there are {len(self.program.values)}")

    def check_use(self, where: str, index: int) -> None:
        """Raises `ProgramError` for a value that cannot be used here."""
        self.check_exists(where, index)
        if index not in self.defined:
            fail(where, f"value {index} is not defined yet", "use inputs, constants and results of earlier calls")
        if index in self.successors:
            fail(
                where,
                f"value {index} is gone",
                f"its tensor was changed in place, and is value {self.successors[index]}",
            )

    def define(self, where: str, index: int) -> None:
        """Adds a value. Raises `ProgramError` if it is there already."""
        if index in self.defined:
            fail(where, f"value {index} is defined already", "each value is defined once")
        self.defined.add(index)
        self.homes.add(self.storage(index))

    def replace(self, index: int, successor: int) -> None:
        """Notes that the tensor of a value is another value from now on."""
        self.successors[index] = successor

    def is_twin(self, index: int) -> bool:
        """Whether a value is an input that is passed twice, as one tensor object."""
        return index in self._twins
