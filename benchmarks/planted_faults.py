"""How fast the harness finds and shrinks faults that are planted in the pipeline on purpose: `docs/planted.md`.

    python -m benchmarks.planted_faults [--seeds 10] [--seconds 30] [--shrink 30] [--jobs 1] [--quick] [--write] [FAULT]...

Each fault (see `benchmarks/faults`) is switched on by replacing functions. Prints a row a fault: in how many seeds it was
found; then medians: programs and seconds until the first failure, seconds of shrinking, and the statements, inputs and
elements of the largest storage that are left; then what failed. Seconds are those of the process, so that a busy machine
does not count. `--quick` takes one seed and ten seconds. `--write` puts the results into `benchmarks/planted.json`, those of
the faults that were not tried stay, and the page beside the other documents.
Exits with 1 if a fault was missed in more than one seed of ten.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

import fuzz.batch
from benchmarks.faults import FAULTS, switched_on
from benchmarks.planted_page import DOCUMENT, Hunt, document, read, smallest, write
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
    strategy = programs(target.limits)
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
    return len(function(program).splitlines()) - 2


def elements(program: Program) -> int:
    """How many elements the largest storage of an input holds, in the dtype of that input."""
    inputs = program.entry
    return max((inputs.storages[v.storage].nbytes // v.itemsize for v in inputs.values), default=0)


def hunts(name: str, seeds: int, seconds: float, shrink: float) -> list[Hunt]:
    """The hunts for one fault from so many seeds."""
    torch.set_num_threads(1)
    return [hunt(name, seconds, shrink, seed)[1] for seed in range(seeds)]


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
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a fault at a time")
    parser.add_argument("--quick", action="store_true", help="one seed, ten seconds to find and to shrink")
    parser.add_argument("--write", action="store_true", help="keep the results, and write the page")
    given = parser.parse_args()
    limits = (1, 10.0, 10.0) if given.quick else (given.seeds, given.seconds, given.shrink)
    work = partial(hunts, seeds=limits[0], seconds=limits[1], shrink=limits[2])
    missed = 0
    print(f"{'fault':52} {'found':>6} " + " ".join(f"{word:>8}" for word in _MEASURED), flush=True)
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        for name, results in zip(given.faults, pool.map(work, given.faults), strict=True):
            missed += sum(not one.found for one in results) > len(results) // 10
            print(_row(name, results), flush=True)
            if given.write:
                write({**read(), name: results})
    if given.write:
        DOCUMENT.write_text(document(read()), encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
