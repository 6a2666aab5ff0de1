"""What each worker of a run does at the moment, from the journals and the programs in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from fuzz import flight
from fuzz.journal import Tail
from fuzz.options import Options

_SECONDS_OF_RATE = 10.0


@dataclass
class Worker:
    """A worker: the target of the shard that it runs, its programs, findings and phase.

    `samples` are times and numbers of programs, of the last seconds.
    """

    number: int
    target: str = ""
    phase: str = "start"
    programs: int = 0
    findings: int = 0
    samples: deque[tuple[float, int]] = field(default_factory=deque)
    done: int = 0  # programs of shards that ended

    @property
    def rate(self) -> float:
        """Programs a second, of late."""
        if len(self.samples) < 2:
            return 0.0
        (first, before), (last, now) = self.samples[0], self.samples[-1]
        return max(now - before, 0) / (last - first) if last > first else 0.0

    def take(self, event: dict[str, Any]) -> None:
        """Takes in an event of its shard."""
        kind = event["event"]
        if kind == "begin":
            self.done, self.target, self.phase = self.programs, event["target"], "generate"
        elif kind == "batch":
            self.programs = self.done + sum(event["counts"].values())
        elif kind == "phase":
            self.phase = event["phase"]
        elif kind == "finding":
            self.findings += 1
        elif kind == "done":
            self.phase = "done"


class Status:
    """The workers of a run: one for each number of a shard, whose targets it takes one after the other."""

    def __init__(self, options: Options) -> None:
        self._folder = Path(options.folder)
        self._workers = {number: Worker(number) for number in options.shards}
        self._tail = Tail(self._folder)

    def rows(self, now: float) -> list[Worker]:
        """All workers as they are now."""
        for path, event in self._tail.new():
            worker = self._workers.get(event.get("shard", _number(path)))
            if worker is not None:
                worker.take(event)
        for path in self._tail.files:
            last, worker = flight.read(path), self._workers.get(_number(path))
            if last is not None and worker is not None and last.target == worker.target:
                worker.programs = max(worker.programs, worker.done + sum(last.counts.values()))
        for worker in self._workers.values():
            worker.samples.append((now, worker.programs))
            while worker.samples[0][0] < now - _SECONDS_OF_RATE:
                worker.samples.popleft()
        return list(self._workers.values())


def _number(path: Path) -> int:
    """A shard's number, from the name of its journal."""
    last = path.stem.rpartition("-")[2]
    return int(last) if last.isdecimal() else -1


def table(options: Options, workers: Sequence[Worker], now: float, most: int) -> Table:
    """The workers, the `most` first of them, and their sums."""
    left = max((options.begun or now) + options.budget - now, 0.0)
    found = Table(box=None, pad_edge=False, header_style="dim", show_footer=True, footer_style="bold")
    total = sum(worker.programs for worker in workers)
    findings = sum(worker.findings for worker in workers)
    rate = sum(worker.rate for worker in workers)
    found.add_column("worker", f"all {len(workers)}")
    found.add_column("target", "")
    found.add_column("phase", f"{_clock(left)} left")
    found.add_column("programs", f"{total:,}", justify="right")
    found.add_column("per second", f"{rate:.0f}", justify="right")
    found.add_column("findings", str(findings), justify="right")
    shown = workers if len(workers) <= most - 2 else workers[: max(most - 3, 0)]
    for worker in shown:
        found.add_row(
            str(worker.number), worker.target, f"[{_STYLES.get(worker.phase, 'dim')}]{worker.phase}[/]",
            f"{worker.programs:,}", f"{worker.rate:.0f}", f"[red]{worker.findings}[/]" if worker.findings else "0",
        )  # fmt: skip
    if len(shown) < len(workers):
        found.add_row("...", "", f"{len(workers) - len(shown)} more", "", "", "")
    return found


_STYLES = {"generate": "green", "shrink": "yellow", "replay": "cyan"}


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
