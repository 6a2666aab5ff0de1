"""How few regions, barriers, breaks and late copies the pipeline needs for every program of the corpus, mode by mode.

    python -m benchmarks.alias_counts [--folder corpus/cases]

Prints a row a case: `regions/barriers/breaks/copies` under "barrier", "blend" and "auto", and the totals.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from corpus.case import Case
from corpus.store import read
from executor.backends.weak_memory import WeakMemory
from executor.pipeline import Aliases, compile_program
from executor.program import Program

MODES: tuple[Aliases, ...] = ("barrier", "blend", "auto")
COUNTS = ("regions", "barriers", "breaks", "copies")
CASES = Path(__file__).parents[1] / "corpus" / "cases"


def counts(program: Program, mode: Aliases) -> tuple[int, ...]:
    """Regions, barriers, breaks and late copies of a program; all write-backs are late."""
    compilation = compile_program(program, WeakMemory(early=0.0), mode)
    return tuple(getattr(compilation, name) for name in COUNTS)


def table(cases: Iterable[tuple[str, Case]]) -> Iterator[tuple[str, list[tuple[int, ...]]]]:
    """A row for each case that eager accepts: its name, and the counts under each mode."""
    for name, case in cases:
        if case.program.raises is None:
            yield name, [counts(case.program, mode) for mode in MODES]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=CASES)
    files = sorted(parser.parse_args().folder.glob("*.json"))
    rows = list(table((file.stem.rpartition("-")[0], read(file)) for file in files))
    width = max(len(name) for name, _ in rows)
    print(f"{'case':{width}}  " + "  ".join(f"{mode:>11}" for mode in MODES))
    for name, found in [*rows, ("total", [tuple(map(sum, zip(*column, strict=True))) for column in _columns(rows)])]:
        print(f"{name:{width}}  " + "  ".join(f"{'/'.join(map(str, row)):>11}" for row in found))
    print(f"{len(rows)} cases; each entry is {'/'.join(COUNTS)}")


def _columns(rows: list[tuple[str, list[tuple[int, ...]]]]) -> list[tuple[tuple[int, ...], ...]]:
    return list(zip(*(found for _, found in rows), strict=True))


if __name__ == "__main__":
    main()
