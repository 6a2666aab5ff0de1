"""Whether a program has one right outcome: no write of it depends on the order in which elements are visited."""

from __future__ import annotations

from executor.facts import CONSTANT_WRITES
from executor.geometry import WriteKind, write_kind
from executor.program import Call, Program
from executor.schema import accesses


def is_defined(program: Program) -> bool:
    """Whether each write, but for one that eager refuses, has an outcome that does not depend on any order.

    Eager checks operands that are dense only; of others it takes some whose elements are read after they were written.
    """
    calls = program.calls[:-1] if program.raises else program.calls
    return all(_is_defined(program, call) for call in calls)


def _is_defined(program: Program, call: Call) -> bool:
    if call.op in CONSTANT_WRITES:
        return True
    what = accesses(program, call)
    for target in map(program.values.__getitem__, what.writes):
        read = (program.values[i] for i in what.reads)
        near = [value.footprint for value in read if value.storage == target.storage and value != target]
        if write_kind(target.footprint, near) is not WriteKind.DEFINED:
            return False
    return True
