"""The page: what the template is given, and where it is written."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aliasfuzz import __version__, doctor
from aliasfuzz.report import tables
from aliasfuzz.report.chart import chart, clock
from aliasfuzz.report.findings import Shown, shown
from corpus.flags import SHIPPED as FLAGS
from executor.errors import AliasfuzzError
from fuzz.journal import write_whole
from fuzz.options import GRADIENTS, NO_FLAGS, SHRINK_SECONDS
from fuzz.record import RUN, SUMMARY, Record, load
from fuzz.relations import NONE

RUNS = Path(".aliasfuzz", "runs")
LAST = "last"
_OPEN = 3  # findings that are shown unfolded


class ReportError(AliasfuzzError):
    """There is no such run, or the page cannot be made; the message says why."""


def find_run(name: str, runs: Path = RUNS) -> Path:
    """The folder of a run: a path, the beginning of a folder's name in `runs`, or "last".

    Raises `ReportError` if there is none, or if there are several.
    """
    if Path(name).is_dir():
        return Path(name)
    found = sorted(path for path in runs.glob("*") if (path / RUN).exists() or (path / SUMMARY).exists())
    if not found:
        raise ReportError(f"{name} is no folder, and there is no run in {runs}; aliasfuzz run leaves one there")
    fits = found[-1:] if name == LAST else [path for path in found if path.name.startswith(name)]
    if not fits:
        raise ReportError(f"no run in {runs} begins with {name}; the last one is {found[-1].name}")
    if len(fits) > 1:
        raise ReportError(f"{len(fits)} runs begin with {name}: {', '.join(path.name for path in fits[:5])}")
    return fits[0]


def write(run: Path, file: Path) -> Record:
    """Writes the page about the run in a folder. Raises `ReportError`, `RunError` or `JournalError`."""
    record = load(run)
    write_whole(file, html(record, str(run), shown(record)), "name another file by -o")
    return record


def html(record: Record, run: str, findings: list[Shown]) -> str:
    """The text of the page. Raises `ReportError` where jinja2 is missing."""
    try:
        import jinja2
    except ModuleNotFoundError:
        raise ReportError("the report needs jinja2: pip install 'aliasfuzz[report]'") from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(clock=clock, moment=_moment)
    return environment.get_template("page.html.j2").render(context(record, run, findings))


def context(record: Record, run: str, findings: list[Shown]) -> Mapping[str, Any]:
    """All that the page says."""
    seconds = record.ended - record.begun if record.begun else 0.0
    programs = sum(target.programs for target in record.targets.values())
    fresh = sum(not one.finding.known for one in findings)
    return {
        "record": record,
        "run": run,
        "name": Path(run).resolve().name,
        "version": __version__,
        "verdict": _verdict(record, programs, fresh),
        "good": record.state == "finished" and record.exit_code == 0 and programs > 0,
        "seconds": seconds,
        "programs": programs,
        "rate": programs / seconds if seconds > 0 else 0.0,
        "fresh": fresh,
        "findings": findings,
        "unfolded": _OPEN,
        "chart": chart(record),
        "coverage": {name: _coverage(record, name) for name in record.targets},
        "here": doctor.checks(),
        "now": time.time(),
        "commands": _commands(record),
    }


def _coverage(record: Record, name: str) -> dict[str, Any]:
    target = record.targets[name]
    relations, rows = tables.dependences(target)
    return {
        "counts": target.coverage,
        "shares": tables.shares(target),
        "histograms": tables.histograms(target),
        "relations": relations,
        "dependences": rows,
        "never": target.never_reached,
    }


def _verdict(record: Record, programs: int, fresh: int) -> str:
    """The outcome in a few words."""
    if fresh:
        return "1 new finding" if fresh == 1 else f"{fresh} new findings"
    if not programs:
        return "no program was judged"
    if record.missing:
        return "1 shard did not end" if len(record.missing) == 1 else f"{len(record.missing)} shards did not end"
    return "nothing new" if record.exit_code in (0, 2) else "the harness failed"


def _commands(record: Record) -> list[str]:
    """The command that runs the whole run again, then those for each shard."""
    options = record.options
    if options is None or len(options.shards) < options.shard_count:
        return record.rerun or [f"aliasfuzz run --seed {record.seed:#x}"]
    parts = [part for name in options.targets for part in ("--target", name)]
    parts += ["--seed", f"{options.seed:#x}", "--budget", f"{options.budget:g}s", "--workers", str(options.shard_count)]
    parts += ["--ray", record.cluster.address] if record.cluster is not None else []
    parts += ["--shrink-budget", f"{options.shrink:g}s"] if options.shrink != SHRINK_SECONDS else []
    parts += [] if options.exact else ["--float"]
    parts += [] if options.flags == str(FLAGS) else ["--flags", options.flags or NO_FLAGS]
    parts += ["--against", options.against] if options.against else []
    parts += ["--relations", options.relations] if options.relations != NONE else []
    parts += ["--gradients", options.gradients] if options.gradients != GRADIENTS[0] else []
    return [shlex.join(["aliasfuzz", "run", *parts]), *record.rerun]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if seconds else "never"
