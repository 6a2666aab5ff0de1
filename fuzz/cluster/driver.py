"""Starts a campaign on Ray, watches it, keeps what it finds in this machine's corpus and run folder, and ends it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from corpus.case import CorpusError
from corpus.flags import Flag, FlagError
from corpus.flags import read as read_flags
from corpus.store import Store, findings_folder
from executor import targets
from executor.errors import AliasfuzzError
from fuzz import record
from fuzz.cluster import actors
from fuzz.cluster.coordinator import Progress
from fuzz.cluster.examples import connect
from fuzz.cluster.merged import again, recorded, summary
from fuzz.cluster.messages import Setup, packed, unpacked
from fuzz.cluster.profiles import fitting
from fuzz.cluster.snapshots import Snapshots
from fuzz.cluster.state import State, continued
from fuzz.cluster.worker import FLUSH
from fuzz.ending import keep
from fuzz.journal import JournalError, write_whole
from fuzz.known import known_signatures
from fuzz.options import Options, UsageError
from fuzz.record import State as RunState
from fuzz.summary import closing_lines

LOCAL = "local"
CLUSTER = "cluster.json"
_BETWEEN_REPORTS, _REPORTS = 10.0, 25  # seconds; reports a second
_BETWEEN_KEEPS = 10.0
_BETWEEN_LINES = 10.0
_WAIT = 90.0  # seconds after the end for workers that still shrink
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


class Ended(NamedTuple):
    """How a campaign ended: what is printed, and the exit code."""

    lines: list[str]
    code: int


def campaign(
    options: Options,
    cluster: Cluster,
    say: Callable[[str], None] = print,
    *,
    resume: bool = False,
    json_file: str = "",
) -> Ended:
    """Runs a campaign to its end, or goes on with one. The summary goes to `json_file`, too, if that is not empty.

    Raises `RayError`, `JournalError`, `UsageError` or `ExamplesError`.
    """
    connect(cluster.redis)
    with _ray(cluster) as ray:
        workers = cluster.workers or _places(ray, cluster.gpus)
        options = _with_workers(options, workers)
        cluster = msgspec.structs.replace(cluster, workers=workers)
        state = _prepare(options, cluster, resume=resume)
        return _Driver(ray, state.setup, cluster, say).run(state.flags, json_file)


def _with_workers(options: Options, workers: int) -> Options:
    return replace(options, shards=tuple(range(workers)), shard_count=workers)


def place(options: Options, cluster: Cluster) -> str:
    """Where a campaign's state is."""
    return cluster.state or str(Path(options.folder, "coordinator").absolute())


def _saved(url: str) -> tuple[Snapshots, tuple[int, bytes] | None]:
    """The snapshots at a URL, and the last of them. Raises `UsageError` if nothing can be there."""
    try:
        snapshots = Snapshots(url)
        return snapshots, snapshots.load()
    except (OSError, ImportError, ValueError) as error:
        raise UsageError(f"{url} cannot hold the campaign's state: {error}; name another place by --state") from error


def _prepare(options: Options, cluster: Cluster, *, resume: bool) -> State:
    """The state from which the coordinator begins; what was asked for is written to the run's folder."""
    store = Store(options.corpus or findings_folder())
    flags = read_flags(Path(options.flags)) if options.flags else ()
    snapshots, saved = _saved(place(options, cluster))
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
        setup = Setup(options, cluster.workers, arms, known, cluster.redis, turn, pause, options.batches)
        state = State.of(setup, flags)
    record.begin(options)
    write_whole(Path(options.folder, CLUSTER), msgspec.json.encode(cluster).decode() + "\n")
    return state


def interval(workers: int, budget: float) -> float:
    """Seconds between two reports of a worker. All together send at most `_REPORTS` a second: a call costs Ray a millisecond or two."""
    return min(max(_BETWEEN_REPORTS, workers / _REPORTS), budget / 10)


@contextmanager
def _ray(cluster: Cluster) -> Iterator[Any]:
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


def _places(ray: Any, gpus: float) -> int:
    """How many workers fit into the cluster."""
    resources = ray.cluster_resources()
    cores = int(resources.get("CPU", 1))
    return max(min(cores, int(resources.get("GPU", 0) / gpus)) if gpus else cores, 1)


class _Driver:
    """One campaign at work."""

    def __init__(self, ray: Any, setup: Setup, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._ray, self._setup, self._options, self._cluster, self._say = ray, setup, setup.options, cluster, say
        self._store = Store(self._options.corpus or findings_folder())
        self._paths: dict[str, str] = {}
        self._failed: list[str] = []
        self._kept = self._said = time.monotonic()
        self._seen = -1

    def run(self, flags: tuple[Flag, ...], json_file: str) -> Ended:
        """Until all workers are done, the time is up, or Ctrl-C."""
        ray, name = self._ray, Path(self._options.folder).name
        url = place(self._options, self._cluster)
        here = ray.get_runtime_context().get_node_id() if "://" not in url else ""
        self._central = actors.coordinator(name, self._setup, flags, url, here)
        crew = [actors.worker(k, name, self._cluster.gpus) for k in range(self._setup.workers)]
        runs = {one.run.remote(): one for one in crew}
        how: RunState = "finished"
        try:
            self._watch(runs, flags)
        except KeyboardInterrupt:
            how = "interrupted"
            ray.get(self._central.stop.remote())
            ray.wait([*runs], num_returns=len(runs), timeout=FLUSH)
        for one in runs.values():
            ray.kill(one)
        error = ray.get(self._central.close.remote())
        if error:
            self._failed.append(f"the campaign's state could not be saved at {url}: {error}")
        return self._end(how, json_file)

    def _watch(self, runs: dict[Any, Any], flags: tuple[Flag, ...]) -> None:
        """Until all workers are done; those that are make room for others, whose nodes may be lost."""
        over = 0.0
        while runs:
            done, _ = self._ray.wait([*runs], num_returns=len(runs), timeout=1.0)
            self._failed += [text for one in done if (text := self._problem(one))]
            for one in done:
                self._ray.kill(runs.pop(one))
            flags = self._spread(flags)
            progress = self._ask(self._central.progress.remote())
            if progress is None:
                continue
            self._look(unpacked(progress, Progress))
            over = over or (time.monotonic() if unpacked(progress, Progress).left <= 0 else 0.0)
            if over and time.monotonic() > over + _WAIT:
                return

    def _problem(self, run: Any) -> str:
        """Why a worker ended other than by being done, which is the harness's fault; else nothing."""
        try:
            self._ray.get(run)
        except self._ray.exceptions.RayError as error:
            return f"a worker failed: {error}"
        return ""

    def _ask(self, pending: Any) -> bytes | None:
        try:
            answer: bytes = self._ray.get(pending, timeout=10.0)
        except self._ray.exceptions.RayError:  # it is about to begin anew
            return None
        return answer

    def _spread(self, flags: tuple[Flag, ...]) -> tuple[Flag, ...]:
        """Has all workers use the flags that are in the file now."""
        try:
            now = read_flags(Path(self._options.flags)) if self._options.flags else flags
        except FlagError:  # somebody is writing it
            return flags
        if now != flags:
            self._central.use.remote(packed(now))
        return now

    def _look(self, progress: Progress) -> None:
        """Shows how it goes, and keeps what is new."""
        if progress.begun and self._options.begun is None:
            self._options.begin()
        now = time.monotonic()
        if now > self._said + _BETWEEN_LINES:
            self._said = now
            self._say(line(self._options, progress))
        new = progress.findings + progress.killed
        if new != self._seen or now > self._kept + _BETWEEN_KEEPS:
            state = self._ask(self._central.state.remote())
            if state is not None:
                self._seen, self._kept = new, now
                self._keep(_decode(state), "unfinished")

    def _keep(self, state: State, how: RunState) -> tuple[record.Record, list[str]]:
        """Saves findings that are not saved yet, and the run's summary."""
        failed = []
        every = [*(finding.found for finding in state.findings.values()), *(found for _, found in state.killed)]
        for found in every:
            if found.case.digest not in self._paths:
                try:
                    self._paths[found.case.digest] = str(self._store.save(found.case))
                except CorpusError as error:
                    failed.append(f"{error}\n{found.text}\n{found.listing}")
        made = summary(state, self._paths)
        code = made.exit_code if how != "interrupted" else 2
        kept = recorded(state, self._cluster.address, made, code, how)
        try:
            record.save(kept, Path(self._options.folder, record.SUMMARY))
        except JournalError as error:
            failed.append(str(error))
        return kept, failed

    def _end(self, how: RunState, json_file: str) -> Ended:
        state = _decode(self._ray.get(self._central.state.remote()))
        kept, failed = self._keep(state, how)
        lines, whole = keep(kept, Path(self._options.folder), json_file)
        errors = [f"ERROR: {text}" for text in dict.fromkeys(self._failed + failed)]
        made = summary(state, self._paths)
        notes = [f"worker {number}: {note}" for number, note in kept.cluster.notes.items()] if kept.cluster else []
        code = kept.exit_code if how != "interrupted" else 130
        if not any(target.programs for target in made.targets.values()):
            errors.append("ERROR: no program was judged")
        if (errors or not whole) and code in (0, 3):
            code = 3
        return Ended([*shares(kept), *notes, *closing_lines(self._options, made, again), *lines, *errors], code)


def line(options: Options, progress: Progress) -> str:
    """One line on how a campaign goes."""
    rate = progress.programs / max(progress.used, 1e-9)
    away = sum(silent > 60 for silent in progress.silent.values())
    notes = f", {len(progress.notes)} cannot work" if progress.notes else ""
    return (
        f"aliasfuzz: {progress.used:.0f} of {options.budget:.0f} s, {progress.programs:,} programs, {rate:.0f}/s, "
        f"{progress.findings} distinct failures, {len(progress.silent)} workers{f', {away} silent' if away else ''}{notes}"
        f"{f', state not saved: {progress.store}' if progress.store else ''}"
    )


def shares(made: record.Record) -> list[str]:
    """How the turns were shared among the arms, those with most of them first."""
    arms = made.cluster.arms if made.cluster is not None else []
    total = sum(arm.turns for arm in arms)
    ranked = sorted(arms, key=lambda arm: -arm.turns)
    return [
        f"{arm.target}, {arm.profile}: {arm.turns} of {total} turns, {arm.yields} with something new"
        for arm in ranked
        if arm.turns
    ]


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
    _, saved = _saved(place(options, cluster))
    if saved is None:
        raise UsageError(f"{place(options, cluster)} holds no campaign to go on with")
    used = _decode(saved[1]).used
    budget = used + more if more else options.budget
    if budget <= used + 1:
        raise UsageError(f"the {options.budget:g} s of this campaign are over; --budget gives it more time")
    return replace(options, budget=budget), cluster
