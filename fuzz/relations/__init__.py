"""Metamorphic relations: rewritings that leave a program's meaning as it was, so that a compiler must do the same to both."""

from __future__ import annotations

import random
from typing import NamedTuple

from executor.errors import AliasfuzzError
from executor.limits import EVERYTHING, Limits
from executor.program import Program
from fuzz.relations.base import Relation
from fuzz.relations.layouts import InputsApart, PaddedBase
from fuzz.relations.order import PermutedParameters, SwappedStatements
from fuzz.relations.outputs import AliasReturned
from fuzz.relations.views import NoopView, OneView
from fuzz.relations.writes import CopiedWrite

__all__ = [
    "ALL",
    "NONE",
    "RELATIONS",
    "Choice",
    "Relation",
    "RelationError",
    "Rewriting",
    "chosen",
    "rewriting",
    "rewritten",
]

RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for relation in (
        CopiedWrite(), NoopView(), OneView(), InputsApart(), PaddedBase(), SwappedStatements(), PermutedParameters(),
        AliasReturned(),
    )
}  # fmt: skip
ALL, NONE = "all", "none"


class Choice(NamedTuple):
    """Names of relations, and that one program in `share` is rewritten by one of them."""

    names: tuple[str, ...] = ()
    share: int = 1


class RelationError(AliasfuzzError):
    """There is no relation of this name, or no such share; the message says what there is."""


class Rewriting(NamedTuple):
    """A program that means what another one means, and the name of the relation between the two."""

    relation: str
    program: Program


def chosen(text: str) -> Choice:
    """The choice that is written "all", "none" or "NAME,NAME", of every program, or "all/8", of one in eight.

    Raises `RelationError` for a name that there is not, or a share that is no positive number.
    """
    names, slash, share = text.partition("/")
    if slash and (not share.isdecimal() or not int(share)):
        raise RelationError(f"the share of programs is one in a number, such as {ALL}/8, not {text!r}")
    return Choice(_names(names), int(share or 1))


def _names(text: str) -> tuple[str, ...]:
    if text in (ALL, NONE):
        return tuple(RELATIONS) if text == ALL else ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in RELATIONS:
            raise RelationError(f"there is no relation {name!r}; there are {', '.join(RELATIONS)}, or {ALL} or {NONE}")
    return names


def rewritten(program: Program, relation: str, limits: Limits = EVERYTHING) -> Program | None:
    """The program rewritten by the relation of this name, always in the same way.

    None if the relation does not apply, or what comes out is the same again, or not within the limits, or inputs require grad:
    to autograd a rewriting may mean something else. Raises `RelationError` if there is no such relation.
    """
    (name,) = _names(relation)
    if program.leaves or program.rooted or not RELATIONS[name].applies(program):
        return None
    found = RELATIONS[name].rewrite(program, random.Random(f"{name}/{program.digest}"))
    if found is None or found == program or limits.refuse(found) is not None:
        return None
    return found


def rewriting(program: Program, choice: Choice, limits: Limits = EVERYTHING) -> Rewriting | None:
    """A rewriting by one of the relations, for one program in `choice.share`; None for the others, or if none applies.

    Whether and by which one depends on the program alone.
    """
    draw = random.Random(f"relation/{program.digest}")
    order = list(choice.names)
    if not order or draw.randrange(choice.share):
        return None
    draw.shuffle(order)
    found = ((name, rewritten(program, name, limits)) for name in order)
    return next((Rewriting(name, other) for name, other in found if other is not None), None)
