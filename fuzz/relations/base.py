"""What a metamorphic relation is: a rewriting of programs that leaves their meaning as it was, and what corresponds then.

Whatever a compiler does to the program it must do to its rewriting. Inputs correspond by the names of their parameters,
outputs by their order; a rewriting may return more.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from executor.args import Arg
from executor.program import Call, Program, Value
from executor.schema import changes_metadata
from fuzz.rewriting import rerecord


class Relation(ABC):
    """One relation. `name` is what options, signatures and cases call it.

    `aliases` says whether the tensors that a caller sees share memory as before, at the same distances. Values, dtypes,
    shapes and strides of what corresponds are the same under every relation, and so are the objects that are returned.
    """

    name: str
    aliases: bool = True

    def applies(self, program: Program) -> bool:
        """Whether there is a place in the program that can be rewritten."""
        return _is_plain(program) and next(self.places(program), None) is not None

    def rewrite(self, program: Program, draw: random.Random) -> Program | None:
        """The program rewritten at one place; None if eager refuses what came out.

        Raises `ValueError` if the relation does not apply.
        """
        places = list(self.places(program)) if _is_plain(program) else []
        if not places:
            raise ValueError(f"{self.name} does not apply to this program")
        return self.at(program, draw.choice(places), draw)

    @abstractmethod
    def places(self, program: Program) -> Iterator[Any]:
        """Where the program can be rewritten."""

    @abstractmethod
    def at(self, program: Program, place: Any, draw: random.Random) -> Program | None:
        """The program rewritten at this place; None if eager refuses what came out."""


def _is_plain(program: Program) -> bool:
    """Whether each tensor stays one value and eager takes all calls: what is not so has more to it than values."""
    return program.raises is None and not program.constants and not any(changes_metadata(c.op) for c in program.calls)


def recorded(
    program: Program, calls: Sequence[Call], values: Sequence[Value] = (), outputs: Arg | None = None
) -> Program | None:
    """The program with other calls, laid out as eager does it; None if eager refuses one of them.

    `values` stand for results that are new: they are numbered from `len(program.values)` on, and recorded anew.
    """
    changed = msgspec.structs.replace(
        program,
        calls=tuple(calls),
        values=(*program.values, *values),
        outputs=program.outputs if outputs is None else outputs,
    )
    return rerecord(changed, program.entry)
