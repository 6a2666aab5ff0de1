"""A campaign on a Ray cluster of two nodes on this machine, beside `pytest fuzz/ -n`, and with one worker beside two.

    python -m benchmarks.cluster [--target null] [--seconds 30] [--rounds 3] [--workers 2]
    python -m benchmarks.cluster --findings --target aot_eager --seconds 1200

The first prints programs per second of both with equally many workers, in turn, and the ratio of the medians; the campaign on
Ray draws without swarm profiles, so that both judge programs alike. Exits with 1 if it is slower by more than a tenth.
The second prints what campaigns with one worker and with two find: how often each kind of failure was shrunk (symptom, detail, stage),
and which kinds only one of them found. No flags are on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import ray
from ray.cluster_utils import Cluster as Nodes

from fuzz.cluster.driver import campaign
from fuzz.cluster.start import Cluster, environment
from fuzz.options import NO_FLAGS, options
from fuzz.record import TargetRecord, load

SLOWER = 0.9  # of the other's programs per second


def on_ray(target: str, seconds: float, workers: int, seed: int) -> TargetRecord:
    """What a campaign on the cluster did."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        chosen = options(
            names=[target], budget=f"{seconds}s", profile="dev", seed=str(seed), only=None, workers=workers, batches=0,
            run=str(run), corpus=str(Path(folder, "corpus")), root=Path(folder), flags=NO_FLAGS,
        )  # fmt: skip
        campaign(chosen, Cluster(address="given", workers=workers), lambda line: None)
        return load(run).targets[target]


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
            found = on_ray(target, seconds, workers, seed)
        rates["ray"].append(found.programs / found.seconds)
        print(
            f"{target}, {workers} workers: xdist {rates['xdist'][-1]:.1f}, Ray {rates['ray'][-1]:.1f} programs/s",
            flush=True,
        )
    ratio = statistics.median(rates["ray"]) / statistics.median(rates["xdist"])
    print(f"Ray / xdist: {ratio:.3f} of the medians (at least {SLOWER})")
    return ratio >= SLOWER


def kinds(found: TargetRecord) -> Counter[str]:
    """How often failures were shrunk, by what the signature says but for the accesses."""
    lines = [finding.text.splitlines()[-1].strip() for finding in found.findings]
    return Counter(line.removeprefix("signature: ").partition(" ")[2].partition(", ")[0] for line in lines)


def findings(target: str, seconds: float) -> None:
    """Prints what one worker finds and what two find."""
    one, two = (on_ray(target, seconds, workers, 1) for workers in (1, 2))
    for workers, found in ((1, one), (2, two)):
        print(f"{workers} workers: {found.programs} programs, {len(found.findings)} signatures")
    mine, theirs = kinds(one), kinds(two)
    for kind in sorted(mine | theirs):
        print(f"  {mine[kind]:3} {theirs[kind]:3}  {kind}")
    print(f"kinds of failures: {len(mine)} and {len(theirs)}, {len(mine.keys() & theirs.keys())} of them in both")


def main() -> int:
    """Prints what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="null")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--findings", action="store_true", help="what one worker and what two find")
    arguments = parser.parse_args()
    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=max(arguments.workers - 1, 1))
    ray.init(address=nodes.address, runtime_env=environment(local=True), log_to_driver=False, logging_level="ERROR")
    try:
        if arguments.findings:
            findings(arguments.target, arguments.seconds)
            return 0
        fast = throughput(arguments.target, arguments.seconds, arguments.workers, arguments.rounds)
        return int(not fast)
    finally:
        ray.shutdown()
        nodes.shutdown()


if __name__ == "__main__":
    sys.exit(main())
