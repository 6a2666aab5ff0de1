"""What a run found, from its workers' journals: totals per target, the findings, and whether a shard is missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus.flags import SHIPPED as FLAGS
from fuzz import journal
from fuzz.accounts import FAILURES, NOTABLE, accounts
from fuzz.options import NO_FLAGS, Options


@dataclass
class TargetSummary:
    """One target's share of a run. `findings` are journal events, one a signature; `counts` the programs by outcome.

    `stale` are the flags that their cases do not prove any more, and why.
    """

    programs: int = 0
    failures: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    stale: dict[str, str] = field(default_factory=dict)

    @property
    def fresh(self) -> list[dict[str, Any]]:
        """The findings whose signatures the corpus did not have."""
        return [finding for finding in self.findings.values() if not finding["known"]]


@dataclass
class Summary:
    """A run so far. `missing` are the (target, shard) pairs that began or should have, and did not end.

    `killed` are the journal events of shards that were killed, each with the program that it was judging.
    """

    targets: dict[str, TargetSummary]
    missing: list[tuple[str, int]]
    killed: list[dict[str, Any]]

    @property
    def exit_code(self) -> int:
        """0 nothing new, 1 a new finding, 3 a shard that did not end."""
        if any(target.fresh for target in self.targets.values()):
            return 1
        return 3 if self.missing else 0


def summarize(options: Options) -> Summary:
    """The state of a run, from its folder."""
    shards: dict[tuple[str, int], dict[str, Any]] = {}
    done: set[tuple[str, int]] = set()
    found = {name: TargetSummary() for name in options.targets}
    killed = []
    for event in journal.read(Path(options.folder)):
        if event["event"] == "batch":
            shards[event["target"], event["shard"]] = event
        elif event["event"] == "done":
            done.add((event["target"], event["shard"]))
        elif event["event"] == "killed":
            killed.append(event)
        elif event["event"] == "finding":
            found[event["target"]].findings.setdefault(event["signature"], event)
        elif event["event"] == "stale":
            found[event["target"]].stale[event["flag"]] = event["why"]
    for (name, _), event in shards.items():
        found[name].seconds = max(found[name].seconds, event["seconds"])
    for (name, _), account in accounts(Path(options.folder)).items():
        found[name].programs += account.started
        found[name].failures += sum(account.counts[outcome] for outcome in FAILURES)
        found[name].counts += account.counts
    wanted = [(name, number) for name in options.targets for number in options.shards]
    return Summary(found, [pair for pair in wanted if pair not in done], killed)


def progress(options: Options, summary: Summary, now: float) -> str:
    """One line on how a run goes."""
    programs = sum(target.programs for target in summary.targets.values())
    findings = sum(len(target.findings) for target in summary.targets.values())
    passed = max(now - (options.begun or now), 1e-9)
    return (
        f"aliasfuzz: {passed:.0f} of {options.budget:.0f} s, {programs:,} programs, {programs / passed:.0f}/s, "
        f"{findings} distinct failures"
    )


def closing_lines(options: Options, summary: Summary) -> Iterator[str]:
    """What is printed at the end: each finding with its program, each target's totals, and how to run it again."""
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
        yield from (f"{name}: stale flag {flag}: {why}" for flag, why in target.stale.items())
    for event in summary.killed:
        yield f"{event['target']}: shard {event['shard']} was killed while it judged a program, saved as {event['path']}"
        yield f"  aliasfuzz replay {Path(event['path']).name}"
    for name, number in summary.missing:
        yield f"{name}: shard {number} did not end; run it again with: {rerun(options, name, number)}"
    yield f"seed {options.seed:#x}; a shard runs again with: {rerun(options, options.targets[0], options.shards[0])}"
    yield f"journals: {options.folder}"


def to_json(options: Options, summary: Summary, exit_code: int) -> str:
    """The summary for machines: an object with the seed, the exit code of pytest (2 if it was interrupted), and each target's totals and findings."""
    found = {
        name: {
            "programs": target.programs,
            "failures": target.failures,
            "seconds": target.seconds,
            "outcomes": dict(target.counts),
            "stale_flags": target.stale,
            "findings": [
                {key: finding[key] for key in ("signature", "known", "path", "text", "program")}
                for finding in target.findings.values()
            ],
        }
        for name, target in summary.targets.items()
    }
    return json.dumps(
        {
            "format": "aliasfuzz.summary",
            "version": 1,
            "seed": options.seed,
            "exit_code": exit_code,
            "missing": summary.missing,
            "killed": [{key: event[key] for key in ("target", "shard", "path")} for event in summary.killed],
            "targets": found,
        },
        indent=2,
    )


def _finding(finding: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"{'known' if finding['known'] else 'NEW'}: {finding['text'].splitlines()[0]}"
    yield from (f"    {line}" for line in finding["program"].splitlines())
    yield from finding["text"].splitlines()[1:]
    yield f"  saved as {finding['path']}"
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
    )


def _flags(options: Options) -> str:
    """The option that names the file of known bugs, where it is not the shipped one: bans change what is drawn."""
    return "" if options.flags == str(FLAGS) else f" --fuzz-flags {options.flags or NO_FLAGS}"
