"""`docs/planted.md` from what `benchmarks.planted_faults` measured.

    python -m benchmarks.planted_page [FILE]

With a file that `benchmarks.planted_faults --json` wrote, its results are kept first.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.faults import AREAS, FAULTS, Fault
from executor import printing
from executor.program import Inputs, Program

RESULTS = Path(__file__).resolve().with_name("planted.json")
DOCUMENT = RESULTS.parents[1] / "docs" / "planted.md"
_HEAD = """# Planted faults

How do we know that the harness would find a bug? By planting some. Each fault below is a mistake that an alias analysis could make, put
into our own compiler by replacing functions from outside. The strategies know nothing of it; the page says how long they took.
It is made by `python -m benchmarks.planted_faults --write`.
"""


class Hunt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One search for a fault from one seed: whether it was found, after how many programs and seconds of the process.

    Then the seconds of shrinking, and what is left: statements, inputs, the elements of the largest storage, the symptoms,
    the program, and the further calls that it takes to see the fault.
    """

    seed: int
    found: bool = False
    programs: int = 0
    seconds: float = 0.0
    shrinking: float = 0.0
    statements: int = 0
    inputs: int = 0
    elements: int = 0
    symptoms: str = ""
    program: Program | None = None
    calls: tuple[Inputs, ...] = ()


Results = Mapping[str, Sequence[Hunt]]


def read(path: Path = RESULTS) -> dict[str, list[Hunt]]:
    """What was measured, by fault; of each only the smallest program is kept. Nothing if there is no such file."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, list[Hunt]]) if path.exists() else {}


def write(results: Results, path: Path = RESULTS) -> None:
    """Writes results, of the faults that there are, a hunt a line."""
    lines = []
    for name in filter(results.__contains__, FAULTS):
        kept = smallest(results[name])
        hunts = [one if one is kept else msgspec.structs.replace(one, program=None, calls=()) for one in results[name]]
        rows = ",\n".join(msgspec.json.encode(one).decode() for one in hunts)
        lines.append(f"{msgspec.json.encode(name).decode()}: [\n{rows}\n]")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def smallest(hunts: Sequence[Hunt]) -> Hunt:
    """The hunt that ended with the smallest program; any, if none has one."""
    return min(hunts, key=lambda one: (one.program is None, one.statements, one.inputs, one.elements, one.seed))


def document(results: Results) -> str:
    """The page."""
    parts = [_HEAD, _summary(results)]
    for area, faults in AREAS.items():
        parts += [f"## {area}\n", *_table(faults, results), ""]
        for name, fault in faults.items():
            parts += _section(name, fault, results.get(name, ()))
    return "\n".join(parts)


def _summary(results: Results) -> str:
    ours = {name: hunts for name, hunts in results.items() if name in FAULTS}
    every = [one for hunts in ours.values() for one in hunts]
    found = [one for one in every if one.found]
    if not found:
        return "Nothing was measured yet.\n"
    seeds = sorted({len(hunts) for hunts in ours.values()})
    soon = sum(10 * sum(one.found and one.seconds <= 30 for one in hunts) >= 9 * len(hunts) for hunts in ours.values())
    programs, seconds, *sizes = (
        f"{median(getattr(one, field) for one in found):g}"
        for field in ("programs", "seconds", "statements", "inputs", "elements")
    )
    each = "one seed" if seeds == [1] else f"{' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seeds"
    return f"""Of {len(FAULTS)} faults {len(ours)} were looked for, with {each} each; {soon} were found within 30 seconds by at least
nine in ten of their seeds. {len(found)} of {len(every)} hunts found their fault; the medians are {programs} programs and {seconds} seconds.
What is left after shrinking has, in the median, {sizes[0]} statements, {sizes[1]} inputs, and {sizes[2]} elements in the largest storage.

Seconds are those of one process on one core, whatever else the machine does. *Found* says in how many seeds; the other numbers are medians
over these. *Elements* are those of the largest storage. A campaign calls a compiled function again in one batch of eight only, so that
faults of the cache take longer.
"""


def _table(faults: Mapping[str, Fault], results: Results) -> Iterator[str]:
    yield "| fault | found | programs | seconds | statements | inputs | elements | shrunk in s |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name in faults:
        hunts = results.get(name, ())
        found = [one for one in hunts if one.found]
        fields = ("programs", "seconds", "statements", "inputs", "elements", "shrinking")
        numbers = [f"{median(getattr(one, field) for one in found):g}" if found else "" for field in fields]
        yield f"| {name} | {len(found)}/{len(hunts)} | {' | '.join(numbers)} |"


def _section(name: str, fault: Fault, hunts: Sequence[Hunt]) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{fault.what}\n"
    one = smallest(hunts) if hunts else None
    if one is not None and one.program is not None:
        again = " when it is called again" if one.calls else ""
        yield f"Shows as {one.symptoms}{again}:\n"
        yield f"```python\n{printing.listing(one.program)}\n```\n"


def publish(results: Results) -> None:
    """Keeps results beside those of the faults that were not tried, and writes the page."""
    write({**read(), **results})
    DOCUMENT.write_text(document(read()), encoding="utf-8")


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, metavar="FILE", help="results to keep first")
    given = parser.parse_args()
    publish(read(given.results) if given.results else {})


if __name__ == "__main__":
    main()
