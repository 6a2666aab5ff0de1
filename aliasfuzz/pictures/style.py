"""The colours of a memory map as SVG, on light and on dark."""

from __future__ import annotations

from typing import NamedTuple

TENSORS = 6  # colours of bands before they begin anew


class Palette(NamedTuple):
    """Colours for one background. `tensors` are strong enough for lines, and `on` is legible on them."""

    paper: str
    ink: str
    faint: str
    line: str
    cell: str
    changed: str
    good: str
    bad: str
    on: str
    tensors: tuple[str, ...]


LIGHT = Palette(
    "#ffffff", "#1f2328", "#59636e", "#c8d1da", "#f6f8fa", "#fff3bf", "#1a7f37", "#c81e2b", "#ffffff",
    ("#0969da", "#8250df", "#9a5b00", "#0b7285", "#bf3989", "#4d5c00"),
)  # fmt: skip
DARK = Palette(
    "#0d1117", "#e6edf3", "#9198a1", "#3d444d", "#161b22", "#4b3a05", "#3fb950", "#ff7b72", "#0d1117",
    ("#58a6ff", "#c297ff", "#e3a341", "#56d4dd", "#f778ba", "#b5c33a"),
)  # fmt: skip


def css() -> str:
    """The rules for both: the light ones hold wherever dark is not asked for. They concern no other part of a page."""
    dark = _text(_rules(DARK))
    return f"{_text(_SHAPES)}{_text(_rules(LIGHT))}@media (prefers-color-scheme:dark){{{dark}}}"


_SHAPES = {
    "text": "font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre",
    ".small": "font-size:10px",
    ".bold": "font-weight:700",
    ".mid": "text-anchor:middle",
    ".axis,.right,.wrong": "stroke-width:2",
}


def _text(rules: dict[str, str]) -> str:
    def scoped(selector: str) -> str:
        return ",".join(f".memory-map {part}" for part in selector.split(","))

    return "".join(f"{scoped(selector)}{{{body}}}" for selector, body in rules.items())


def _rules(colours: Palette) -> dict[str, str]:
    rules = {
        "text": f"fill:{colours.ink}",
        ".paper": f"fill:{colours.paper}",
        ".faint,.dot": f"fill:{colours.faint}",
        ".axis,.rule": f"stroke:{colours.line}",
        ".cell": f"fill:{colours.cell};stroke:{colours.line}",
        ".changed": f"fill:{colours.changed}",
        ".right": f"stroke:{colours.good}",
        ".good": f"fill:{colours.good}",
        ".wrong": f"stroke:{colours.bad}",
        ".bad,.first": f"fill:{colours.bad}",
        "text.on": f"fill:{colours.on}",
    }
    for number, colour in enumerate(colours.tensors):
        rules[f".line{number}"] = f"stroke:{colour}"
        rules[f".full{number}"] = f"stroke:{colour};fill:{colour}"
        rules[f".empty{number}"] = f"stroke:{colour};fill:none"
        rules[f"text.text{number}"] = f"fill:{colour}"
    return rules
