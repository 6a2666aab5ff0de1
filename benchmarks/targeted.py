"""Whether Hypothesis's `target()` helps: programs driven towards more dependences, beside programs drawn afresh.

    python -m benchmarks.targeted [--batches 10] [--seeds 3] [--seconds 30] [FAULT]...

Three ways to draw a batch: `uniform`, the campaign's own, each program afresh; `hypothesis`, Hypothesis's own backend, which
varies what it has drawn; and `target`, the same backend, which is told of each program how many accesses depend on each other,
and how many of them overlap in part, and tries to make both numbers larger in the second half of the batch. A backend that is
not Hypothesis's own has no such phase, so that `target()` under `uniform` would do nothing.

Prints for each way, over so many batches of 200: the share of programs that no earlier one equals, that have a read and a write
which overlap, and which overlap in part; statements in the median; dependences of a program in the mean; seconds of the process
for a thousand programs, with judging, and with looking at the dependences where `target()` has to be told of them. Then for
planted faults (see `benchmarks/faults`), from so many seeds each: programs and seconds of the process to the first failure, in
the median. The ways take turns, so that what else the machine does counts alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import hypothesis
import torch
from hypothesis import HealthCheck, Phase

from benchmarks.planted_faults import Faulty, warm
from executor import targets
from executor.program import Program
from executor.targets import Target
from fuzz.campaign import batch_seed, judge, set_aside
from fuzz.coverage import OVERLAPPING
from fuzz.hazards import hazards
from fuzz.uniform import BACKEND
from strategies.programs import programs

WAYS = ("uniform", "hypothesis", "target")
EXAMPLES = 200
FAULTS = (
    "storage offset ignored", "bounds taken for containment", "overlap by one element missed", "strides ignored",
    "a reaching write missed", "barrier dropped", "write-back of a stale value", "cache key without the alias pattern",
)  # fmt: skip


class _Found(Exception):
    """A program fails."""


def batch(way: str, target: Target, seed: int, judged: Callable[[Program], bool]) -> None:
    """Draws a batch in this way, until a program of it fails."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=(Phase.generate, *((Phase.target,) if way == "target" else ())),
        report_multiple_bugs=False,
        print_blob=False,
        backend=BACKEND if way == "uniform" else "hypothesis",
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(programs(target.limits))
    def property_(program: Program) -> None:
        if way == "target":
            relations = [hazard.relation for hazard in hazards(program)]
            hypothesis.target(float(len(relations)), label="dependences")
            hypothesis.target(float(relations.count("partial")), label="overlaps in part")
        if not judged(program):
            raise _Found

    with suppress(_Found):
        property_()


class Drawn(NamedTuple):
    """What one way's programs were like; `seconds` are those of the process."""

    programs: list[Program]
    seconds: float

    def row(self, way: str) -> str:
        """The numbers of the first table."""
        found = [list(hazards(program)) for program in self.programs]
        read = [{hazard.relation for hazard in one if hazard.kind != "write-after-write"} for one in found]
        shares = (
            len({program.digest for program in self.programs}),
            sum(not relations.isdisjoint(OVERLAPPING) for relations in read),
            sum("partial" in relations for relations in read),
        )
        percent = " ".join(f"{100 * share / len(self.programs):12.1f}" for share in shares)
        statements = statistics.median(len(program.calls) for program in self.programs)
        dependences = statistics.mean(map(len, found))
        slow = 1000 * self.seconds / len(self.programs)
        return f"{way:<12}{len(self.programs):>9} {percent} {statements:11g} {dependences:12.1f} {slow:10.2f}"


def compared(batches: int) -> None:
    """Prints what the programs are like."""
    target = targets.get("pipeline")
    found = {way: Drawn([], 0.0) for way in WAYS}
    for number in range(batches):
        for way in WAYS:
            seed = batch_seed(0, target.name, 0, number)
            verdict, drawn = judge(target, seed), found[way]

            def judged(program: Program, verdict: Callable[[Program], object] = verdict, drawn: Drawn = drawn) -> bool:
                drawn.programs.append(program)
                verdict(program)
                return True

            start = time.process_time()
            batch(way, target, seed, judged)
            found[way] = drawn._replace(seconds=drawn.seconds + time.process_time() - start)
    heads = ("distinct %", "overlap %", "in part %")
    print(f"{'':<12}{'programs':>9} {' '.join(f'{head:>12}' for head in heads)}  statements  dependences   s / 1000")
    print("\n".join(drawn.row(way) for way, drawn in found.items()))


def hunt(way: str, fault: str, seed: int, seconds: float) -> tuple[int, float] | None:
    """Programs and seconds of the process until the fault shows; None if it does not within so many seconds."""
    target, count, start = Faulty(fault), 0, time.process_time()
    for number in range(10_000):
        own = batch_seed(seed, target.name, 0, number)
        verdict, failed = judge(target, own), False

        def judged(program: Program, verdict: Callable[[Program], object] = verdict) -> bool:
            nonlocal count, failed
            if failed or time.process_time() - start > seconds:
                return False
            count += 1
            failed = not verdict(program).ok  # type: ignore[attr-defined]
            return not failed

        batch(way, target, own, judged)
        if failed:
            return count, time.process_time() - start
        if time.process_time() - start > seconds:
            break
    return None


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", default=FAULTS, metavar="FAULT")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="to find a fault")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warm()
    with set_aside():
        compared(given.batches)
        print(f"\n{'programs, seconds to find':<40}" + "".join(f"{way:>20}" for way in WAYS))
        for fault in given.faults:
            found = {way: [] for way in WAYS}  # type: dict[str, list[tuple[int, float] | None]]
            for seed in range(given.seeds):
                for way in WAYS:
                    found[way].append(hunt(way, fault, seed, given.seconds))
            print(f"{fault:<40}" + "".join(f"{_middle(found[way], given.seconds):>20}" for way in WAYS), flush=True)


def _middle(hunts: list[tuple[int, float] | None], seconds: float) -> str:
    times = [seconds if one is None else one[1] for one in hunts]
    counts = [one[0] for one in hunts if one is not None]
    missed = f" -{len(hunts) - len(counts)}" if len(counts) < len(hunts) else ""
    return f"{statistics.median(counts) if counts else 0:g}, {statistics.median(times):.2f}{missed}"


if __name__ == "__main__":
    main()
