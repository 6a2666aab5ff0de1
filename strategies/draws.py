"""Cheap draws: every choice is an index into what fits now, simplest first, so nothing is ever rejected.

Hypothesis shrinks an index towards 0, and so a choice towards the head of its list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[Any]], Any]

_UP_TO = [st.integers(0, limit) for limit in range(1024)]


def below(draw: Draw, count: int) -> int:
    """A number from 0 to `count` - 1; nothing is drawn where there is only one."""
    return int(draw(_UP_TO[count - 1])) if count > 1 else 0


def choice(draw: Draw, options: Sequence[T]) -> T:
    """One of the options, which must not be empty."""
    return options[below(draw, len(options))]


def between(draw: Draw, low: int, high: int) -> int:
    """A number from `low` to `high`, both included."""
    return low + below(draw, high - low + 1)


def more(draw: Draw, out_of: int) -> bool:
    """Whether to go on, true in all but one of `out_of` cases; shrinks towards stopping."""
    return below(draw, out_of) > 0
