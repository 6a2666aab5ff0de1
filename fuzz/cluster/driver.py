"""Runs a campaign on Ray: watches it, keeps what it finds in this machine's corpus and run folder, and ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from corpus.case import CorpusError
from corpus.flags import Flag, FlagError
from corpus.flags import read as read_flags
from corpus.store import Store, findings_folder
from fuzz import record
from fuzz.cluster import actors
from fuzz.cluster.coordinator import Progress
from fuzz.cluster.examples import connect
from fuzz.cluster.merged import again, recorded, summary
from fuzz.cluster.messages import Setup, packed, unpacked
from fuzz.cluster.start import (
    LOCAL,
    Cluster,
    RayError,
    connected,
    lacking,
    place,
    places,
    prepare,
    with_workers,
)
from fuzz.cluster.state import State
from fuzz.cluster.worker import FLUSH
from fuzz.ending import keep
from fuzz.journal import JournalError
from fuzz.options import Options, UsageError
from fuzz.record import State as RunState
from fuzz.summary import closing_lines

_BETWEEN_KEEPS = 10.0  # seconds
_BETWEEN_LINES = 10.0
_WAIT = 90.0  # seconds after the end for workers that still shrink
_decode = msgspec.msgpack.Decoder(State).decode


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
    with connected(cluster) as ray:
        if not actors.vacant(Path(options.folder).name):
            raise UsageError(f"the campaign of {options.folder} is at work on this cluster")
        short = lacking(ray, cluster.gpus)
        if short and cluster.address == LOCAL:
            raise RayError(short)
        if short:  # a cluster may grow
            say(f"aliasfuzz: {short}, or workers wait for such a node")
        workers = cluster.workers or places(ray, cluster.gpus)
        options = with_workers(options, workers)
        cluster = msgspec.structs.replace(cluster, workers=workers)
        state = prepare(options, cluster, resume=resume)
        return _Driver(ray, state.setup, cluster, say).run(state.flags, json_file)


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
        ended = self._end(how, json_file)
        ray.kill(self._central)  # or its name would be taken until somebody collects it
        return ended

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
    rate = progress.programs / max(progress.used, 1.0)
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
