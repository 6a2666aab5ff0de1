"""Who is to blame for a failure: the stage of the compiler that goes wrong first, and the two accesses that it broke."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import msgspec

from executor.program import Program
from executor.targets import Target
from fuzz.check import Verdict, check
from fuzz.provenance import Accused, accused
from fuzz.related import related
from fuzz.rewriting import rerecord

# Differences that leave every number right; a stage that shows nothing worse is not to blame for wrong ones.
_MILD = frozenset({"alias", "identity", "strides", "count"})
CACHE = "cache"  # the stage of a failure that the reuse of compiled code brings
WRONG, MISLAID = "wrong", "mislaid"  # what symptoms become where the stage tells more than they do
_OWN = frozenset({"crash", "memory-limit", "timeout", "count"})  # but these


class Blame(NamedTuple):
    """The stage that goes wrong first ("" where a target tells of no stages), and the accesses that broke."""

    stage: str
    accused: Accused


def blame(verdict: Verdict, target: Target) -> Blame:
    """Who is to blame for a failed verdict of `target`. No accesses are where it is the reuse of code for another call."""
    where, program = stage(verdict, target), verdict.program
    if program is None or where == CACHE:
        return Blame(where, Accused())
    return Blame(where, accused(program, None if verdict.call else verdict.mismatches[0]))


def blamed(verdict: Verdict, target: Target) -> Verdict:
    """The verdict with the signature that it has once it is known who is to blame; a verdict that is fine as it is."""
    signature = verdict.signature
    if signature is None:
        return verdict
    found = blame(verdict, target)
    full = msgspec.structs.replace(
        signature, stage=found.stage, accesses=found.accused.accesses, relation=found.accused.relation
    )
    if tells(target, found.stage):
        full = msgspec.structs.replace(full, symptom=coarse(full.symptom), detail="")
    return dataclasses.replace(verdict, blamed=full)


def tells(target: Target, stage: str) -> bool:
    """Whether a stage of the target says more about a bug than its symptom, which then depends on the program."""
    return target.fine_stages and bool(stage)


def coarse(symptom: str) -> str:
    """The symptom where a fine stage is to blame: one mistake in a pass gives wrong numbers here, an exception there.

    "wrong", or "mislaid" where all numbers are right; what ends the process or a bound that is exceeded is itself.
    """
    name, space, later = symptom.partition(" ")
    return f"{name if name in _OWN else MISLAID if name in _MILD else WRONG}{space}{later}"


def stage(verdict: Verdict, target: Target, guess: str = "") -> str:
    """The first stage of the target that goes wrong too; "" if the target has no stages.

    It is "cache" for a call that goes wrong only because the function was compiled for another one.
    With a `guess` only that stage and the one before are run, if they confirm it.
    """
    program, names = verdict.program, list(target.stages)
    again = alone(verdict, target)
    if again is not None and again.ok:
        return CACHE
    if program is None or not names:
        return ""

    def wrong(name: str) -> bool:
        return name == names[-1] or _wrong(verdict, target.stages[name], program)

    if guess in names and wrong(guess) and (guess == names[0] or not wrong(names[names.index(guess) - 1])):
        return guess
    return next(name for name in names if wrong(name))


def alone(verdict: Verdict, target: Target) -> Verdict | None:
    """The verdict on the later call that went wrong, in a function compiled for it alone; None if that cannot be said."""
    if not verdict.call or verdict.program is None:
        return None
    program = rerecord(verdict.program, verdict.calls[verdict.call - 1])
    return check(program, target=target, exact=verdict.exact) if program is not None else None


def _wrong(verdict: Verdict, part: Target, program: Program) -> bool:
    """Whether a part of the target goes wrong in a way that may have become the failure; not if it refuses the program."""
    if part.limits.refuse(program):
        return False
    if verdict.relation:
        return not related(program, part, verdict.relation, exact=verdict.exact).ok
    found = check(program, target=part, exact=verdict.exact, calls=verdict.calls)
    severe = set(found.symptoms) - _MILD
    return not found.ok and bool(severe or not set(verdict.symptoms) - _MILD)
