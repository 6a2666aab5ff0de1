"""A campaign on a Ray cluster of two nodes on this machine, beside `pytest fuzz/ -n`, and with one worker beside two.

    python -m benchmarks.cluster [--target null] [--seconds 30] [--rounds 3] [--workers 2]
    python -m benchmarks.cluster --findings --target aot_eager --seconds 1200
    python -m benchmarks.cluster --gpus 1,2 --target pipeline:nvfuser --seconds 45 --rounds 1 --workers 4

The first prints programs per second of both with equally many workers, in turn, and the ratio of the medians; the campaign on
Ray draws without swarm profiles, so that both judge programs alike. Exits with 1 if it is slower by more than a tenth.
The second prints what campaigns with one worker and with two find: signatures by symptom (wrong values, lost memory, a wrong
alias, ...), by symptom and stage, and with what refines the symptom, and which of these only one campaign has. Flaky failures, which
do not repeat, are left out. With `--workers 1` it is two campaigns of one worker, from two seeds: so differ two that are equal
in all else. No flags are on. Exits with 1 if the symptoms differ.
The third prints programs per second with each number of GPUs and `--workers` on each, and how many times the first of
the rates the last is: of all the time, and without its first third, in which compilers start. The GPUs are declared to Ray, which
gives each worker its part of one; a target that needs none runs anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import ray
from ray.cluster_utils import Cluster as Nodes

from corpus.case import Case
from corpus.signature import Signature
from corpus.store import Store
from fuzz.cluster.driver import campaign
from fuzz.cluster.start import Cluster, environment
from fuzz.options import NO_FLAGS, options
from fuzz.record import TargetRecord, load

SLOWER = 0.9  # of the other's programs per second
_QUIET = {"runtime_env": environment(local=True), "log_to_driver": False, "logging_level": "ERROR"}


class Did(NamedTuple):
    """What a campaign did, and the signatures that it found."""

    found: TargetRecord
    signatures: list[Signature]


def on_ray(target: str, seconds: float, workers: int, seed: int, gpus: float = 0.0) -> Did:
    """What a campaign on the cluster did; what went wrong is printed."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        chosen = options(
            names=[target], budget=f"{seconds}s", profile="dev", seed=str(seed), only=None, workers=workers, batches=0,
            run=str(run), corpus=str(Path(folder, "corpus")), root=Path(folder), flags=NO_FLAGS,
        )  # fmt: skip
        ended = campaign(chosen, Cluster(address="given", workers=workers, gpus=gpus), lambda line: None)
        for line in ended.lines:
            if line.startswith(("ERROR", "worker ")):
                print(line)
        return Did(load(run).targets[target], signatures(Path(folder, "corpus")))


def signatures(corpus: Path) -> list[Signature]:
    """The signatures of the cases there that fail each time."""
    cases = [case for _, case in Store(corpus).cases() if isinstance(case, Case) and case.state != "flaky"]
    return [case.signature for case in cases if case.signature is not None]


def on_xdist(target: str, seconds: float, workers: int, seed: int) -> float:
    """Programs per second of the main job."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "summary.json")
        command = [sys.executable, "-m", "pytest", "fuzz/", "-q", "-n", str(workers), "-p", "no:cacheprovider"]
        command += ["--fuzz-target", target, "--fuzz-budget", f"{seconds}s", "--fuzz-seed", str(seed)]
        command += ["--fuzz-flags", NO_FLAGS, "--fuzz-run", f"{folder}/run", "--fuzz-corpus", f"{folder}/corpus"]
        subprocess.run([*command, "--fuzz-json", str(file)], check=False, capture_output=True)
        found = json.loads(file.read_text())["targets"][target]
        return float(found["programs"] / found["seconds"])


def throughput(target: str, seconds: float, workers: int, rounds: int) -> bool:
    """Prints both rates, and whether the campaign on Ray is fast enough."""
    rates: dict[str, list[float]] = {"xdist": [], "ray": []}
    for seed in range(rounds):
        rates["xdist"].append(on_xdist(target, seconds, workers, seed))
        with patch("fuzz.cluster.start.fitting", lambda limits: ("whole",)):
            found = on_ray(target, seconds, workers, seed).found
        rates["ray"].append(found.programs / found.seconds)
        print(
            f"{target}, {workers} workers: xdist {rates['xdist'][-1]:.1f}, Ray {rates['ray'][-1]:.1f} programs/s",
            flush=True,
        )
    ratio = statistics.median(rates["ray"]) / statistics.median(rates["xdist"])
    print(f"Ray / xdist: {ratio:.3f} of the medians (at least {SLOWER})")
    return ratio >= SLOWER


def symptom(signature: Signature) -> str:
    """The symptom; whether it shows in a later call only is no part of it."""
    return signature.symptom.partition(" ")[0]


def place(signature: Signature) -> str:
    """Symptom and stage."""
    return f"{symptom(signature)} in {signature.stage or '?'}"


def detail(signature: Signature) -> str:
    """Symptom, stage, and what refines the symptom: often the words of whatever fails next."""
    return f"{place(signature)}: {signature.detail}"


def findings(target: str, seconds: float, workers: int) -> bool:
    """Prints what one worker finds, and what two find, or another one from another seed; whether the symptoms are the same."""
    both = [on_ray(target, seconds, 1, 1), on_ray(target, seconds, workers, 1 if workers > 1 else 2)]
    for number, did in zip((1, workers), both, strict=True):
        print(f"{number} workers: {did.found.programs} programs, {len(did.signatures)} signatures")
    for what, key in (("symptoms", symptom), ("in stages", place), ("with details", detail)):
        one, other = (Counter(map(key, did.signatures)) for did in both)
        print(f"{what}: {len(one)} and {len(other)}, {len(one.keys() & other.keys())} of them in both")
        for name in sorted(one | other):
            print(f"  {one[name]:3} {other[name]:3}  {name}")
    return set(map(symptom, both[0].signatures)) == set(map(symptom, both[1].signatures))


def scaling(target: str, seconds: float, workers: int, rounds: int, gpus: list[int]) -> None:
    """Prints programs per second with so many workers on each of 1, 2, ... GPUs, and the ratio of the last to the first."""
    rates: dict[int, list[tuple[float, float]]] = {number: [] for number in gpus}
    for seed in range(rounds):
        for number in gpus:
            with one_node(number, number * workers), patch("fuzz.cluster.start.interval", lambda *_: 1.0):
                found = on_ray(target, seconds, number * workers, seed, 1 / workers).found
            late = [rate for second, rate in found.throughput if second > seconds / 3]
            rates[number].append((found.programs / found.seconds, statistics.mean(late) if late else 0.0))
            print(f"{target}, {number} GPUs, {workers} workers on each: {found.programs} programs in {found.seconds:.1f} s, "
                  f"{rates[number][-1][0]:.1f} a second, {rates[number][-1][1]:.1f} once all had begun", flush=True)  # fmt: skip
    ratios = [
        statistics.median(every[part] for every in rates[gpus[-1]])
        / statistics.median(every[part] for every in rates[gpus[0]])
        for part in range(2)
    ]
    print(f"{gpus[-1]} GPUs / {gpus[0]}: {ratios[0]:.3f} of the medians, {ratios[1]:.3f} once all had begun")


@contextmanager
def two_nodes(workers: int) -> Iterator[None]:
    """Ray on two nodes of this machine, with room for so many workers."""
    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=max(workers - 1, 1))
    ray.init(address=nodes.address, **_QUIET)
    try:
        yield
    finally:
        ray.shutdown()
        nodes.shutdown()


@contextmanager
def one_node(gpus: int, workers: int) -> Iterator[None]:
    """Ray on this machine, with these GPUs, whether they are there or not."""
    cores = max(workers, os.cpu_count() or 1)
    ray.init("local", num_cpus=cores, num_gpus=gpus, include_dashboard=False, **_QUIET)
    try:
        yield
    finally:
        ray.shutdown()


def main() -> int:
    """Prints what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="null")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--findings", action="store_true", help="what one worker and what two find")
    parser.add_argument("--gpus", help="numbers of GPUs to compare, such as 1,2")
    arguments = parser.parse_args()
    target, seconds, workers, rounds = arguments.target, arguments.seconds, arguments.workers, arguments.rounds
    if arguments.gpus:
        scaling(target, seconds, workers, rounds, [int(number) for number in arguments.gpus.split(",")])
        return 0
    with two_nodes(workers):
        if arguments.findings:
            return int(not findings(target, seconds, workers))
        return int(not throughput(target, seconds, workers, rounds))


if __name__ == "__main__":
    sys.exit(main())
