"""The errors that this package raises on purpose, one family.

`ProgramError` and `TraceError` say that the *user's* program or file is at fault; anything else is a fault of ours.
"""

from __future__ import annotations


class AliasfuzzError(Exception):
    """Base of the errors that users may cause, and that commands show without a traceback."""


class ProgramError(AliasfuzzError):
    """A program, or the JSON of one, is malformed: the message names the place and the rule that it breaks."""


class ArgumentError(AliasfuzzError, TypeError):
    """A program or compiled function was called with arguments that it cannot take."""


class TraceError(AliasfuzzError):
    """A Python function does something that cannot become a program; the message names it and its source line."""


class DataDependentError(TraceError):
    """A function asks for a tensor's contents: `.item()`, `if tensor:`, or an output whose shape depends on data."""


class TargetError(AliasfuzzError):
    """A compiler under test is unknown, not installed, or cannot be loaded."""


class AliasRaceError(AliasfuzzError):
    """A compiled program's partition lets two accesses to one piece of memory happen in the wrong order: a fault of ours.

    Attributes: `first` and `second`, the indices of the two calls in program order; `values`, those of the two values
    that meet; `element`, the byte of the storage where they do, None if they meet through data.
    """

    def __init__(self, message: str, first: int, second: int, values: tuple[int, int], element: int | None) -> None:
        super().__init__(message)
        self.first, self.second, self.values, self.element = first, second, values, element
