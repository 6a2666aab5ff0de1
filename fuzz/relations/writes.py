"""An in-place call becomes an out-of-place one and a copy."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from executor.args import Ref
from executor.facts import facts
from executor.program import Call, Program
from executor.schema import accesses
from fuzz.definedness import is_defined
from fuzz.relations.base import Relation, recorded


class CopiedWrite(Relation):
    """`x.add_(y)` becomes `x.copy_(x.add(y))`; what goes to `out=` is computed first and copied then."""

    name = "copied-write"

    def places(self, program: Program) -> Iterator[int]:
        """Positions of calls that write one value and have an out-of-place form."""
        if not is_defined(program):
            return
        for k, call in enumerate(program.calls):
            writes = accesses(program, call).writes
            if len(writes) != 1 or call.results != writes or facts(call.op).functional is None:
                continue
            if not program.values[writes[0]].footprint.self_overlaps:  # which takes numbers, but no copy
                yield k

    def at(self, program: Program, place: int, draw: random.Random) -> Program | None:  # noqa: ARG002 - no choice is left
        """See `Relation.at`."""
        call = program.calls[place]
        (target,), fresh = call.results, len(program.values)
        about = facts(call.op)
        assert about.functional is not None, "places have an out-of-place form"
        kwargs = tuple((name, arg) for name, arg in call.kwargs if name not in about.written)
        computed = msgspec.structs.replace(call, op=about.functional, kwargs=kwargs, results=(fresh,))
        copied = Call("aten.copy_.default", (Ref(target), Ref(fresh)), (), (target,), call.source)
        calls = (*program.calls[:place], computed, copied, *program.calls[place + 1 :])
        return recorded(program, calls, [program.values[target]])
