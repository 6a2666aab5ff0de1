"""Soak: a campaign against a compiler that crashes, hangs, hoards memory, prints gigabytes and changes global state at random.

    python benchmarks/soak.py [--minutes 30] [--seed 1]

Two thirds of the time one shard runs undisturbed. In the last third shards are killed at random moments. Prints, every
minute and at the end, programs by outcome, findings, and the memory of the shard and of its supervisor. Exits with 1 if
the journal does not account for every program, a killed shard's program was not recovered, a misbehaviour was not found,
a process is left, or the shard's memory grew by more than a tenth after the first third. Runs of less than 20 minutes
are too short for every misbehaviour to be found and for memory to settle, so that they only print these.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from corpus.case import Case
from corpus.store import Store
from fuzz.accounts import Account, accounts
from fuzz.campaign import Plan, Totals, run_shard
from fuzz.journal import Journal
from fuzz.recovery import recover
from tests import misbehaving

MIB = 1 << 20
_MARK = "ALIASFUZZ_SOAK"
_UNDISTURBED = 2 / 3
_ALLOWED_GROWTH = 1.1
_SECONDS_TO_END = 30  # for supervisors that were importing torch when their shard was killed
_LONG = 13 * 60  # seconds


def resident(pid: int) -> int:
    """Memory of a process now, in MiB; 0 if there is none."""
    status = Path(f"/proc/{pid}/statm")
    return (
        int(status.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") // MIB if status.exists() else 0
    )


def children(pid: int) -> Iterator[int]:
    """A process's children."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        yield from map(int, file.read_text(encoding="ascii").split())


def left_over() -> list[int]:
    """Processes of this soak other than this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{_MARK}={os.environ[_MARK]}" in entry.read_text(errors="replace"):
                found.append(int(entry.parent.name))
        except OSError:  # ended, or another user's
            continue
    return [pid for pid in found if pid != os.getpid()]


class Watch(threading.Thread):
    """Prints a line a minute, and remembers the shard's memory."""

    def __init__(self, run: Path) -> None:
        super().__init__(daemon=True)
        self._run, self._over = run, threading.Event()
        self.memory: list[int] = []

    def run(self) -> None:
        begun = time.monotonic()
        while not self._over.wait(min(60.0, 10.0 + 10.0 * len(self.memory))):
            self.memory.append(resident(os.getpid()))
            supervisors = [resident(pid) for pid in children(os.getpid())]
            account = accounts(self._run).get(("mixed", 0), Account())
            print(f"{time.monotonic() - begun:6.0f} s  {account.started:>8} programs {dict(account.counts)}, shard "
                  f"{self.memory[-1]} MiB, supervisor {supervisors} MiB", flush=True)  # fmt: skip

    def stop(self) -> None:
        """Ends it."""
        self._over.set()
        self.join()


def undisturbed(folder: Path, seed: int, seconds: float) -> list[str]:
    """Runs one shard to its end. Returns what was wrong."""
    watch, run = Watch(folder / "whole"), folder / "whole"
    watch.start()
    totals = shard(run, folder / "corpus", seed, seconds)
    watch.stop()
    account = accounts(run)["mixed", 0]
    wrong = []
    if account.in_flight or account.started != totals.programs:
        wrong.append(f"the journal accounts for {account}, {totals.programs} programs ran")
    if seconds > _LONG and max(watch.memory[-3:]) > _ALLOWED_GROWTH * max(watch.memory[: len(watch.memory) // 3 + 1]):
        wrong.append(f"the shard's memory grew: {watch.memory} MiB")
    print(f"undisturbed: {totals.programs} programs, {totals.failures} failures, {len(totals.findings)} findings; "
          f"memory of the shard {watch.memory[:1]} MiB at first, {watch.memory[-1:]} at the end")  # fmt: skip
    return wrong


def shard(run: Path, corpus: Path, seed: int, seconds: float) -> Totals:
    """Runs the shard of a campaign in this process."""
    plan = Plan("mixed", 0, seed, time.monotonic() + seconds, shrink_seconds=10.0, memory_limit=512 * MIB)
    return run_shard(plan, Store(corpus), frozenset(), Journal(run / "mixed-0.jsonl"))


def killed(folder: Path, seed: int, seconds: float) -> list[str]:
    """Kills shards at random moments. Returns what was wrong."""
    chance, wrong, number, programs = random.Random(seed), [], 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run = folder / f"killed{number}"
        number += 1
        process = subprocess.Popen([sys.executable, __file__, "--shard", str(run), str(folder / "corpus"), "--seed",
                                    str(seed + number)])  # fmt: skip
        while process.poll() is None and accounts(run).get(("mixed", 0)) is None:
            time.sleep(0.2)  # until it has begun to judge
        time.sleep(chance.uniform(0.5, 12))
        if process.poll() is not None:
            wrong.append(f"{run.name}: ended by itself with {process.returncode}")
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = accounts(run).get(("mixed", 0))
        recovered = recover(run, Store(folder / "corpus"))
        if before is None or not before.in_flight:
            wrong.append(f"{run.name}: no program in flight is known of: {before}")
        elif len(recovered) != 1 or accounts(run)["mixed", 0] != before:
            wrong.append(f"{run.name}: recovered {recovered}, accounts {before} and {accounts(run)}")
        programs += before.started if before is not None else 0
    print(f"killed: {number} shards after {programs} programs in all, each with one in flight, recovered")
    return wrong


def findings(folder: Path) -> list[str]:
    """Prints the findings by symptom. Returns the misbehaviours that are not among them."""
    cases = [case for _, case in Store(folder / "corpus").cases() if isinstance(case, Case)]
    table = Counter((case.signature.symptom, case.signature.detail, case.state) for case in cases if case.signature)
    for (symptom, detail, state), count in sorted(table.items()):
        print(f"  {count:>4}  {symptom} {f'({detail})' if detail else ''} {state}")
    # Of an exception the detail is its type, then what it is about.
    found = {(symptom.removesuffix(" in a later call"), detail.partition(":")[0]) for symptom, detail, _ in table}
    expected = {("crash", "SIGSEGV"), ("crash", "SIGABRT"), ("crash", "SIGKILL"), ("crash", "exit code 3"),
                ("crash", "exit code 4"), ("timeout", ""), ("memory-limit", ""), ("exception", "Endless"),
                *(("state", detail) for detail in (
                    "torch's random numbers", "Python's random numbers", "default dtype", "number of threads", "grad mode",
                    "current folder", "an input's layout", "late ValueError", "TypeError"))}  # fmt: skip
    return [f"not found: {symptom} {detail}" for symptom, detail in sorted(expected - found)]


def main() -> int:
    """Runs the soak."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--shard", nargs=2, type=Path, metavar=("RUN", "CORPUS"), help="what this script calls itself with"
    )
    given = parser.parse_args()
    if given.shard:
        run, corpus = given.shard
        shard(run, corpus, given.seed, 3600)
        return 0
    with tempfile.TemporaryDirectory(prefix="aliasfuzz-soak-") as name:
        folder = Path(name)
        misbehaving.install(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.environ[_MARK] = name
        seconds = given.minutes * 60
        wrong = undisturbed(folder, given.seed, seconds * _UNDISTURBED)
        wrong += killed(folder, given.seed, seconds * (1 - _UNDISTURBED))
        missing = findings(folder)
        if seconds * _UNDISTURBED > _LONG:
            wrong += missing
        else:
            print("\n".join(missing))
    end = time.monotonic() + _SECONDS_TO_END
    while left_over() and time.monotonic() < end:
        time.sleep(0.5)
    wrong += [f"process {pid} is left" for pid in left_over()]
    print("\n".join(["", *wrong]) if wrong else "everything is accounted for")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
