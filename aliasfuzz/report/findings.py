"""A run's findings as they are shown: the case, its program, its picture, and a script for the compiler's authors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from aliasfuzz import showing
from aliasfuzz.pictures import draw, svg
from corpus.case import Case
from corpus.store import find, read
from executor import targets
from executor.errors import AliasfuzzError
from executor.targets import Target
from fuzz.check import Verdict, check
from fuzz.isolation import contained
from fuzz.record import FindingRecord, Record
from fuzz.script import script

SECONDS = 120.0  # for running findings again, to draw them
_SECONDS_EACH = 5.0


class Shown(NamedTuple):
    """A finding. `svg` is its picture, `script` the text of its script; each is empty where `notes` say why."""

    target: str
    finding: FindingRecord
    headline: str
    signature: str
    svg: str
    script: str
    notes: list[str]

    @property
    def file(self) -> str:
        """The name of its case file."""
        return Path(self.finding.path).name

    @property
    def badge(self) -> str:
        """What it is called: known, flaky or new."""
        return "known" if self.finding.known else "flaky" if self.finding.state == "flaky" else "new"


def shown(record: Record, seconds: float = SECONDS) -> list[Shown]:
    """All findings of a run, new ones first. They run again, to be drawn, as long as there is time."""
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        ready: dict[str, Target] = {}
        return [_shown(name, finding, stack, ready, deadline) for name, finding in record.findings]


def _shown(name: str, finding: FindingRecord, stack: ExitStack, ready: dict[str, Target], deadline: float) -> Shown:
    headline, signature = _words(finding)
    notes: list[str] = []
    picture = text = ""
    case = _case(finding, notes)
    if case is not None:
        with noted(notes, "no script"):
            text = script(case)
        if time.monotonic() < deadline:
            with noted(notes, "no picture"):
                picture = _picture(case, stack, ready)
        else:
            notes.append(f"no picture, for lack of time: aliasfuzz show {Path(finding.path).name}")
    return Shown(name, finding, headline, signature, picture, text, notes)


def _words(finding: FindingRecord) -> tuple[str, str]:
    """The worst difference and the signature, in words, from the verdict's text."""
    lines = [line.strip() for line in finding.text.splitlines()]
    signature = next((line.removeprefix("signature: ") for line in lines if line.startswith("signature: ")), "")
    first = lines[1] if len(lines) > 1 and not lines[1].startswith("signature: ") else "".join(lines[:1])
    return first, signature or finding.signature


def _case(finding: FindingRecord, notes: list[str]) -> Case | None:
    """The case, where it was saved or wherever it is now; None, and a note, if it is gone or broken."""
    path = Path(finding.path)
    try:
        return read(path if path.is_file() else find(path.name))
    except (AliasfuzzError, OSError) as error:
        notes.append(f"no picture and no script: {error}")
        return None


def _picture(case: Case, stack: ExitStack, ready: dict[str, Target]) -> str:
    if case.target not in ready:
        ready[case.target] = stack.enter_context(
            contained(targets.get(case.target), always=True, seconds=_SECONDS_EACH)
        )
    verdict: Verdict = check(
        case.program, target=ready[case.target], exact=case.exact, calls=case.calls, bounds=case.bounds
    )
    return svg(draw(case, verdict, showing.remark(case, verdict)))


@contextmanager
def noted(notes: list[str], lacking: str) -> Iterator[None]:
    """Notes what goes wrong in the block, and what is lacking for it: one bad case does not keep the page from the reader."""
    try:
        yield
    except AliasfuzzError as error:
        notes.append(f"{lacking}: {error}")
    except Exception as error:  # noqa: BLE001 - whatever one case does, the page tells of the others
        notes.append(f"{lacking}: {type(error).__name__}: {error}")
