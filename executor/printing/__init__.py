"""Programs as readable Python that imports nothing but `torch`: the function, its inputs' memory, or a live function."""

from __future__ import annotations

from executor.printing.arguments import source
from executor.printing.backward import backward
from executor.printing.loading import load
from executor.printing.memory import input_names, inputs, leaves, listing
from executor.printing.printer import function

__all__ = ["backward", "function", "input_names", "inputs", "leaves", "listing", "load", "source"]
