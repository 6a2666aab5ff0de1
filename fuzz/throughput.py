"""How many programs a run judged in each part of its time, from the totals that its shards wrote now and then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

PARTS = 60


def intervals(events: Iterable[dict[str, Any]]) -> list[tuple[float, float, int]]:
    """From one shard's events: the times between which it judged so many programs.

    Totals that are smaller than before are those of a shard that was killed and began anew.
    """
    found: list[tuple[float, float, int]] = []
    begun, before = None, 0
    for event in events:
        if event["event"] == "begin":
            begun, before = event["time"], 0
        elif event["event"] == "batch":
            total = sum(event["counts"].values())
            since = begun if begun is not None else event["time"] - event["seconds"]
            found.append((since, event["time"], total - before if total >= before else total))
            begun, before = event["time"], total
    return found


def spread(found: Sequence[tuple[float, float, int]], begun: float, ended: float) -> list[tuple[float, float]]:
    """Programs a second in equal parts of the time from `begun` to `ended`, each with the second at which it ends.

    An interval's programs are spread evenly over it.
    """
    width = (ended - begun) / PARTS
    if width <= 0:
        return []
    rates = [0.0] * PARTS
    for start, stop, programs in found:
        length = max(stop - start, 1e-3)
        for k in range(max(int((start - begun) / width), 0), min(int((stop - begun) / width) + 1, PARTS)):
            low, high = begun + k * width, begun + (k + 1) * width
            rates[k] += programs * max(min(stop, high) - max(start, low), 0.0) / length / width
    return [(round((k + 1) * width, 3), round(rate, 2)) for k, rate in enumerate(rates)]
