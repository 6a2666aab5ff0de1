"""Random programs through the alias pipeline under hostile schedules, in all three modes: none may differ from eager.

    python -m benchmarks.alias_soundness [--programs 200000] [--seconds S] [--seed 0] [--gradients]

Each program is compiled in each mode, with a share of its write-backs early and schedules drawn anew; everything
observable is compared with eager. With `--gradients` inputs require grad, and the caller goes backward; 50,000 programs then. Prints a row a mode, and the smallest failing program if there is one.
Exits with 1 if a program failed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

from executor.backends.weak_memory import WeakMemory
from executor.pipeline import Aliases
from executor.targets.pipeline import Pipeline
from fuzz.batch import EXAMPLES, Batch
from fuzz.campaign import batch_seed, judge
from strategies.programs import programs

MODES: tuple[Aliases, ...] = ("barrier", "blend", "auto")


def batch(mode: Aliases, seed: int, number: int, *, gradients: bool = False) -> Batch:
    """One batch of programs in a mode; a third each with no, half and all of the early write-backs that are allowed."""
    drawn = batch_seed(seed, f"pipeline:{mode}", 0, number)
    target = Pipeline(f"pipeline:{mode}", WeakMemory(drawn, early=(number % 3) / 2), mode)
    found = Batch(judge(target, drawn), time.monotonic() + 3600, 30.0)
    found.run(programs(target.limits, gradients=gradients), drawn, EXAMPLES)
    return found


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, help="200,000; with gradients 50,000")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gradients", action="store_true", help="inputs require grad")
    options = parser.parse_args()
    programs_wanted = options.programs or (50_000 if options.gradients else 200_000)
    start, done, failures = time.monotonic(), dict.fromkeys(MODES, 0), dict.fromkeys(MODES, 0)
    number = 0
    with contextlib.suppress(KeyboardInterrupt):  # what was done until then is told
        while sum(done.values()) < programs_wanted and time.monotonic() - start < options.seconds:
            mode = MODES[number % len(MODES)]
            found = batch(mode, options.seed, number, gradients=options.gradients)
            done[mode] += found.programs
            failures[mode] += found.failures
            number += 1
            if found.smallest is not None:
                print(f"{found.verdict}\n{found.smallest}", flush=True)
    rate = sum(done.values()) / (time.monotonic() - start)
    print(f"{'mode':8} {'programs':>9} {'failures':>9}")
    for mode in MODES:
        print(f"{mode:8} {done[mode]:9} {failures[mode]:9}")
    print(f"{rate:.0f} programs/s")
    return 1 if any(failures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
