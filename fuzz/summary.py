"""What a run found, from its workers' journals: totals per target, the findings, and whether a shard is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from corpus.flags import SHIPPED as FLAGS
from executor.limits import Limits
from fuzz import journal
from fuzz.accounts import FAILURES, NOTABLE, accounts
from fuzz.coverage import Coverage
from fuzz.options import GRADIENTS, NO_FLAGS, Options
from fuzz.relations import NONE
from fuzz.throughput import intervals


@dataclass
class TargetSummary:
    """One target's share of a run. `findings` are journal events, one a signature; `counts` the programs by outcome.

    `stale` are the flags that their cases do not prove any more, and why. `limits` are what the programs were drawn
    within, None if no shard has said so. `phases` are seconds of all shards together, and `intervals` the times between
    which so many programs were judged, in seconds since the epoch.
    """

    programs: int = 0
    failures: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    stale: dict[str, str] = field(default_factory=dict)
    limits: Limits | None = None
    versions: dict[str, str] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    phases: dict[str, float] = field(default_factory=dict)
    intervals: list[tuple[float, float, int]] = field(default_factory=list)

    @property
    def fresh(self) -> list[dict[str, Any]]:
        """The findings whose signatures the corpus did not have."""
        return [finding for finding in self.findings.values() if not finding["known"]]

    def take(self, event: dict[str, Any]) -> None:
        """Takes in an event of one of its shards."""
        kind = event["event"]
        if kind == "batch":
            self.seconds = max(self.seconds, event["seconds"])
        elif kind == "finding":
            self.findings.setdefault(event["signature"], event)
        elif kind == "stale":
            self.stale[event["flag"]] = event["why"]
        elif kind == "begin":
            self.limits, self.versions = msgspec.convert(event["limits"], Limits), event["versions"]
        elif kind == "coverage":
            self.coverage += msgspec.convert(event["counts"], Coverage)


@dataclass
class Summary:
    """A run so far. `missing` are the (target, shard) pairs that began or should have, and did not end.

    `killed` are the journal events of shards that were killed, each with the program that it was judging. `last` is the
    time of the last event, in seconds since the epoch; 0 if there is none.
    """

    targets: dict[str, TargetSummary]
    missing: list[tuple[str, int]]
    killed: list[dict[str, Any]]
    last: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 nothing new, 1 a new finding, 3 a shard that did not end."""
        if any(target.fresh for target in self.targets.values()):
            return 1
        return 3 if self.missing else 0


def summarize(options: Options) -> Summary:
    """The state of a run, from its folder."""
    found = {name: TargetSummary() for name in options.targets}
    every = [event for event in journal.read(Path(options.folder)) if event.get("target") in found]
    shards: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for event in every:
        found[event["target"]].take(event)
        if "shard" in event:
            shards.setdefault((event["target"], event["shard"]), []).append(event)
    for (name, _), events in shards.items():
        found[name].intervals += intervals(events)
        for phase, seconds in _phases(events):
            found[name].phases[phase] = found[name].phases.get(phase, 0.0) + seconds
    for (name, _), account in accounts(Path(options.folder)).items():
        found[name].programs += account.started
        found[name].failures += sum(account.counts[outcome] for outcome in FAILURES)
        found[name].counts += account.counts
    wanted = [(name, number) for name in options.targets for number in options.shards]
    done = {(event["target"], event["shard"]) for event in every if event["event"] == "done"}
    return Summary(
        found,
        [pair for pair in wanted if pair not in done],
        [event for event in every if event["event"] == "killed"],
        max((event["time"] for event in every), default=0.0),
    )


def _phases(events: Sequence[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """The phases that a shard went through, each with its seconds, from the shard's events in order."""
    phase, since = "", 0.0
    for event in events:
        if phase:
            yield phase, max(event["time"] - since, 0.0)
        if event["event"] in _TURNS:
            phase = event.get("phase", "")
        since = event["time"]


_TURNS = ("begin", "phase", "done", "killed")


def progress(options: Options, summary: Summary, now: float) -> str:
    """One line on how a run goes."""
    programs = sum(target.programs for target in summary.targets.values())
    findings = sum(len(target.findings) for target in summary.targets.values())
    passed = max(now - (options.begun or now), 1e-9)
    return (
        f"aliasfuzz: {passed:.0f} of {options.budget:.0f} s, {programs:,} programs, {programs / passed:.0f}/s, "
        f"{findings} distinct failures"
    )


def closing_lines(
    options: Options, summary: Summary, again: Callable[[Options, str, int], str] | None = None
) -> Iterator[str]:
    """What is printed at the end: each finding with its program, each target's totals, and how to run it again.

    `again` gives the command for a shard of a target, `rerun` unless told otherwise.
    """
    again = again or rerun
    for target in summary.targets.values():
        for finding in target.findings.values():
            yield from _finding(finding)
    for name, target in summary.targets.items():
        rate = target.programs / target.seconds if target.seconds else 0.0
        new = len(target.fresh)
        known = len(target.findings) - new
        note = f", {new} new, {known} known" if target.findings else ""
        yield (
            f"{name}: {target.programs} programs, {rate:.0f} programs/s, {target.failures} failures "
            f"({len(target.findings)} distinct{note})"
        )
        notable = [f"{target.counts[outcome]} {outcome}" for outcome in NOTABLE if target.counts[outcome]]
        if notable:
            yield f"{name}: of these programs {', '.join(notable)}"
        if target.coverage.tally:
            yield f"{name}: {', '.join(_tallied(target.coverage.tally))}"
        yield from (f"{name}: stale flag {flag}: {why}" for flag, why in target.stale.items())
    for event in summary.killed:
        yield f"{event['target']}: shard {event['shard']} was killed while it judged a program, saved as {event['path']}"
        yield f"  aliasfuzz replay {Path(event['path']).name}"
    for name, number in summary.missing:
        yield f"{name}: shard {number} did not end; run it again with: {again(options, name, number)}"
    yield f"seed {options.seed:#x}; a shard runs again with: {again(options, options.targets[0], options.shards[0])}"
    yield f"journals: {options.folder}"


def _tallied(tally: dict[str, int]) -> Iterator[str]:
    """Each count in words; one whose name begins with another's also as a share of that."""
    for name, count in tally.items():
        whole = next((tally[other] for other in tally if other != name and name.startswith(other)), 0)
        yield f"{count:,} {name}{f' ({count / whole:.0%})' if whole else ''}"


def _finding(finding: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"{'known' if finding['known'] else 'NEW'}: {finding['text'].splitlines()[0]}"
    yield from (f"    {line}" for line in finding["program"].splitlines())
    yield from finding["text"].splitlines()[1:]
    yield f"  saved as {finding['path']}"
    if finding.get("rerun"):
        yield f"  found by {finding['rerun']}"
    yield f"  aliasfuzz script {Path(finding['path']).name}"


def _tests() -> str:
    """The folder of the main job's tests, as short as it can be written from here."""
    folder, here = Path(__file__).resolve().parent, Path.cwd()
    return f"{folder.relative_to(here) if folder.is_relative_to(here) else folder}/"


def rerun(options: Options, target: str, number: int) -> str:
    """The command that repeats one shard's programs."""
    return (
        f"python -m pytest {_tests()} --fuzz-target {target} --fuzz-seed {options.seed:#x} "
        f"--fuzz-shard {number}/{options.shard_count} --fuzz-budget {options.budget:g}s"
        f"{'' if options.exact else ' --fuzz-float'}{_flags(options)}"
        f"{f' --fuzz-against {options.against}' if options.against else ''}"
        f"{f' --fuzz-relations {options.relations}' if options.relations != NONE else ''}"
        f"{f' --fuzz-gradients {options.gradients}' if options.gradients != GRADIENTS[0] else ''}"
    )


def _flags(options: Options) -> str:
    """The option that names the file of known bugs, where it is not the shipped one: bans change what is drawn."""
    return "" if options.flags == str(FLAGS) else f" --fuzz-flags {options.flags or NO_FLAGS}"
