"""Small line plots as SVG, in the colours of the other pictures of the documents, for light and for dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from aliasfuzz.pictures.style import DARK, LIGHT, Palette

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _GAP = 260, 210, 52, 62, 40, 22


class Panel(NamedTuple):
    """One plot: what it shows, lines by name, whose x is drawn by its logarithm, and a bound that must not be passed."""

    title: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    bound: float


def plot(title: str, across: str, panels: Sequence[Panel]) -> str:
    """The panels side by side, as the text of an SVG file. `across` names the x axis."""
    width, height = len(panels) * (_WIDTH + _GAP) + _GAP, _HEIGHT + _TOP
    drawn = "\n".join(_panel(panel, across, _GAP + k * (_WIDTH + _GAP)) for k, panel in enumerate(panels))
    return (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">\n<title>{escape(title)}</title>\n<style>{_css()}</style>\n'
        f'<rect class="paper" width="{width}" height="{height}"/>\n'
        f'<text class="bold" x="{_GAP}" y="20">{escape(title)}</text>\n{_legend(panels[0])}\n{drawn}\n</svg>\n'
    )


def _legend(panel: Panel) -> str:
    names = list(panel.lines)
    return "\n".join(
        f'<text class="text{k}" x="{_GAP + sum(map(len, names[:k])) * 7 + k * 40:g}" y="38">● {escape(name)}</text>'
        for k, name in enumerate(names)
    )


def _panel(panel: Panel, across: str, left: float) -> str:
    points = [point for line in panel.lines.values() for point in line]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    top = _ceiling(max(*ys, panel.bound))
    low, high = math.log10(min(xs)), math.log10(max(xs))
    begin, end, floor = left + _LEFT, left + _WIDTH - 12, _TOP + _HEIGHT - _BOTTOM

    def x(value: float) -> float:
        return begin + (end - begin) * (math.log10(value) - low) / max(high - low, 1e-9)

    def y(value: float) -> float:
        return floor - (floor - _TOP - 18) * value / top

    parts = [f'<text x="{left:g}" y="{_TOP + 4}">{escape(panel.title)}</text>']
    for tick in (0, top / 2, top):
        parts.append(f'<line class="rule" x1="{begin:g}" x2="{end:g}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text class="faint end" x="{begin - 6:g}" y="{y(tick) + 4:.1f}">{tick:g}</text>')
    parts.append(
        f'<line class="bound" x1="{begin:g}" x2="{end:g}" y1="{y(panel.bound):.1f}" y2="{y(panel.bound):.1f}"/>'
    )
    parts.append(
        f'<text class="limit end" x="{end:g}" y="{y(panel.bound) - 5:.1f}">at most {panel.bound:g} {escape(panel.unit)}</text>'
    )
    for number, line in enumerate(panel.lines.values()):
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in line)
        parts.append(f'<polyline class="line line{number}" points="{path}"/>')
        for at, value in line:
            parts.append(f'<circle class="dot{number}" cx="{x(at):.1f}" cy="{y(value):.1f}" r="4"/>')
    top_line = max(panel.lines.values(), key=lambda line: line[-1][1])
    parts += [
        f'<text class="mid" x="{x(at):.1f}" y="{y(value) - 9:.1f}">{_short(value)}</text>' for at, value in top_line
    ]
    parts += [f'<text class="faint mid" x="{x(at):.1f}" y="{floor + 16:g}">{at:,g}</text>' for at in sorted(set(xs))]
    parts.append(f'<text class="faint mid" x="{(begin + end) / 2:g}" y="{floor + 34:g}">{escape(across)}</text>')
    return "\n".join(parts)


def _ceiling(value: float) -> float:
    """The next of 1, 2, 5, 10, and their tens and tenths, with room for a label."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10, 20) if step * power >= 1.1 * value)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _css() -> str:
    shapes = (
        ".plot text{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
        ".plot .bold{font-weight:700}.plot .mid{text-anchor:middle}.plot .end{text-anchor:end}"
        ".plot .line{fill:none;stroke-width:2}.plot .bound{stroke-dasharray:4 3}"
    )
    return f"{shapes}{_colours(LIGHT)}@media (prefers-color-scheme:dark){{{_colours(DARK)}}}"


def _colours(palette: Palette) -> str:
    return (
        f".plot text{{fill:{palette.ink}}}.plot .paper{{fill:{palette.paper}}}.plot .faint{{fill:{palette.faint}}}"
        f".plot .rule{{stroke:{palette.line}}}.plot .bound{{stroke:{palette.bad}}}.plot .limit{{fill:{palette.bad}}}"
        + "".join(
            f".plot .line{k}{{stroke:{palette.tensors[k]}}}.plot .dot{k},.plot .text{k}{{fill:{palette.tensors[k]}}}"
            for k in range(2)
        )
    )
