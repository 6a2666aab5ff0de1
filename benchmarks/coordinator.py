"""What the coordinator of a campaign on many machines costs: the real one, with simulated workers that send 200 verdicts a second.

    python -m benchmarks.coordinator [--seconds 300] [--ray 30] [--svg docs/pictures/coordinator.svg]

For 10, 100 and 1,000 workers prints the share of one core, the memory of the coordinator's process, and bytes per verdict in both
directions. Time is simulated: each worker reports as often as a real one, what programs really were like, failures and findings
included, and snapshots go to a disk within the time that is measured. With `--ray` it is measured as an actor of Ray, too,
with reports that come in real time, so that Ray's own work in that process counts, too. `--verdicts 1` are workers with a slow compiler.
Exits with 1 if a bound is passed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.plot import Panel, plot
from corpus.case import Case
from corpus.signature import Signature
from executor.printing import listing
from executor.program import Program
from fuzz.cluster import actors
from fuzz.cluster.coordinator import Coordinator
from fuzz.cluster.messages import (
    Ask,
    Failure,
    Found,
    Hello,
    Place,
    Reply,
    Report,
    Setup,
    Welcome,
    packed,
    unpacked,
)  # fmt: skip
from fuzz.cluster.outbox import Outbox
from fuzz.cluster.snapshots import Snapshots
from fuzz.cluster.start import interval
from fuzz.coverage import Counts, Coverage
from fuzz.findings import Kind
from fuzz.options import Options
from fuzz.uniform import BACKEND
from strategies.programs import programs

WORKERS = (10, 100, 1000)
VERDICTS = 200  # a second and worker
CORE, MEGABYTES, BYTES = 0.10, 500.0, 100.0
_FAIL = 0.02  # of the programs
_FINDS = 1 / 600  # failures to be shrunk, a second and worker
_SIGNATURES = 300  # different ones
_SETS = 32  # different sets of programs, of which reports tell
_BATCH = 200
_BUDGET = 7200.0


class Cost(NamedTuple):
    """What so many workers cost: the share of a core, megabytes of the process, bytes per verdict, reports a second."""

    workers: int
    core: float
    megabytes: float
    bytes: float
    reports: float

    @property
    def ok(self) -> bool:
        """Whether it is within the bounds."""
        return self.core < CORE and self.megabytes < MEGABYTES and self.bytes < BYTES


def drawn(count: int) -> list[Program]:
    """Programs as campaigns draw them."""
    found: list[Program] = []

    @seed(1)
    @settings(max_examples=count, database=None, deadline=None, phases=(Phase.generate,), backend=BACKEND,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(programs())
    def draw(program: Program) -> None:
        found.append(program)

    draw()
    return found


class Pool:
    """What reports tell of: what sets of programs were like, and findings."""

    def __init__(self, verdicts: int) -> None:
        made, chance = drawn(400), random.Random(1)
        self.coverages: list[Coverage] = []
        for _ in range(_SETS):
            counts = Counts()
            for program in chance.choices(made, k=verdicts):
                counts.see(program)
            self.coverages.append(counts.take())
        self.found = [_found(made[k % len(made)], k) for k in range(_SIGNATURES)]


def _found(program: Program, number: int) -> Found:
    signature = Signature("null", "value", f"detail {number}")
    case = Case(target="null", state="open", signature=signature, program=program.without_sources())
    return Found(case, "null differs from eager: " + 8 * "value: output[0]: expected 1.0, got 2.0; ",
                 listing(program), "aliasfuzz run --target null --seed 0x1 --batch 0/0")  # fmt: skip


class Simulated:
    """A worker that judges nothing, and reports as if it had. `hello` and `lease` reach the coordinator."""

    def __init__(
        self, number: int, pool: Pool, hello: Callable[[bytes], bytes], lease: Callable[[bytes], bool]
    ) -> None:
        self._number, self._pool, self._lease = number, pool, lease
        self._chance = random.Random(number)
        self._welcome = unpacked(hello(packed(Hello(number, f"node {number // 8}"))), Welcome)
        self._outbox, self._programs, self._job = Outbox(number, self._welcome), 0, False

    def report(self, seconds: float, rate: float = VERDICTS) -> bytes:
        """The report on so many seconds of work, with so many verdicts a second."""
        box, chance = self._outbox, self._chance
        verdicts = round(rate * seconds)
        failed = round(verdicts * _FAIL)
        box.count({"ok": verdicts - failed, "failed": failed})
        box.cover(chance.choice(self._pool.coverages))
        box.spend("generate", seconds)
        for number in chance.choices(range(_SIGNATURES), k=failed):
            box.fail(Kind("null", "value", f"detail {number}", "none", "none"))
        if chance.random() < _FINDS * seconds or self._job:
            self._find(chance.choice(self._pool.found))
        self._programs += verdicts
        box.close(0, Place(self._programs // _BATCH))
        return packed(box.report(free=True))

    def _find(self, found: Found) -> None:
        """Shrinks a failure, if that is this worker's to do, and meets another one."""
        kind = Kind("null", "value", found.case.signature.detail if found.case.signature else "", "none", "none")
        if self._lease(packed(Ask(self._number, self._welcome.incarnation, kind))):
            self._outbox.find(found)
            self._outbox.settle([kind])
        met = self._chance.choice(self._pool.found)
        self._outbox.meet(Failure(kind._replace(detail=met.signature), met, 0, 1))

    def take(self, answer: bytes) -> None:
        """Takes the reply; a job that came with it is done at once."""
        reply = unpacked(answer, Reply)
        self._outbox.take(reply)
        if reply.job is not None:
            self._outbox.find(reply.job.found)
            self._outbox.settle([reply.job.kind])


class AtOnce(Executor):
    """Writes snapshots within the time that is measured."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor`."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _setup(workers: int, folder: str) -> Setup:
    options = Options(("null",), 1, (0,), 1, 1e9, 0, folder, "", "dev", flags="")
    return Setup(
        options, workers, tuple(("null", profile) for profile in "abcdef"), interval=interval(workers, _BUDGET)
    )


class Remote:
    """A coordinator in a process of its own, whose clock is told what time it is with each message."""

    def __init__(self, setup: Setup, folder: str) -> None:
        context = get_context("spawn")
        self._end, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, packed(setup), folder), daemon=True)
        self._process.start()
        self.now, self.sent = 1000.0, 0

    def ask(self, name: str, data: bytes = b"") -> bytes:
        """Delivers a message of this kind, and waits for the answer."""
        self._end.send((self.now, name, data))
        answer: bytes = self._end.recv()
        self.sent += len(data) + len(answer)
        return answer

    def cost(self) -> tuple[float, float, int]:
        """Seconds of processor time so far, megabytes, and verdicts that arrived."""
        self._end.send((self.now, "cost", b""))
        cost: tuple[float, float, int] = self._end.recv()
        return cost

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()


def _serve(end: Connection, setup: bytes, folder: str) -> None:
    now = 0.0
    coordinator = Coordinator.begin(unpacked(setup, Setup), (), Snapshots(folder, AtOnce()), lambda: now)
    while True:
        now, name, data = end.recv()
        if name == "hello":
            end.send(packed(coordinator.hello(unpacked(data, Hello))))
        elif name == "report":
            end.send(packed(coordinator.report(unpacked(data, Report))))
        elif name == "lease":
            end.send(b"\1" if coordinator.lease(unpacked(data, Ask)) else b"\0")
        else:
            programs = coordinator.state.targets["null"].tally.programs
            end.send((time.process_time(), _resident(os.getpid()), programs))


def simulated(workers: int, seconds: float, rate: float) -> Cost:
    """So many workers for so many seconds of simulated time. Raises `AssertionError` if a verdict is missing."""
    period = interval(workers, _BUDGET)
    rounds, pool = max(round(seconds / period), 2), Pool(round(rate * period))
    with tempfile.TemporaryDirectory() as folder, closing(Remote(_setup(workers, folder), folder)) as remote:
        crew = [
            Simulated(
                number, pool, lambda data: remote.ask("hello", data), lambda data: remote.ask("lease", data) == b"\1"
            )
            for number in range(workers)
        ]
        before, remote.sent = remote.cost()[0], 0
        for _ in range(rounds):
            for worker in crew:
                remote.now += period / workers
                worker.take(remote.ask("report", worker.report(period, rate)))
        after, megabytes, arrived = remote.cost()
        total = rounds * period
        verdicts = workers * rounds * round(rate * period)
        assert arrived == verdicts, f"{arrived} of {verdicts} verdicts arrived"
        return Cost(workers, (after - before) / total, megabytes, remote.sent / verdicts, workers / period)


def _resident(process: int) -> float:
    """Megabytes of memory that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def on_ray(workers: int, seconds: float) -> Cost:
    """So many workers in real time, against an actor of Ray. The simulated workers are all in this process."""
    import ray

    period = interval(workers, _BUDGET)
    pool, sent = Pool(round(VERDICTS * period)), 0
    with tempfile.TemporaryDirectory() as folder:
        actor = actors.coordinator(f"benchmark{workers}", _setup(workers, folder), (), folder)
        crew = [
            Simulated(
                k, pool, lambda data: ray.get(actor.hello.remote(data)), lambda data: ray.get(actor.lease.remote(data))
            )
            for k in range(workers)
        ]
        process, before = ray.get(actor.cost.remote())
        begun, pending = time.monotonic(), dict[Any, Simulated]()
        reports = round(seconds * workers / period)
        for number in range(reports):
            worker = crew[number % workers]
            data = worker.report(period)
            sent += len(data)
            time.sleep(max(begun + number * period / workers - time.monotonic(), 0.0))
            pending[actor.report.remote(data)] = worker
            done, _ = ray.wait([*pending], num_returns=len(pending), timeout=0)
            sent += (
                sum(map(_taken, *zip(*[(pending.pop(one), ray.get(one)) for one in done], strict=True))) if done else 0
            )
        sent += sum(_taken(worker, ray.get(one)) for one, worker in pending.items())
        _, after = ray.get(actor.cost.remote())
        passed = time.monotonic() - begun
        cost = Cost(
            workers,
            (after - before) / passed,
            _resident(process),
            sent / (reports * VERDICTS * period),
            reports / passed,
        )
        ray.kill(actor)
    return cost


def _taken(worker: Simulated, answer: bytes) -> int:
    worker.take(answer)
    return len(answer)


def picture(found: dict[str, list[Cost]]) -> str:
    """The plot of costs against workers."""

    def lines(value: Callable[[Cost], float]) -> dict[str, list[tuple[float, float]]]:
        return {name: [(one.workers, value(one)) for one in costs] for name, costs in found.items()}

    return plot(
        f"The coordinator with simulated workers, {VERDICTS} verdicts a second each",
        "workers",
        [
            Panel("share of one core, %", "%", lines(lambda one: 100 * one.core), 100 * CORE),
            Panel("memory of the process, MB", "MB", lines(lambda one: one.megabytes), MEGABYTES),
            Panel("network per verdict, bytes", "bytes", lines(lambda one: one.bytes), BYTES),
        ],
    )


def main() -> int:
    """Prints the costs, and draws them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--verdicts", type=float, default=VERDICTS, help="of each worker, a second")
    parser.add_argument("--ray", type=float, default=0.0, metavar="SECONDS", help="as an actor, too, in real time")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the costs there")
    arguments = parser.parse_args()
    kinds: dict[str, Callable[[int], Cost]] = {
        "alone, time simulated": lambda workers: simulated(workers, arguments.seconds, arguments.verdicts)
    }
    if arguments.ray:
        import ray

        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        kinds["as an actor of Ray, in real time"] = lambda workers: on_ray(workers, arguments.ray)
    found: dict[str, list[Cost]] = {}
    print("workers  core %     MB  bytes per verdict  reports per second")
    for name, measure in kinds.items():
        print(name)
        for cost in map(measure, arguments.workers):
            found.setdefault(name, []).append(cost)
            numbers = f"{cost.megabytes:6.0f} {cost.bytes:18.2f} {cost.reports:19.1f}"
            print(f"{cost.workers:7} {100 * cost.core:7.2f} {numbers}", flush=True)
    if arguments.svg is not None:
        arguments.svg.write_text(picture(found), encoding="utf-8")
    return int(not all(cost.ok for costs in found.values() for cost in costs))


if __name__ == "__main__":
    sys.exit(main())
