"""A Hypothesis backend that draws every program afresh, each choice uniformly.

Hypothesis's own backend varies an example that it has drawn in several ways, which finds equal values in unrelated places.
Here a quarter of those variants are programs that were judged before, and a seventh break off unfinished. Shrinking is
Hypothesis's own whatever the backend. See "Alternative backends" in Hypothesis's reference.
"""

from __future__ import annotations

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

BACKEND = "aliasfuzz-uniform"  # for `hypothesis.settings(backend=BACKEND)`


class Uniform(HypothesisProvider):
    """Draws bounded integers uniformly from the run's seed, without constants that are found in source code."""

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


AVAILABLE_PROVIDERS[BACKEND] = f"{Uniform.__module__}.{Uniform.__qualname__}"
