"""Runs many random programs on targets that must never differ from eager, and measures rate and memory.

    python benchmarks/soundness.py [--programs 20000] [--gradients] [TARGET]...       (default targets: null pipeline:eager)

Prints a row a target: programs, failures, programs per second of one process, and its peak memory after the first tenth
and at the end. With `--gradients` inputs require grad. Exits with 1 if a program failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from executor import targets
from fuzz.batch import EXAMPLES, Batch
from fuzz.campaign import batch_seed, judge
from strategies.programs import programs


def resident() -> float:
    """Memory of this process now, in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def measure(name: str, count: int, seed: int, *, gradients: bool = False) -> tuple[int, int, float, float, float]:
    """Programs, failures, seconds, and memory after a tenth of the programs and after all."""
    compiler = targets.get(name)
    strategy = programs(compiler.limits, gradients=gradients)
    done = failures = number = 0
    early = 0.0
    start = time.perf_counter()
    while done < count:
        own = batch_seed(seed, name, 0, number)
        batch = Batch(judge(compiler, own), time.monotonic() + 3600, 30.0)
        batch.run(strategy, own, EXAMPLES)
        done, failures, number = done + batch.programs, failures + batch.failures, number + 1
        early = early or (resident() if done >= count / 10 else 0.0)
        if batch.smallest is not None:
            print(batch.verdict, batch.smallest, sep="\n", file=sys.stderr)
    return done, failures, time.perf_counter() - start, early, resident()


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("targets", nargs="*", default=["null", "pipeline:eager"])
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gradients", action="store_true", help="inputs require grad")
    given = parser.parse_args()
    print(f"{'target':<16} {'programs':>9} {'failures':>9} {'programs/s':>11} {'MB at 10 %':>11} {'MB at end':>10}")
    failed = 0
    for name in given.targets:
        done, failures, seconds, early, late = measure(name, given.programs, given.seed, gradients=given.gradients)
        print(f"{name:<16} {done:>9} {failures:>9} {done / seconds:>11.0f} {early:>11.0f} {late:>10.0f}", flush=True)
        failed += failures
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
