"""What a target's programs were like, as tables: shares, histograms by family, and what was never reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from executor.limits import EVERYTHING
from fuzz.coverage import OF_COMPILATION, OF_MEMORY
from fuzz.hazards import KINDS, RELATIONS
from fuzz.reach import families
from fuzz.record import TargetRecord

OTHER = "other"


class Bar(NamedTuple):
    """A name, how often it was met, and the length of its bar in percent."""

    name: str
    times: int
    percent: float


class Histogram(NamedTuple):
    """Bars under a title, the longest first; those that could have been and were not, last."""

    title: str
    bars: list[Bar]

    @property
    def missed(self) -> int:
        """How many were never reached."""
        return sum(not bar.times for bar in self.bars)


class Share(NamedTuple):
    """A feature, the share of programs that have it in percent, and of how many programs that is; None if nothing is known."""

    name: str
    percent: float | None
    of: int


class Cell(NamedTuple):
    """A dependence by kind and relation: how often, how strong its colour is from 0 to 1, whether it could have been."""

    times: int
    strength: float
    missed: bool


def shares(target: TargetRecord) -> list[Share]:
    """The features of its programs."""
    coverage = target.coverage
    return [
        Share(name, None if share is None else 100 * share, of)
        for names, of in ((OF_MEMORY, coverage.looked_at), (OF_COMPILATION, coverage.compiled))
        for name in names
        for share in (coverage.share(name),)
    ]


def histograms(target: TargetRecord) -> list[Histogram]:
    """Its operators by family, its dtypes, and how its inputs lie."""
    coverage, missed = target.coverage, target.never_reached
    lacking = missed.get("operators", [])
    home = {
        op: family for exact in (False, True) for family, ops in families(EVERYTHING, exact=exact).items() for op in ops
    }
    names = (*families(EVERYTHING, exact=True), OTHER)
    found = [
        histogram(
            f"operators: {family}",
            {op: count for op, count in coverage.operators.items() if home.get(op, OTHER) == family},
            [op for op in lacking if home.get(op, OTHER) == family],
        )
        for family in names
    ]
    found += [
        histogram("dtypes", coverage.dtypes, missed.get("dtypes", [])),
        histogram("pairs of inputs", coverage.inputs, missed.get("inputs", [])),
    ]
    return [one for one in found if one.bars]


def histogram(title: str, counted: Mapping[str, int], missed: Iterable[str]) -> Histogram:
    """The bars of these counts."""
    most = max(counted.values(), default=0)
    rows = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    bars = [Bar(name, count, round(100 * count / most, 2)) for name, count in rows]
    return Histogram(title, bars + [Bar(name, 0, 0.0) for name in missed if name not in counted])


def dependences(target: TargetRecord) -> tuple[tuple[str, ...], dict[str, list[Cell]]]:
    """How accesses depend on each other: the relations, and for each kind a cell a relation."""
    counted, missed = target.coverage.dependences, target.never_reached.get("dependences", [])
    most = max(counted.values(), default=0)
    columns = RELATIONS[1:]

    def cell(kind: str, relation: str) -> Cell:
        name = f"{kind}, {relation}"
        count = counted.get(name, 0)
        return Cell(count, round((count / most) ** 0.5, 3) if count else 0.0, name in missed)

    return columns, {kind: [cell(kind, relation) for relation in columns] for kind in reversed(KINDS[1:])}
