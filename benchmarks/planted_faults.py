"""How fast the harness finds and shrinks faults that are planted in the pipeline on purpose: `docs/planted.md`.

    python -m benchmarks.planted_faults [--seeds 10] [--seconds 30] [--shrink 30] [--jobs 1] [--limit 480] [--quick]
        [--json FILE] [--write] [FAULT]...

Each fault (see `benchmarks/faults`) is switched on by replacing functions. Prints a row a fault: in how many seeds it was
found; then medians: programs and seconds until the first failure, seconds of shrinking, and the statements, inputs and
elements of the largest storage that are left; then what failed. Seconds are those of the process, so that a busy machine
does not count. `--jobs` hunts run at a time, each in a process that has drawn some programs before; `--limit` ends the
run: no hunt begins after so many seconds, and the table is of those that did. `--quick` takes one seed and ten seconds.
`--json` writes the results to a file, of which `python -m benchmarks.planted_page FILE` makes the page. `--write` puts them
into `benchmarks/planted.json`, where those of faults that were not tried stay, and writes the page at once.
Exits with 1 if a fault was missed in more than one seed of ten.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

import fuzz.batch
from benchmarks.faults import FAULTS, switched_on
from benchmarks.planted_page import Hunt, publish, smallest, write
from executor.printing import function
from executor.program import Program
from executor.targets.base import Target
from executor.targets.pipeline import Pipeline
from fuzz.batch import Batch
from fuzz.campaign import batch_seed, judge
from strategies.programs import programs


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Switches a fault on."""
    with switched_on(FAULTS[name]):
        yield


class Faulty(Target):
    """Our pipeline, or a stage of it, with one fault."""

    needs_source = False

    def __init__(self, fault: str, sound: Target | None = None) -> None:
        self.fault = fault
        self.sound = sound or Pipeline(f"pipeline with: {fault}", "weak_memory", FAULTS[fault].aliases)
        self.name, self.limits, self.fine_stages = self.sound.name, self.sound.limits, self.sound.fine_stages
        self.stages = {
            stage: self if part is self.sound else Faulty(fault, part) for stage, part in self.sound.stages.items()
        }

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        """See `Target.compile`."""
        compiled = self.sound.compile(fn, example_args)

        def run(*args: Any, **kwargs: Any) -> Any:
            with planted(self.fault):
                return compiled(*args, **kwargs)

        return run


def hunt(name: str, seconds: float, shrink: float, seed: int = 0) -> tuple[Batch, Hunt]:
    """The batch that found the fault (or the last one), and what it took. Seconds are those of the process."""
    target = Faulty(name)
    strategy = programs(target.limits, gradients=FAULTS[name].gradients)
    start, number, drawn, found = time.process_time(), 0, 0, (0, 0.0)

    def judged(program: Program) -> Any:
        nonlocal drawn, found
        result = judge(target, own)(program)
        drawn += 1
        if not result.ok and not found[0]:
            found = drawn, time.process_time() - start
        return result

    with patch.object(fuzz.batch, "time", SimpleNamespace(monotonic=time.process_time)):
        while True:
            own = batch_seed(seed, target.name, 0, number)
            batch = Batch(judged, start + seconds, shrink, target=target)
            batch.run(strategy, own)
            number += 1
            if batch.smallest is not None or time.process_time() > start + seconds:
                return batch, _hunt(batch, seed, found, time.process_time() - start)


def _hunt(batch: Batch, seed: int, found: tuple[int, float], spent: float) -> Hunt:
    small, verdict = batch.smallest, batch.verdict
    if small is None or verdict is None:
        return Hunt(seed)
    return Hunt(
        seed,
        found=True,
        programs=found[0],
        seconds=round(found[1], 2),
        shrinking=round(spent - found[1], 1),
        statements=statements(small),
        inputs=len(small.inputs),
        elements=elements(small),
        symptoms=", ".join(verdict.symptoms),
        program=small,
        calls=verdict.calls if verdict.call else (),
    )


def statements(program: Program) -> int:
    """Statements of the printed function, its return aside."""
    body = function(program).partition("def program(")[2]  # classes of its own stand before it
    return len(body.splitlines()) - 2


def elements(program: Program) -> int:
    """How many elements the largest storage of an input holds, in the dtype of that input."""
    inputs = program.entry
    return max((inputs.storages[v.storage].nbytes // v.itemsize for v in inputs.values), default=0)


def warm() -> None:
    """Imports and caches what every hunt needs, so that the first one of a process is no slower than others."""
    torch.set_num_threads(1)
    target = Pipeline("pipeline", "weak_memory", "auto")
    for number in range(2):  # the second one's functions are called again
        seed = batch_seed(0, target.name, 0, number)
        Batch(judge(target, seed), float("inf"), 0.0, target=target).run(programs(target.limits), seed, examples=60)


def hunts(
    names: Sequence[str], seeds: int, seconds: float, shrink: float, *, jobs: int, limit: float
) -> Iterator[tuple[str, list[Hunt]]]:
    """The hunts for each fault from so many seeds, as soon as they are complete; those that began within the limit.

    All faults are hunted from one seed before the next, so that the limit ends seeds and not faults.
    """
    deadline = time.monotonic() + limit
    found: dict[str, list[Hunt]] = defaultdict(list)
    with ProcessPoolExecutor(jobs, get_context("spawn"), warm) as pool:
        tasks: dict[Future[Hunt | None], str] = {
            pool.submit(_begun_before, deadline, name, seconds, shrink, seed): name
            for seed in range(seeds)
            for name in names
        }
        left = dict.fromkeys(names, seeds)
        for task in as_completed(tasks):
            name, result = tasks[task], task.result()
            left[name] -= 1
            if result is not None:
                found[name].append(result)
            if not left[name] and found[name]:
                yield name, sorted(found[name], key=lambda one: one.seed)


def _begun_before(deadline: float, name: str, seconds: float, shrink: float, seed: int) -> Hunt | None:
    """A hunt, or None if it is too late; the clock is the machine's, so that all processes mean the same."""
    return hunt(name, seconds, shrink, seed)[1] if time.monotonic() < deadline else None


def _row(name: str, results: Sequence[Hunt]) -> str:
    found = [one for one in results if one.found]
    if not found:
        return f"{name:52} {f'0/{len(results)}':>6}"
    middle = [median(getattr(one, field) for one in found) for field in _MEASURED]
    numbers = " ".join(f"{number:8g}" for number in middle)
    return f"{name:52} {f'{len(found)}/{len(results)}':>6} {numbers}  {smallest(results).symptoms}"


_MEASURED = ("programs", "seconds", "shrinking", "statements", "inputs", "elements")


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", default=list(FAULTS), metavar="FAULT")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0, help="to find it")
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds to shrink it")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a hunt at a time")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no hunt begins")
    parser.add_argument("--quick", action="store_true", help="one seed, ten seconds to find and to shrink")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--write", action="store_true", help="keep the results, and write the page")
    given = parser.parse_args()
    seeds, seconds, shrink = (1, 10.0, 10.0) if given.quick else (given.seeds, given.seconds, given.shrink)
    results: dict[str, list[Hunt]] = {}
    print(f"{'fault':52} {'found':>6} " + " ".join(f"{word:>8}" for word in _MEASURED), flush=True)
    for name, found in hunts(given.faults, seeds, seconds, shrink, jobs=given.jobs, limit=given.limit):
        results[name] = found
        print(_row(name, found), flush=True)
        if given.json:
            write(results, given.json)
    if given.write:
        publish(results)
    _print_summary(results)
    missed = [name for name, found in results.items() if sum(not one.found for one in found) > len(found) // 10]
    missed += [f"{name} (no hunt began)" for name in given.faults if name not in results]
    print("\n".join(["missed too often:", *missed]) if missed else "every fault was found in nine seeds of ten")
    return 1 if missed else 0


def _print_summary(results: Mapping[str, Sequence[Hunt]]) -> None:
    every = [one for found in results.values() for one in found]
    found = [one for one in every if one.found]
    print(f"{len(found)} of {len(every)} hunts found their fault")
    if found:
        middle = (f"{field} {median(getattr(one, field) for one in found):g}" for field in _MEASURED)
        print(f"medians over these: {', '.join(middle)}")


if __name__ == "__main__":
    sys.exit(main())
