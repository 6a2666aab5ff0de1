"""The throughput of a run as SVG, drawn by its page's colours: a line for each target, a mark for each finding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fuzz.record import Record

COLOURS = 6  # of lines, before they begin anew
_WIDTH, _HEIGHT = 760, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 30


class Line(NamedTuple):
    """A target's line: its name, the number of its colour, and the line's points as SVG has them."""

    name: str
    colour: int
    points: str


class Tick(NamedTuple):
    """A label on an axis, and where it stands on it."""

    at: float
    text: str


class Mark(NamedTuple):
    """When something new was found, as a place on the chart, and what."""

    x: float
    y: float
    colour: int
    new: bool
    text: str


class Chart(NamedTuple):
    """The chart, measured: sizes of the whole and of the part inside the axes, and all that lies there."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    lines: list[Line]
    across: list[Tick]
    upwards: list[Tick]
    marks: list[Mark]


def chart(record: Record) -> Chart | None:
    """The chart of a run; None if nothing is known of its throughput."""
    series = {
        name: target.throughput for name, target in record.targets.items() if any(r for _, r in target.throughput)
    }
    if not series:
        return None
    longest = max(points[-1][0] for points in series.values())
    step = _step(max(rate for points in series.values() for _, rate in points) / 4)
    highest = step * math.ceil(max(rate for points in series.values() for _, rate in points) / step)

    def x(second: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * min(second / longest, 1.0), 1)

    def y(rate: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * rate / highest, 1)

    colours = {name: k % COLOURS for k, name in enumerate(record.targets)}
    lines = [
        Line(name, colours[name], " ".join(f"{x(second)},{y(rate)}" for second, rate in _corners(points)))
        for name, points in series.items()
    ]
    marks = [
        Mark(x(finding.seconds), _HEIGHT - _BOTTOM, colours[name], not finding.known,
             f"{name}, {clock(finding.seconds)}: {finding.signature}")
        for name, finding in record.findings if finding.seconds
    ]  # fmt: skip
    across = [
        Tick(x(k * _minutes(longest)), clock(k * _minutes(longest)))
        for k in range(int(longest / _minutes(longest)) + 1)
    ]
    upwards = [Tick(y(k * step), f"{k * step:g}") for k in range(round(highest / step) + 1)]
    return Chart(_WIDTH, _HEIGHT, _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM, lines, across, upwards, marks)


def _corners(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """A rate holds since the point before: steps, not slopes."""
    before = 0.0
    for second, rate in points:
        yield before, rate
        yield second, rate
        before = second


def _step(least: float) -> float:
    """The next number of 1, 2 and 5, and their tens and tenths."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(k * power for k in (1, 2, 5, 10) if k * power >= least)


def _minutes(longest: float) -> float:
    """Seconds between two labels, so that there are at most eight."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)
    days = math.ceil(longest / 8 / 86400)
    return next((step for step in steps if longest / step <= 8), 86400.0 * days)


def clock(seconds: float) -> str:
    """Seconds as 0:59, 12:00 or 1:00:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
