"""Random programs through the alias pipeline under hostile schedules, in all three modes: none may differ from eager.

    python -m benchmarks.alias_soundness [--programs 200000] [--seconds S] [--seed 0] [--gradients] [--jobs 1]

Each program is compiled in each mode, with a share of its write-backs early and schedules drawn anew; everything
observable is compared with eager. With `--gradients` inputs require grad, and the caller goes backward; 50,000 programs then.
Batches run in so many processes. Prints the smallest program of each batch that failed, then a row a mode, and programs a second
of one core: of the processor's time, in which what waits for the machine does not count.
Exits with 1 if a program failed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from executor.backends.weak_memory import WeakMemory
from executor.pipeline import Aliases
from executor.targets.pipeline import Pipeline
from fuzz.batch import EXAMPLES, Batch
from fuzz.campaign import batch_seed, judge
from strategies.programs import programs

MODES: tuple[Aliases, ...] = ("barrier", "blend", "auto")


class Outcome(NamedTuple):
    """What came of a batch: `seconds` of the processor's time, and its smallest failure in words, if there is one."""

    mode: Aliases
    programs: int
    failures: int
    seconds: float
    failure: str


def batch(mode: Aliases, seed: int, number: int, *, gradients: bool = False) -> Batch:
    """One batch of programs in a mode; a third each with no, half and all of the early write-backs that are allowed."""
    drawn = batch_seed(seed, f"pipeline:{mode}", 0, number)
    target = Pipeline(f"pipeline:{mode}", WeakMemory(drawn, early=(number % 3) / 2), mode)
    found = Batch(judge(target, drawn), time.monotonic() + 3600, 30.0)
    found.run(programs(target.limits, gradients=gradients), drawn, EXAMPLES)
    return found


def outcome(number: int, seed: int, *, gradients: bool) -> Outcome:
    """Runs the batch of this number, whose mode is the number's turn."""
    start, mode = time.process_time(), MODES[number % len(MODES)]
    found = batch(mode, seed, number, gradients=gradients)
    failure = "" if found.smallest is None else f"batch {number}: {found.verdict}\n{found.smallest}"
    return Outcome(mode, found.programs, found.failures, time.process_time() - start, failure)


@contextlib.contextmanager
def outcomes(seed: int, jobs: int, *, gradients: bool) -> Iterator[Iterator[Outcome]]:
    """All batches, one after the other, for as long as they are asked for; from so many processes if there are several.

    Raises `BrokenProcessPool` if one of these dies.
    """
    run = partial(outcome, seed=seed, gradients=gradients)
    if jobs == 1:
        yield map(run, itertools.count())
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        rounds = (pool.map(run, range(start, start + jobs)) for start in itertools.count(0, jobs))
        yield itertools.chain.from_iterable(rounds)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, help="200,000; with gradients 50,000")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gradients", action="store_true", help="inputs require grad")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    wanted = options.programs or (50_000 if options.gradients else 200_000)
    start, seen = time.monotonic(), list[Outcome]()
    with (
        contextlib.suppress(KeyboardInterrupt),
        outcomes(options.seed, options.jobs, gradients=options.gradients) as some,
    ):
        for found in some:  # what was done until Ctrl-C is told
            seen.append(found)
            if found.failure:
                print(found.failure, flush=True)
            if sum(one.programs for one in seen) >= wanted or time.monotonic() - start >= options.seconds:
                break
    print(f"{'mode':8} {'programs':>9} {'failures':>9}")
    for mode in (*MODES, "all"):
        own = [one for one in seen if mode in (one.mode, "all")]
        print(f"{mode:8} {sum(one.programs for one in own):9} {sum(one.failures for one in own):9}")
    print(f"{sum(one.programs for one in seen) / max(sum(one.seconds for one in seen), 1e-9):.0f} programs/s a core")
    return 1 if any(one.failures for one in seen) else 0


if __name__ == "__main__":
    sys.exit(main())
