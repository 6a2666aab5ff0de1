"""Compilers under test in processes of their own: whatever becomes of those, the caller gets a verdict.

The caller (`Sandbox`) starts one *supervisor*, which imports torch and the compiler once and then forks *workers*, one at a
time. A worker judges programs until it dies, hangs, takes too much memory, or is replaced. Replacing one takes some
milliseconds, so that crashes shrink as fast as wrong numbers; a pool that starts each worker from nothing would import
torch and the compiler again, for seconds. `Isolated` is a target for `fuzz.check.check` that is judged in a sandbox.
"""

from fuzz.isolation.host import IsolationError
from fuzz.isolation.isolated import Isolated, contained
from fuzz.isolation.sandbox import Sandbox

__all__ = ["Isolated", "IsolationError", "Sandbox", "contained"]
