"""Cheap draws: every choice is an index into what fits now, simplest first, so nothing is ever rejected.

A draw from Hypothesis costs more than what is done with it, so the choices of a statement are bytes of one draw. Hypothesis
shrinks each byte towards 0, and so a choice towards the head of its list; a statement goes as its draw is deleted. To
Hypothesis the simpler of two programs is the one with fewer draws, then the one whose first byte that differs is lower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

_SIZE = 12  # bytes, enough for nearly every statement
_BYTES = st.binary(min_size=_SIZE, max_size=_SIZE)


class Draw:
    """The choices of one program, made from what Hypothesis's `draw` gives. `note` is told what was drawn, in words."""

    def __init__(
        self,
        draw: Callable[[st.SearchStrategy[Any]], Any],
        note: Callable[[str], object] = lambda what: None,
    ) -> None:
        self._draw, self.note = draw, note
        self._left: list[int] = []

    @classmethod
    def uniform(cls, random: Random) -> Draw:
        """Choices that are all drawn uniformly, without Hypothesis."""
        return cls(lambda _: random.randbytes(_SIZE))

    def begin(self) -> None:
        """Begins a statement: its choices are drawn together, and do not depend on how many the last one took."""
        self._left = []

    def begin_place(self) -> None:
        """Begins what always has its draw, even where nothing of it is used."""
        self._more()

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1, of which there are at most 65,536; nothing is drawn where there is only one."""
        if count <= 1:
            return 0
        left = self._left or self._more()
        drawn = left.pop()
        if count > 256:
            left = left or self._more()
            drawn = drawn << 8 | left.pop()
        return drawn % count

    def _more(self) -> list[int]:
        self._left = [*reversed(self._draw(_BYTES))]
        return self._left


def below(draw: Draw, count: int) -> int:
    """A number from 0 to `count` - 1; nothing is drawn where there is only one."""
    return draw.below(count)


def choice(draw: Draw, options: Sequence[T]) -> T:
    """One of the options, which must not be empty."""
    return options[draw.below(len(options))]


def either_end(draw: Draw, options: Sequence[T]) -> T:
    """One of the options: the first is simplest, then the last, the second, the last but one, and so on.

    Of values in the order in which they were made: what is drawn so does mostly not change with values between.
    """
    at = draw.below(len(options))
    return options[-(at + 1) // 2 if at % 2 else at // 2]


def between(draw: Draw, low: int, high: int) -> int:
    """A number from `low` to `high`, both included."""
    return low + draw.below(high - low + 1)


def more(draw: Draw, out_of: int) -> bool:
    """Whether to go on, true in all but one of `out_of` cases; shrinks towards stopping."""
    return draw.below(out_of) > 0
