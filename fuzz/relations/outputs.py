"""More is returned than before."""

from __future__ import annotations

import random
from collections.abc import Iterator

from executor.args import Ref, Tuple
from executor.program import Call, Program
from fuzz.relations.base import Relation, recorded


class AliasReturned(Relation):
    """A view of some value is returned too, behind all other outputs."""

    name = "alias-returned"

    def places(self, program: Program) -> Iterator[int]:
        """All values."""
        yield from range(len(program.values))

    def at(self, program: Program, place: int, draw: random.Random) -> Program | None:  # noqa: ARG002 - no choice is left
        """See `Relation.at`."""
        fresh, before = len(program.values), program.outputs
        call = Call("aten.alias.default", (Ref(place),), (), (fresh,))
        items = before.items if isinstance(before, Tuple) else (before,)
        outputs = Tuple((*items, Ref(fresh)))
        return recorded(program, (*program.calls, call), [program.values[place]], outputs)
