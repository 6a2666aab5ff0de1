"""A Hypothesis backend that draws every program afresh, each choice uniformly.

Hypothesis's own backend varies an example that it has drawn in several ways, which finds equal values in unrelated places.
Here a quarter of those variants are programs that were judged before, and a seventh break off unfinished. Shrinking is
Hypothesis's own whatever the backend. See "Alternative backends" in Hypothesis's reference.
"""

from __future__ import annotations

from hypothesis.internal.conjecture.providers import (
    AVAILABLE_PROVIDERS,
    COLLECTION_DEFAULT_MAX_SIZE,
    HypothesisProvider,
)

BACKEND = "aliasfuzz-uniform"  # for `hypothesis.settings(backend=BACKEND)`


class Uniform(HypothesisProvider):
    """Draws bounded integers and bytes uniformly from the run's seed, without constants that are found in source code."""

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        """A number from `min_value` to `max_value`, both included; without both bounds, or with weights, Hypothesis's."""
        if min_value is None or max_value is None or weights is not None or self._random is None:
            return super().draw_integer(min_value, max_value, weights=weights, shrink_towards=shrink_towards)
        return self._random.randint(min_value, max_value)

    def draw_bytes(self, min_size: int = 0, max_size: int = COLLECTION_DEFAULT_MAX_SIZE) -> bytes:
        """Bytes of a fixed size; where the size is open, Hypothesis's."""
        if min_size != max_size or self._random is None:
            return super().draw_bytes(min_size, max_size)
        return self._random.randbytes(min_size)


AVAILABLE_PROVIDERS[BACKEND] = f"{Uniform.__module__}.{Uniform.__qualname__}"
