"""What a night brought, in one summary: findings that are new or known, and saved cases that are fixed or changed.

Runs after a target's campaign as `python -m fuzz.nightly FOLDER TARGET`, and without a target to sum up those that ended.
`FOLDER/TARGET` holds `summary.json` of the campaign, the `corpus` that grows from night to night, and `night.json`: last
night's, which is read, then this night's. `FOLDER/nights.json` and `nights.md` are the one summary over all targets.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from corpus.case import Case
from corpus.store import SHIPPED, Store
from executor.errors import AliasfuzzError
from fuzz.options import seconds
from fuzz.replay import Replay, observed, replay

FORMAT, VERSION = "aliasfuzz.night", 1
TITLES = {
    "new": "New: not in the corpus before",
    "changed": "Changed: a saved case fails otherwise than it did, or again",
    "fixed": "Fixed: a saved case that failed is right",
    "known": "Known: found again",
}


class NightlyError(AliasfuzzError):
    """A file of the nightly job is missing or is something else; the message names it."""


class Entry(msgspec.Struct, frozen=True):
    """One finding or case: the name of its case file, and what it does, in a line."""

    case: str
    what: str


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """One target's night.

    `programs` were judged in `seconds`; `rate_before` is last night's number of programs a second, 0 if there was none.
    `states` are those of all saved cases as seen now or, if the time did not suffice for that, at last; `not_replayed` is
    the number of the latter.
    """

    format: str = FORMAT
    version: int = VERSION
    target: str
    programs: int
    seconds: float
    rate_before: float = 0.0
    new: tuple[Entry, ...] = ()
    known: tuple[Entry, ...] = ()
    fixed: tuple[Entry, ...] = ()
    changed: tuple[Entry, ...] = ()
    states: dict[str, str] = {}
    not_replayed: int = 0

    @property
    def rate(self) -> float:
        """Programs a second."""
        return self.programs / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        """0 for nothing to look at, 1 for what is new or changed."""
        return 1 if self.new or self.changed else 0


def compare(
    target: str, campaign: Mapping[str, Any], replays: Mapping[str, tuple[str, Replay | None]], before: Night | None
) -> Night:
    """The night of a target, from its part of the campaign's summary and its saved cases' replays.

    `replays` gives for each case file the state that is recorded in it, and what it does now, or None if it was not run.
    What a case did `before`, last night, counts more than what is recorded: shipped cases keep their files.
    """
    found: dict[str, list[Entry]] = {"new": [], "known": []}
    for finding in campaign["findings"]:
        what = f"{finding['signature']} {_line(finding['text'])}"
        found["known" if finding["known"] else "new"].append(Entry(Path(finding["path"]).name, what))
    states, moved = dict(before.states) if before else {}, {"fixed": list[Entry](), "changed": list[Entry]()}
    for name, (recorded, now) in replays.items():
        was = states.setdefault(name, recorded)
        if now is None or now.state in (was, "unavailable"):
            continue
        states[name] = now.state
        entry = Entry(name, f"was {was}, is {now.state}: {_line(now.text)}")
        moved["fixed" if now.state == "fixed" else "changed"].append(entry)
    return Night(
        target=target,
        programs=campaign["programs"],
        seconds=campaign["seconds"],
        rate_before=before.rate if before else 0.0,
        new=tuple(found["new"]),
        known=tuple(found["known"]),
        fixed=tuple(moved["fixed"]),
        changed=tuple(moved["changed"]),
        states={name: states[name] for name in replays},
        not_replayed=sum(now is None for _, now in replays.values()),
    )


def _line(text: str) -> str:
    """The first line that says what differs: the heading before it only names the target."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    heading = lines and lines[0].endswith(":") and len(lines) > 1
    return lines[1 if heading else 0] if lines else ""


def replays(target: str, corpus: Store, limit: float) -> dict[str, tuple[str, Replay | None]]:
    """What the target's saved cases do now, by file name, until so many seconds are over; those not run have None.

    What is seen is written to the files of `corpus`, the findings of earlier nights.
    """
    deadline, found = time.monotonic() + limit, dict[str, tuple[str, Replay | None]]()
    for store in (corpus, Store(SHIPPED)):
        for path, case in store.cases():
            if not isinstance(case, Case) or case.target != target or path.name in found:
                continue
            now = replay(case) if time.monotonic() < deadline else None
            found[path.name] = (case.state, now)
            if now is not None and store is corpus and (seen := observed(case, now)) != case:
                corpus.update(path, seen)
    return found


def page(nights: Iterable[Night]) -> str:
    """The summary as Markdown: a row of totals for each target, then what is new, changed, fixed and known."""
    nights = list(nights)
    lines = ["# aliasfuzz: the night", "", "| target | programs | programs/s | the night before | new | changed | fixed | known |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    lines += [_row(night) for night in nights]
    for kind, title in TITLES.items():
        entries = [(night.target, entry) for night in nights for entry in getattr(night, kind)]
        lines += ["", f"## {title}", "", *([_item(*each) for each in entries] or ["Nothing."])]
    return "\n".join([*lines, *_unfinished(nights), ""])


def _row(night: Night) -> str:
    before = f"{night.rate_before:.0f}" if night.rate_before else "-"
    counts = " | ".join(str(len(getattr(night, kind))) for kind in TITLES)
    return f"| {night.target} | {night.programs} | {night.rate:.0f} | {before} | {counts} |"


def _item(target: str, entry: Entry) -> str:
    return f"- {target}: `{entry.case}`: {entry.what}"


def _unfinished(nights: Iterable[Night]) -> Iterator[str]:
    for night in nights:
        if night.not_replayed:
            yield ""
            yield f"{night.target}: {night.not_replayed} saved cases were not run again; the time for them was over."


def read(path: Path) -> Night:
    """The night in this file. Raises `NightlyError`."""
    try:
        night = msgspec.json.decode(path.read_bytes(), type=Night)
    except (OSError, msgspec.DecodeError) as error:
        raise NightlyError(
            f"{path}: this is no night.json: {error}; delete it, and the night counts as the first"
        ) from error
    if (night.format, night.version) != (FORMAT, VERSION):
        raise NightlyError(f"{path}: {night.format} {night.version} is not {FORMAT} {VERSION}; delete it")
    return night


def _campaign(path: Path, target: str) -> Mapping[str, Any]:
    """The target's part of a campaign's summary."""
    try:
        found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["targets"][target]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NightlyError(f"{path}: no summary of a campaign on {target}: {error!r}; did the campaign end?") from error
    return found


def _write(folder: Path, target: str, limit: float) -> Night:
    """Makes the night of a target and writes it to its folder. Raises `NightlyError`."""
    place = folder / target.replace(":", "-")
    file = place / "night.json"
    campaign, before = _campaign(place / "summary.json", target), read(file) if file.exists() else None
    night = compare(target, campaign, replays(target, Store(place / "corpus"), limit), before)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(night)))
    return night


def main(arguments: list[str] | None = None) -> int:
    """The command. 0 for nothing to look at, 1 for something new or changed, 2 for files that are missing or broken."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.nightly", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the nightly job keeps its files")
    parser.add_argument("target", nargs="?", help="the target whose campaign has ended; none: only sum up")
    parser.add_argument("--replay-time", default="10m", metavar="TIME", help="time to run saved cases again (10m)")
    given = parser.parse_args(arguments)
    try:
        code = _write(given.folder, given.target, seconds(given.replay_time)).exit_code if given.target else 0
        nights = [read(file) for file in sorted(given.folder.glob("*/night.json"))]
    except AliasfuzzError as error:
        sys.stderr.write(f"nightly: {error}\n")
        return 2
    text = page(nights)
    (given.folder / "nights.json").write_bytes(msgspec.json.format(msgspec.json.encode(nights)))
    (given.folder / "nights.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
