"""GPU time of alias-heavy functions: our pipeline with nvFuser against eager, Inductor, and Thunder with nvFuser.

    python -m benchmarks.gpu [--only TEXT] [--seconds 150]

Each function runs in a process of its own, since compilers may hang; all compile at once, one at a time measures. Times
are medians by CUDA events. The floor is the function's fewest bytes at the bandwidth of a copy. What a compiler computes wrong gets no
time, and says so.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.gpu_functions import FUNCTIONS, SIDE, Function
from executor import targets
from executor.jit import jit

RUNS, WARM = 15, 3
AHEAD = 2_000_000  # cycles, about a millisecond, for the host to launch what is measured
PEERS = ("eager", "inductor", "thunder", "ours")  # "ours:barrier" and "ours:blend" can be asked for too
TOLERANCE = 1e-3


def compiler(peer: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled by a peer."""
    if peer == "inductor":
        return torch.compile(fn, fullgraph=True, dynamic=False)
    if peer == "thunder":
        targets.get("thunder:nvfuser")  # so that Thunder finds nvFuser
        import thunder

        return thunder.jit(fn)  # type: ignore[no-any-return]
    name, _, mode = peer.partition(":")
    return jit(fn, backend="nvfuser", aliases=mode or "auto") if name == "ours" else fn  # type: ignore[arg-type]


def copies(args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The arguments on storages of their own, aliased as they are."""
    storages: dict[int, torch.Tensor] = {}
    made = []
    for tensor in args:
        storage = tensor.untyped_storage()
        flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))
        home = storages.setdefault(storage._cdata, flat.clone()).untyped_storage()
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        made.append(empty.set_(home, tensor.storage_offset(), tensor.shape, tensor.stride()))
    return tuple(made)


def is_right(compiled: Callable[..., Any], fn: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> bool:
    """Whether results and arguments agree with eager's, up to rounding."""
    mine, theirs = copies(args), copies(args)
    actual, expected = compiled(*mine), fn(*theirs)
    pairs = [*zip(mine, theirs, strict=True), *([(actual, expected)] if expected is not None else [])]
    return all(torch.allclose(a.float(), b.float(), rtol=TOLERANCE, atol=TOLERANCE) for a, b in pairs)


def milliseconds(run: Callable[[], Any]) -> float:
    """The median GPU time of a call: the GPU is kept busy until all is launched, so that the host's time does not show."""
    for _ in range(WARM):
        run()
    times: list[float] = []
    for _ in range(RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(AHEAD)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def kernels(run: Callable[[], Any]) -> int:
    """What one call launches on the GPU, copies included."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run()
        torch.cuda.synchronize()
    return sum(event.device_type.name == "CUDA" for event in profile.events())


class Ready(NamedTuple):
    """A function compiled by a peer, found right or not, and the seconds that this took."""

    function: Function
    peer: str
    compiled: Callable[..., Any]
    right: bool
    cold: float


def prepared(function: Function, peer: str) -> Ready:
    """Compiles the function and compares it with eager, twice: the first calls may compile."""
    args = function.make()
    start = time.perf_counter()
    compiled = compiler(peer, function.fn)
    right = is_right(compiled, function.fn, args)
    torch.cuda.synchronize()
    cold = time.perf_counter() - start
    return Ready(function, peer, compiled, right and is_right(compiled, function.fn, args), cold)


def measured(ready: Ready) -> dict[str, Any]:
    """One row: a function by a peer."""
    function, peer, compiled, right, cold = ready
    args = function.make()
    found = milliseconds(lambda: compiled(*args)) if right else None
    count = kernels(lambda: compiled(*args))  # not side by side: many profilers at once take minutes
    floor = function.floor(*args)
    row: dict[str, Any] = {
        "function": function.name,
        "peer": peer,
        "ms": found,
        "kernels": count,
        "floor": floor,
        "cold": cold,
    }
    last = getattr(compiled, "last", None)
    if last is not None:
        row["ours"] = {name: getattr(last, name) for name in ("regions", "barriers", "breaks", "copies")}
        row["note"] = last.explain()
        row["early"] = [detail.early for detail in last.regions_detail]
        row["names"] = [name for detail in last.regions_detail for name in detail.kernels]
    return row


def work(number: int, go: Path, peers: list[str]) -> None:
    """Prepares one function for all peers, waits for the GPU, and measures: a line of JSON for each peer."""
    ready = []
    for peer in peers:
        try:
            ready.append(prepared(FUNCTIONS[number], peer))
        except Exception as error:  # noqa: BLE001 - a peer that fails has no time, and the others go on
            text = f"{type(error).__name__}: {error}"[:300]
            print(json.dumps({"function": FUNCTIONS[number].name, "peer": peer, "error": text}), flush=True)
    print("ready", flush=True)
    while not go.exists():
        time.sleep(0.05)
    for one in ready:
        try:
            row = measured(one)
        except Exception as error:  # noqa: BLE001 - likewise
            row = {"function": one.function.name, "peer": one.peer, "error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()


class Worker:
    """A process that prepares one function, and measures it when it is told to."""

    def __init__(self, number: int, folder: Path, peers: list[str]) -> None:
        self.name, self._go, self._peers = FUNCTIONS[number].name, folder / f"{number} {peers[0]}.go", peers
        self._out = folder / f"{number} {peers[0]}.txt"
        command = [sys.executable, "-m", "benchmarks.gpu", "--work", str(number), str(self._go), *peers]
        with self._out.open("w") as out:
            self._process = subprocess.Popen(command, stdout=out)

    def wait(self, until: float) -> None:
        """Waits until it is ready to measure, has ended, or time is up."""
        while time.monotonic() < until and self._process.poll() is None and "ready" not in self._out.read_text():
            time.sleep(0.1)

    def rows(self, until: float) -> list[dict[str, Any]]:
        """Lets it measure."""
        self._go.touch()
        try:
            self._process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        found = [json.loads(line) for line in self._out.read_text().splitlines() if line.startswith("{")]
        seen = {row["peer"] for row in found}
        why = f"no result in time, or a crash (exit code {self._process.returncode})"
        return found + [{"function": self.name, "peer": p, "error": why} for p in self._peers if p not in seen]


def rows(numbers: list[int], peers: list[str], seconds: float) -> list[dict[str, Any]]:
    """All rows. All functions are prepared side by side, then measured one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        until = time.monotonic() + seconds
        # Thunder by itself: after the faults that it makes on the GPU a process can do nothing more there.
        groups = [
            group for group in ([p for p in peers if p != "thunder"], [p for p in peers if p == "thunder"]) if group
        ]
        workers = [Worker(number, Path(folder), group) for number in numbers for group in groups]
        for worker in workers:
            worker.wait(until)
        return [row for worker in workers for row in worker.rows(max(until, time.monotonic() + 20))]


def bandwidth() -> float:
    """Bytes per second of a copy, read and written bytes together."""
    source = torch.ones(SIDE, SIDE, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / (milliseconds(lambda: target.copy_(source)) / 1e3)


def show(found: list[dict[str, Any]], rate: float, peers: list[str]) -> None:
    """The tables."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {rate / 1e12:.2f} TB/s; ms (kernels)\n")
    print(f"| function | floor | {' | '.join(peers)} | ours / floor | ours, cold s |")
    print(f"| --- | --- | {' | '.join('---' for _ in peers)} | --- | --- |")
    ratios: dict[str, list[float]] = {peer: [] for peer in peers}
    for name in dict.fromkeys(row["function"] for row in found):
        by = {row["peer"]: row for row in found if row["function"] == name}
        floor = next((row["floor"] for row in by.values() if "floor" in row), 0) / rate * 1e3
        cells = [_cell(by.get(peer, {})) for peer in peers]
        ours = by.get("ours", {}).get("ms")
        for peer in peers:
            other = by.get(peer, {}).get("ms")
            if ours and other:
                ratios[peer].append(other / ours)
        last = f"{ours / floor:.2f} | {by['ours']['cold']:.1f}" if ours else "- | -"
        print(f"| {name} | {floor:.3f} | {' | '.join(cells)} | {last} |")
    print()
    for peer in peers[:-1]:
        if ratios[peer]:
            mean = math.exp(statistics.fmean(map(math.log, ratios[peer])))
            slower = sum(ratio < 1 for ratio in ratios[peer])
            print(
                f"{peer}: {mean:.2f} times our time in the geometric mean of {len(ratios[peer])}, ours slower in {slower}"
            )


def _cell(row: dict[str, Any]) -> str:
    if "error" in row:
        return "fails"
    return f"{row['ms']:.3f} ({row['kernels']})" if row.get("ms") else "wrong" if row else "-"


def main() -> None:
    """Prints the tables, and each row as JSON to the file given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--json")
    parser.add_argument("--work", nargs="+")
    options = parser.parse_args()
    if options.work:
        work(int(options.work[0]), Path(options.work[1]), options.work[2:])
        return
    peers = options.peers.split(",")
    numbers = [i for i, function in enumerate(FUNCTIONS) if options.only in function.name]
    found = rows(numbers, peers, options.seconds)
    if options.json:
        Path(options.json).write_text("\n".join(map(json.dumps, found)))
    show(found, bandwidth(), peers)
    for row in found:
        if "error" in row:
            print(f"{row['peer']} on {row['function']}: {row['error']}")


if __name__ == "__main__":
    main()
