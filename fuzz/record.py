"""A run's record, for machines: what was asked for (`run.json`), and what came of it (`summary.json`).

`docs/file-formats.md` describes both files. A run that was killed has no summary; it is made from the journals then.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import msgspec

from executor.errors import AliasfuzzError
from fuzz.coverage import Coverage
from fuzz.journal import write_whole
from fuzz.options import Options
from fuzz.reach import never
from fuzz.summary import Summary, TargetSummary, rerun, summarize
from fuzz.throughput import spread

RUN, SUMMARY = "run.json", "summary.json"
State = Literal["finished", "interrupted", "unfinished"]
_PACKAGES = ("aliasfuzz", "torch", "hypothesis", "numpy", "msgspec", "pytest", "pytest-xdist")


class RunError(AliasfuzzError):
    """A run's folder cannot be read; the message says what is wrong with it."""


class FindingRecord(msgspec.Struct, kw_only=True):
    """One signature that was found: its digest, whether the corpus had it, its case file, and the verdict and program as text.

    `seconds` says when it was found, from the run's begin. In a campaign on many machines, `rerun` is the command that runs
    the batch that found it again, and `times` says how often it was found.
    """

    signature: str
    known: bool
    path: str
    text: str
    program: str
    state: str = ""
    seconds: float = 0.0
    rerun: str = ""
    times: int = 1


class TargetRecord(msgspec.Struct, kw_only=True):
    """What was found on one compiler.

    `outcomes` are the numbers of programs by what became of them, `seconds` the longest that a shard took. `throughput` are
    pairs: a second of the run, and programs a second up to it, since the pair before. `phases` are seconds of all shards
    together. `never_reached` lists, for each kind of thing that `coverage` counts, what could have been drawn and was not.
    """

    programs: int
    failures: int
    seconds: float
    outcomes: dict[str, int]
    stale_flags: dict[str, str]
    findings: list[FindingRecord]
    versions: dict[str, str] = {}
    phases: dict[str, float] = {}
    throughput: list[tuple[float, float]] = []
    coverage: Coverage = msgspec.field(default_factory=Coverage)
    never_reached: dict[str, list[str]] = {}


class KilledRecord(msgspec.Struct, kw_only=True):
    """A shard that was killed, and the case made of the program that it was judging."""

    target: str
    shard: int
    path: str


class ArmRecord(msgspec.Struct, kw_only=True):
    """How workers were shared: the turns that went to a target within a swarm profile, and how many yielded something new."""

    target: str
    profile: str
    turns: int
    yields: int


class ClusterRecord(msgspec.Struct, kw_only=True):
    """A campaign on many machines: workers by node, how often workers and the coordinator began anew, and the arms.

    `address` is that of Ray, or "local". `notes` say, by worker, what kept it from working at last. `lost` counts failures beyond those that are kept.
    """

    address: str
    nodes: dict[str, int]
    restarts: int
    coordinator_restarts: int
    arms: list[ArmRecord]
    notes: dict[str, str] = {}
    lost: int = 0


class Record(msgspec.Struct, kw_only=True):
    """A run. Times are seconds since the epoch, `exit_code` is pytest's (2 if it was interrupted), or what it would be.

    `missing` are the pairs of target and shard that did not end. `rerun` are the commands that run the shards again. `cluster`
    tells of the machines, if there were many.
    """

    format: Literal["aliasfuzz.summary"] = "aliasfuzz.summary"
    version: Literal[1] = 1
    seed: int
    exit_code: int
    state: State = "finished"
    begun: float = 0.0
    ended: float = 0.0
    options: Options | None = None
    machine: dict[str, str] = {}
    missing: list[tuple[str, int]]
    killed: list[KilledRecord]
    rerun: list[str] = []
    targets: dict[str, TargetRecord]
    cluster: ClusterRecord | None = None

    @property
    def findings(self) -> list[tuple[str, FindingRecord]]:
        """All findings, each with its target, new ones first."""
        every = [(name, finding) for name, target in self.targets.items() for finding in target.findings]
        return sorted(every, key=lambda pair: pair[1].known)


class Asked(msgspec.Struct, kw_only=True):
    """What a run was asked to do, and on which machine; written before it begins."""

    format: Literal["aliasfuzz.run"] = "aliasfuzz.run"
    version: Literal[1] = 1
    options: Options
    machine: dict[str, str] = {}


def begin(options: Options) -> None:
    """Writes what the run is asked to do. Raises `JournalError`."""
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    asked = Asked(options=options, machine=machine())
    write_whole(Path(options.folder, RUN), _text(asked))


def machine() -> dict[str, str]:
    """The machine and the packages that every run depends on, in words."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "cores": str(os.cpu_count())}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def record(options: Options, summary: Summary, exit_code: int, state: State, asked: Asked | None = None) -> Record:
    """The record of a run, from its summary."""
    begun = options.begun or 0.0
    ended = time.time() if state != "unfinished" else summary.last
    return Record(
        seed=options.seed,
        exit_code=exit_code,
        state=state,
        begun=begun,
        ended=max(ended, begun),
        options=options,
        machine=asked.machine if asked is not None else machine(),
        missing=summary.missing,
        killed=[KilledRecord(target=e["target"], shard=e["shard"], path=e["path"]) for e in summary.killed],
        rerun=[rerun(options, name, number) for name in options.targets for number in options.shards],
        targets={name: _target(options, target, begun, max(ended, begun)) for name, target in summary.targets.items()},
    )


def _target(options: Options, target: TargetSummary, begun: float, ended: float) -> TargetRecord:
    lacking = never(target.limits, target.coverage, exact=options.exact) if target.limits is not None else {}
    return TargetRecord(
        programs=target.programs,
        failures=target.failures,
        seconds=target.seconds,
        outcomes=dict(target.counts),
        stale_flags=target.stale,
        findings=[_finding(finding, begun) for finding in target.findings.values()],
        versions=target.versions,
        phases={phase: round(seconds, 1) for phase, seconds in target.phases.items()},
        throughput=spread(target.intervals, begun, ended),
        coverage=target.coverage,
        never_reached={kind: list(names) for kind, names in lacking.items()},
    )


def _finding(event: dict[str, Any], begun: float) -> FindingRecord:
    return FindingRecord(
        **{name: event[name] for name in ("signature", "known", "path", "text", "program")},
        state=event.get("state", ""),
        seconds=round(max(event.get("time", begun) - begun, 0.0), 3),
        rerun=event.get("rerun", ""),
        times=event.get("times", 1),
    )


def save(found: Record, file: Path, remedy: str = "choose another folder by --fuzz-run") -> None:
    """Writes a record to a file, as a whole. Raises `JournalError`."""
    write_whole(file, _text(found), remedy)


def _text(found: Record | Asked) -> str:
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def load(folder: Path) -> Record:
    """The record of the run in a folder, from its summary, or else from its journals. Raises `RunError`."""
    if not folder.is_dir():
        raise RunError(f"{folder} is no folder; a run leaves one in .aliasfuzz/runs")
    try:
        return msgspec.json.decode((folder / SUMMARY).read_bytes(), type=Record)
    except FileNotFoundError:
        why = f"it has no {SUMMARY}"
    except OSError as error:
        raise RunError(f"{folder / SUMMARY} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        why = f"its {SUMMARY} is damaged, or of another version ({error})"
    return _from_journals(folder, why)


def _from_journals(folder: Path, why: str) -> Record:
    try:
        asked = msgspec.json.decode((folder / RUN).read_bytes(), type=Asked)
        options = replace(asked.options, folder=str(folder))  # it may have been moved
        summary = summarize(options)
        return record(options, summary, summary.exit_code, "unfinished", asked)
    except FileNotFoundError:
        raise RunError(f"{folder} holds no run: {why}, and no {RUN}") from None
    except OSError as error:
        raise RunError(f"{folder} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{folder}: {why}, and its {RUN} and journals cannot be read either: {error!r}") from error
