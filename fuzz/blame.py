"""Who is to blame for a failure: the stage of the compiler that goes wrong first, and the two accesses that it broke."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from executor.program import Inputs, Program
from executor.targets import Target
from fuzz.check import Verdict, check
from fuzz.hazards import RELATIONS
from fuzz.provenance import Accused, accused
from fuzz.reducer import rerecord

# Differences that leave every number right; a stage that shows nothing worse is not to blame for wrong ones.
_MILD = frozenset({"alias", "identity", "strides", "count"})


class Blame(NamedTuple):
    """The stage that goes wrong first ("" where a target tells of no stages), and the accesses that broke."""

    stage: str
    accused: Accused


def blame(verdict: Verdict, target: Target, calls: Sequence[Inputs] = (), *, exact: bool = True) -> Blame:
    """Who is to blame for a failed verdict of `target` on a program that was called with `calls` further inputs."""
    found, program = Accused(), verdict.program
    if program is not None:
        found = accused(program, None if verdict.call else verdict.mismatches[0])
        again = rerecord(program, calls[verdict.call - 1]) if verdict.call else None
        if again is not None:  # what broke may be an order that only one of the two calls asks for
            found = max(found, accused(again, verdict.mismatches[0]), key=_telling)
    return Blame(stage(verdict, target, calls, exact=exact), found)


def _telling(found: Accused) -> tuple[int, int]:
    return RELATIONS.index(found.relation), len(found.statements)


def blamed(verdict: Verdict, target: Target, calls: Sequence[Inputs] = (), *, exact: bool = True) -> Verdict:
    """The verdict with the signature that it has once it is known who is to blame; a verdict that is fine as it is."""
    signature = verdict.signature
    if signature is None:
        return verdict
    found = blame(verdict, target, calls, exact=exact)
    full = msgspec.structs.replace(
        signature, stage=found.stage, accesses=found.accused.accesses, relation=found.accused.relation
    )
    return dataclasses.replace(verdict, blamed=full)


def stage(
    verdict: Verdict, target: Target, calls: Sequence[Inputs] = (), *, exact: bool = True, guess: str = ""
) -> str:
    """The first stage of the target that goes wrong too; "" if the target has no stages.

    With a `guess` only that stage and the one before are run, if they confirm it.
    """
    program, names = verdict.program, list(target.stages)
    if program is None or not names:
        return ""

    def wrong(name: str) -> bool:
        return name == names[-1] or _wrong(verdict, target.stages[name], program, calls, exact=exact)

    if guess in names and wrong(guess) and (guess == names[0] or not wrong(names[names.index(guess) - 1])):
        return guess
    return next(name for name in names if wrong(name))


def _wrong(verdict: Verdict, part: Target, program: Program, calls: Sequence[Inputs], *, exact: bool) -> bool:
    """Whether a part of the target goes wrong in a way that may have become the failure; not if it refuses the program."""
    if part.limits.refuse(program):
        return False
    found = check(program, target=part, exact=exact, calls=calls)
    severe = set(found.symptoms) - _MILD
    return not found.ok and bool(severe or not set(verdict.symptoms) - _MILD)
