"""What a campaign on many machines begins with: Ray, its workers, its state, and what was asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from corpus.flags import SHIPPED
from corpus.flags import read as read_flags
from corpus.store import Store, findings_folder
from executor import targets
from executor.errors import AliasfuzzError
from fuzz import record
from fuzz.cluster.messages import Setup
from fuzz.cluster.profiles import fitting
from fuzz.cluster.snapshots import Snapshots
from fuzz.cluster.state import State, continued
from fuzz.cluster.worker import FLUSH
from fuzz.journal import write_whole
from fuzz.known import known_signatures
from fuzz.options import Options, UsageError

LOCAL = "local"
CLUSTER = "cluster.json"
_BETWEEN_REPORTS, _REPORTS = 10.0, 25  # seconds; reports a second
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_PACKAGES = ("aliasfuzz", "corpus", "executor", "fuzz", "strategies")
_decode = msgspec.msgpack.Decoder(State).decode


class RayError(AliasfuzzError):
    """Ray is not installed or cannot be reached; the message says what would help."""


class Cluster(msgspec.Struct, kw_only=True, frozen=True):
    """On what a campaign runs: an address of Ray or "local", workers, GPUs a worker, and where state and examples are.

    `state` is a path or a URL for fsspec, `redis` the address of a Redis server; each may be empty.
    """

    address: str
    workers: int = 0
    gpus: float = 0.0
    state: str = ""
    redis: str = ""


def with_workers(options: Options, workers: int) -> Options:
    """The options of a campaign with so many workers, each of which is a shard."""
    return replace(options, shards=tuple(range(workers)), shard_count=workers)


def place(options: Options, cluster: Cluster) -> str:
    """Where a campaign's state is."""
    return cluster.state or str(Path(options.folder, "coordinator").absolute())


def saved_at(url: str) -> tuple[Snapshots, tuple[int, bytes] | None]:
    """The snapshots at a URL, and the last of them. Raises `UsageError` if nothing can be there."""
    try:
        snapshots = Snapshots(url)
        return snapshots, snapshots.load()
    except (OSError, ImportError, ValueError) as error:
        raise UsageError(f"{url} cannot hold the campaign's state: {error}; name another place by --state") from error


def prepare(options: Options, cluster: Cluster, *, resume: bool) -> State:
    """The state from which the coordinator begins; what was asked for is written to the run's folder."""
    store = Store(options.corpus or findings_folder())
    flags = read_flags(Path(options.flags)) if options.flags else ()
    snapshots, saved = saved_at(place(options, cluster))
    if saved is not None and not resume:
        raise UsageError(f"{place(options, cluster)} holds another campaign's state; name another place by --state")
    if saved is None and resume:
        raise UsageError(f"{place(options, cluster)} holds no campaign to go on with")
    if saved is not None:
        state = continued(_decode(saved[1]), options, cluster.workers)
        snapshots.offer(saved[0] + 1, lambda: msgspec.msgpack.encode(state))
        if snapshots.poll(FLUSH) != saved[0] + 1:
            raise UsageError(f"{place(options, cluster)} cannot be written to: {snapshots.error}")
    else:
        arms = tuple((name, profile) for name in options.targets for profile in fitting(targets.get(name).limits))
        known = frozenset(signature.digest for signature in known_signatures(store))
        turn = min(max(5.0, options.budget / 20), 60.0)
        pause = interval(cluster.workers, options.budget)
        shipped = options.flags == str(SHIPPED)
        setup = Setup(options, cluster.workers, arms, known, cluster.redis, turn, pause, options.batches, shipped)
        state = State.of(setup, flags)
    record.begin(options)
    write_whole(Path(options.folder, CLUSTER), msgspec.json.encode(cluster).decode() + "\n")
    return state


def interval(workers: int, budget: float) -> float:
    """Seconds between two reports of a worker. All together send at most `_REPORTS` a second: a call costs Ray a millisecond or two."""
    return min(max(_BETWEEN_REPORTS, workers / _REPORTS), budget / 10)


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """Ray, connected. What was connected before stays so."""
    try:
        import ray
    except ImportError:
        raise RayError("campaigns on many machines need Ray: pip install 'aliasfuzz[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    local = cluster.address == LOCAL
    more = {"num_cpus": max(cluster.workers, os.cpu_count() or 1)} if local else {}
    try:
        ray.init(cluster.address, **more, runtime_env=environment(local=local), include_dashboard=False, log_to_driver=False,
                 logging_level="ERROR")  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RayError(f"Ray cannot be reached at {cluster.address}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def environment(*, local: bool) -> dict[str, Any]:
    """Ray's runtime environment: our packages, as they are here, and one thread a worker. Here, the packages are there."""
    variables = {"env_vars": {name: os.environ.get(name, value) for name, value in _ENVIRONMENT.items()}}
    root = Path(__file__).resolve().parents[2]
    return variables if local else {**variables, "py_modules": [str(root / package) for package in _PACKAGES]}


def places(ray: Any, gpus: float) -> int:
    """How many workers fit into the cluster."""
    resources = ray.cluster_resources()
    cores = int(resources.get("CPU", 1))
    return max(min(cores, int(resources.get("GPU", 0) / gpus)) if gpus else cores, 1)


def lacking(ray: Any, gpus: float) -> str:
    """What the cluster lacks for a worker with so many GPUs, in words; empty if a node has them."""
    most = max((node["Resources"].get("GPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
    if most >= gpus:
        return ""
    return (
        f"no node has {gpus:g} GPUs for a worker, the most that one has is {most:g}: ask for fewer by --gpus-per-worker"
    )


def resumed(folder: Path, address: str, workers: int, more: float) -> tuple[Options, Cluster]:
    """What the campaign in a run's folder was asked to do, to go on for `more` seconds, or those left if that is 0.

    `address` and `workers` replace the former ones unless they are empty or 0. Raises `UsageError`.
    """
    try:
        asked = msgspec.json.decode(Path(folder, record.RUN).read_bytes(), type=record.Asked)
        cluster = msgspec.json.decode(Path(folder, CLUSTER).read_bytes(), type=Cluster)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{folder} is no folder of a campaign on Ray: {error}") from error
    cluster = msgspec.structs.replace(cluster, address=address or cluster.address, workers=workers or cluster.workers)
    options = replace(asked.options, folder=str(folder))  # it may have been moved
    _, saved = saved_at(place(options, cluster))
    if saved is None:
        raise UsageError(f"{place(options, cluster)} holds no campaign to go on with")
    used = _decode(saved[1]).used
    budget = used + more if more else options.budget
    if budget <= used + 1:
        raise UsageError(f"the {options.budget:g} s of this campaign are over; --budget gives it more time")
    return replace(options, budget=budget), cluster
