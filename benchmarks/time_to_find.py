"""How long it takes, from a cold start, to find and shrink a compiler's first silent bug.

    python -m benchmarks.time_to_find [TARGET] [--seeds 5] [--budget 120]       (default target: thunder)

Each seed runs in a fresh process, imports included. Prints a row a seed: programs and seconds until the first wrong number,
wrong memory or wrong alias, seconds until it was shrunk, its statements and inputs; then the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SILENT = ("value", "memory", "alias", "identity", "dtype", "shape")


def child(name: str, seed: int, budget: float) -> None:
    """Runs batches until a silent failure is found and shrunk, and prints what happened as JSON."""
    from executor import targets
    from fuzz.batch import Batch
    from fuzz.campaign import batch_seed, judge
    from fuzz.findings import Kind
    from strategies.programs import programs

    start = time.monotonic()
    begun = float(os.environ["ALIASFUZZ_BEGUN"])
    imported = time.time() - begun
    target, number, drawn = targets.get(name), 0, 0

    def loud(kind: Kind) -> bool:
        return kind.symptom not in SILENT

    while time.monotonic() < start + budget:
        own = batch_seed(seed, name, 0, number)
        batch = Batch(judge(target, own), start + budget, 40.0, loud)
        batch.run(programs(target.limits), own)
        number, drawn = number + 1, drawn + batch.programs
        if batch.verdict is not None and batch.smallest is not None:
            found = batch.found_at - start + imported
            shrunk = time.time() - begun - found
            size = (len(batch.smallest.calls), len(batch.smallest.inputs))
            print(json.dumps([drawn, found, shrunk, *size, batch.verdict.symptom]))
            return
    print(json.dumps(None))


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", default="thunder")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(given.target, given.child, given.budget)
        return 0
    print(f"{'seed':>6} {'found after s':>14} {'shrunk in s':>12} {'statements':>11} {'inputs':>7}  symptom")
    rows = []
    for seed in range(given.seeds):
        row = measure(given.target, seed, given.budget)
        if row is None:
            print(f"{seed:>6} {'not found':>14}")
            continue
        rows.append(row)
        print(f"{seed:>6} {row[1]:>14.1f} {row[2]:>12.1f} {row[3]:>11} {row[4]:>7}  {row[5]}", flush=True)
    if rows:
        middle = [statistics.median(row[k] for row in rows) for k in range(1, 5)]
        print(f"{'median':>6} {middle[0]:>14.1f} {middle[1]:>12.1f} {middle[2]:>11.0f} {middle[3]:>7.0f}")
    return 0 if len(rows) == given.seeds else 1


def measure(name: str, seed: int, budget: float) -> list[float] | None:
    """The child's answer: programs, seconds to find, seconds to shrink, statements, inputs, symptom; None if not found."""
    command = [sys.executable, "-m", "benchmarks.time_to_find", name, "--budget", str(budget), "--child", str(seed)]
    env = {**os.environ, "ALIASFUZZ_BEGUN": repr(time.time())}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    row: list[float] | None = json.loads(done.stdout.splitlines()[-1])
    return row


if __name__ == "__main__":
    sys.exit(main())
