"""Arguments and numbers as Python source text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from executor.args import Arg, Const, Device, Dict, List, Number, Ref, Tuple

if TYPE_CHECKING:
    from collections.abc import Mapping


def source(arg: Arg, names: Mapping[int, str]) -> str:
    """The Python expression of an argument; values go by their `names`."""
    if isinstance(arg, Ref):
        return names[arg.index]
    if isinstance(arg, Number):
        return number(complex(arg.text) if "j" in arg.text else float(arg.text))
    if isinstance(arg, Const):
        return f"torch.{arg.name}"
    if isinstance(arg, Device):
        return repr(arg.name)
    if isinstance(arg, Dict):
        return "{" + ", ".join([f"{key!r}: {source(item, names)}" for key, item in arg.items]) + "}"
    if isinstance(arg, List | Tuple):
        return _sequence(arg, names)
    return repr(arg)


def _sequence(arg: List | Tuple, names: Mapping[int, str]) -> str:
    items = ", ".join([source(item, names) for item in arg.items])
    if isinstance(arg, List):
        return f"[{items}]"
    return f"({items},)" if len(arg.items) == 1 else f"({items})"


def number(value: int | float | complex) -> str:
    """A bool, int, float or complex as Python, bit for bit: signed zeros and infinities too."""
    if isinstance(value, complex):
        parts = (value.real, value.imag)
        # Python reads "(-0+1j)" as a sum, and so loses the zero's sign.
        plain = all(math.isfinite(part) and (part or math.copysign(1, part) > 0) for part in parts)
        return repr(value) if plain else f"complex({number(parts[0])}, {number(parts[1])})"
    return repr(value) if isinstance(value, int) or math.isfinite(value) else f"float('{value}')"
