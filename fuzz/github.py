"""What a run tells GitHub Actions: annotations, as lines that it prints, and a summary of the job in Markdown."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from fuzz.journal import writing
from fuzz.record import FindingRecord, Record, TargetRecord

_MOST = 10  # annotations of a kind that GitHub shows of one step
_MOST_FINDINGS = 50  # in the summary, which may have 1 MiB


def annotate(record: Record, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Lines that GitHub turns into annotations: an error for each new finding and each lost shard; none elsewhere."""
    if environment.get("GITHUB_ACTIONS") != "true":
        return
    new = [(name, finding) for name, finding in record.findings if not finding.known]
    for name, finding in new[: _MOST - 1]:
        text = f"{finding.text}\n\n{finding.program}\n\naliasfuzz script {Path(finding.path).name}"
        yield _command("error", f"aliasfuzz: new finding on {name}", text)
    if len(new) >= _MOST:
        more = f"{len(new) - _MOST + 1} more new findings; see the job's summary"
        yield _command("error", "aliasfuzz: more findings", more)
    for name, shard in record.missing[:_MOST]:
        yield _command("warning", "aliasfuzz: a shard did not end", f"{name}: shard {shard}")
    stale = [(flag, why) for target in record.targets.values() for flag, why in target.stale_flags.items()]
    for flag, why in stale[:_MOST]:
        yield _command("warning", f"aliasfuzz: stale flag {flag}", why)


def _command(kind: str, title: str, message: str) -> str:
    return f"::{kind} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def append_summary(record: Record, environment: Mapping[str, str] = os.environ) -> None:
    """Appends the summary to the file that GitHub names, if it names one. Raises `JournalError`."""
    if name := environment.get("GITHUB_STEP_SUMMARY"):
        remedy = "set $GITHUB_STEP_SUMMARY to a file that can be written, or to nothing"
        with writing(Path(name), remedy), Path(name).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(markdown(record))


def markdown(record: Record) -> str:
    """The summary of a run."""
    lines = [
        "## aliasfuzz",
        "",
        "| target | programs | programs/s | failures | distinct | new |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    lines += [_row(name, target) for name, target in record.targets.items()]
    lines += ["", f"Seed `{record.seed:#x}`, exit code {record.exit_code}, {record.state}.", ""]
    lines += [f"- `{name}`: shard {shard} did not end" for name, shard in record.missing]
    for name, finding in record.findings[:_MOST_FINDINGS]:
        lines += _finding(name, finding)
    left = len(record.findings) - _MOST_FINDINGS
    lines += [f"... and {left} more, in the run's `summary.json`.", ""] if left > 0 else []
    return "\n".join([*lines, "Run it again:", "", *_block("\n".join(record.rerun)), ""])


def _row(name: str, target: TargetRecord) -> str:
    rate = target.programs / target.seconds if target.seconds else 0.0
    new = sum(not finding.known for finding in target.findings)
    numbers = (f"{target.programs:,}", f"{rate:.0f}", f"{target.failures:,}", str(len(target.findings)), str(new))
    return f"| `{name}` | {' | '.join(numbers)} |"


def _finding(name: str, finding: FindingRecord) -> list[str]:
    title = f"{'known' if finding.known else 'NEW'} on {name}: {finding.signature}"
    return [
        "<details><summary>",
        title,
        "</summary>",
        "",
        *_block(f"{finding.text}\n\n{finding.program}"),
        "</details>",
        "",
    ]


def _block(text: str) -> list[str]:
    """Text as it is, in a fence that it does not hold."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, text, fence, ""]
