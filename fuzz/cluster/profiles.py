"""Swarm profiles: what is left out of all programs of a turn, so that what is left meets itself more often."""

from __future__ import annotations

from executor.limits import Limits
from fuzz.reach import families

WHOLE = "whole"
_FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})
_WHOLE_NUMBERS = frozenset({"int64", "int32", "int16", "int8", "uint8", "bool"})
_PLAIN = ("indexed and masked writes", "lists", "moves", "out=", "metadata")

PROFILES = {
    WHOLE: Limits(),
    "apart": Limits(aliased_inputs=False),
    "floats": Limits(dtypes=_FLOATS),
    "integers": Limits(dtypes=_WHOLE_NUMBERS),
    "plain": Limits(banned_ops=frozenset(op for name in _PLAIN for op in families(Limits(), exact=True)[name])),
    "still": Limits(metadata_mutation=False, raising=False, numbers=False),
}
"""By name, the limits within which a turn draws; they are met with those of the target and of the flags."""


def fitting(limits: Limits) -> tuple[str, ...]:
    """The names of the profiles that leave something to draw within a target's limits, and that change these."""
    takes = [dtype for dtype in sorted(_FLOATS | _WHOLE_NUMBERS) if limits.takes_dtype(dtype)]
    met = {name: limits.meet(profile) for name, profile in PROFILES.items()}
    return tuple(
        name
        for name, narrower in met.items()
        if name == WHOLE or (narrower != limits and any(narrower.takes_dtype(dtype) for dtype in takes))
    )
