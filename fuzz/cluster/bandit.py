"""Which arm gets the next turn: those that still yield something get more of them, and none is given up."""

from __future__ import annotations

import random

import msgspec

KEPT = 0.95  # of what is known of an arm, with each turn: yields fade, so that old turns count less and less


class Arm(msgspec.Struct):
    """An arm's turns, how many of them yielded something new, and both as they count now."""

    turns: int = 0
    yields: int = 0
    won: float = 0.0
    lost: float = 0.0


def choose(arms: list[Arm], chance: random.Random) -> int:
    """The number of an arm, by Thompson sampling: each draws how likely it is to yield, and the highest draw wins."""
    draws = [chance.betavariate(1 + arm.won, 1 + arm.lost) for arm in arms]
    return max(range(len(arms)), key=draws.__getitem__)


def take(arm: Arm, *, won: bool) -> None:
    """Notes how a turn of an arm ended."""
    arm.turns += 1
    arm.yields += won
    arm.won = arm.won * KEPT + won
    arm.lost = arm.lost * KEPT + (not won)
