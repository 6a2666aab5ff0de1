"""aliasfuzz: differential fuzz-testing of tensor compilers on programs whose tensors share memory.

from aliasfuzz import jit, trace, Program, check, programs, load, save
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from corpus.case import Case
from corpus.store import load, save
from executor.jit import jit
from executor.program import Program
from executor.tracing import trace
from fuzz.check import Verdict, check
from strategies.programs import programs

__all__ = ["Case", "Program", "Verdict", "check", "jit", "load", "programs", "save", "trace"]

try:
    __version__ = version("aliasfuzz")
except PackageNotFoundError:  # a checkout on the path, not installed
    __version__ = "0+unknown"
