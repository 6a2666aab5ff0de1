"""Programs as readable Python that imports nothing but `torch`: the function, its inputs' memory, or a live function."""

from __future__ import annotations

from executor.printing.arguments import source
from executor.printing.loading import load
from executor.printing.memory import inputs
from executor.printing.printer import function

__all__ = ["function", "inputs", "load", "source"]
