"""GPU time of alias-heavy functions: our pipeline with nvFuser against eager, Inductor, and Thunder with nvFuser.

    python -m benchmarks.gpu [--only TEXT] [--seconds 150]

Each function runs in a process of its own, since compilers may hang; one process at a time measures. Times are medians
by CUDA events. The floor is the function's fewest bytes at the bandwidth of a copy. What a compiler computes wrong gets no
time, and says so.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_functions import FUNCTIONS, SIDE, Function
from executor.jit import jit

RUNS, WARM = 15, 3
PEERS = ("eager", "inductor", "thunder", "ours")  # "ours:barrier" and "ours:blend" can be asked for too
TOLERANCE = 1e-3


def compiler(peer: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled by a peer."""
    if peer == "inductor":
        return torch.compile(fn, fullgraph=True, dynamic=False)
    if peer == "thunder":
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
    """The median GPU time of a call."""
    for _ in range(WARM):
        run()
    times = []
    for _ in range(RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
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
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Holds the GPU for a measurement."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measure(function: Function, peer: str, lock: Path) -> dict[str, Any]:
    """One row: a function by a peer."""
    args = function.make()
    floor = function.floor(*args)
    start = time.perf_counter()
    try:
        compiled = compiler(peer, function.fn)
        right = is_right(compiled, function.fn, args)
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - a peer that fails has no time, and the others go on
        return {"function": function.name, "peer": peer, "error": f"{type(error).__name__}: {error}"[:300]}
    cold = time.perf_counter() - start
    with alone(lock):
        found = milliseconds(lambda: compiled(*args)) if right else None
        count = kernels(lambda: compiled(*args))
    row = {"function": function.name, "peer": peer, "ms": found, "kernels": count, "floor": floor, "cold": cold}
    last = getattr(compiled, "last", None)
    if last is not None:
        row["ours"] = {name: getattr(last, name) for name in ("regions", "barriers", "breaks", "copies")}
        row["early"] = [detail.early for detail in last.regions_detail]
        row["names"] = [name for detail in last.regions_detail for name in detail.kernels]
    return row


def work(number: int, lock: Path, peers: list[str]) -> None:
    """Measures one function by all peers, a line of JSON for each."""
    for peer in peers:
        print(json.dumps(measure(FUNCTIONS[number], peer, lock)), flush=True)


def rows(numbers: list[int], peers: list[str], seconds: float, at_once: int) -> list[dict[str, Any]]:
    """All rows; workers run side by side, and those that hang are ended."""
    waiting, running, found = list(numbers), [], []
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "gpu"
        while waiting or running:
            while waiting and len(running) < at_once:
                number = waiting.pop(0)
                out = (Path(folder) / f"{number}.jsonl").open("w+")
                command = [sys.executable, "-m", "benchmarks.gpu", "--work", str(number), str(lock), *peers]
                running.append((number, subprocess.Popen(command, stdout=out), out, time.monotonic()))
            time.sleep(0.2)
            for entry in list(running):
                number, process, out, start = entry
                if process.poll() is None and time.monotonic() < start + seconds:
                    continue
                process.kill()
                process.wait()
                running.remove(entry)
                out.seek(0)
                mine = [json.loads(line) for line in out if line.startswith("{")]
                missing = [peer for peer in peers if all(row["peer"] != peer for row in mine)]
                name, why = FUNCTIONS[number].name, f"no result after {seconds:g} s, or a crash ({process.returncode})"
                found += mine + [{"function": name, "peer": peer, "error": why} for peer in missing]
    return found


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
    parser.add_argument("--at-once", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--json")
    parser.add_argument("--work", nargs="+")
    options = parser.parse_args()
    if options.work:
        work(int(options.work[0]), Path(options.work[1]), options.work[2:])
        return
    peers = options.peers.split(",")
    numbers = [i for i, function in enumerate(FUNCTIONS) if options.only in function.name]
    found = rows(numbers, peers, options.seconds, options.at_once)
    if options.json:
        Path(options.json).write_text("\n".join(map(json.dumps, found)))
    show(found, bandwidth(), peers)
    for row in found:
        if "error" in row:
            print(f"{row['peer']} on {row['function']}: {row['error']}")


if __name__ == "__main__":
    main()
