"""What `aliasfuzz show` shows of a case: what is recorded, and what its target does now, as a memory map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from aliasfuzz.pictures import Picture, draw, svg
from corpus.case import Case
from executor import printing, targets
from executor.errors import AliasfuzzError, TargetError
from fuzz.check import Verdict
from fuzz.isolation import contained
from fuzz.related import rerun

_DEADLY = ("crash", "memory-limit", "timeout", "in-flight")
_ALONE = "The map shows eager alone."


class ShowError(AliasfuzzError):
    """The picture cannot be written where it was asked for. The message says why."""


def picture(case: Case) -> Picture:
    """The memory map of what the case does now."""
    verdict, remark = _now(case)
    return draw(case, verdict, remark)


def _now(case: Case) -> tuple[Verdict | None, str]:
    """What the case's target does now, and that in words. One that may end its process has one of its own."""
    try:
        target = targets.get(case.target)
    except TargetError as error:
        return None, f"{error}\n{_ALONE}"
    deadly = case.signature is not None and case.signature.symptom.startswith(_DEADLY)
    with contained(target, always=deadly) as safe:
        verdict = rerun(case, safe, bounds=case.bounds)
    return verdict, remark(case, verdict)


def remark(case: Case, verdict: Verdict) -> str:
    """A verdict in the words that stand beneath a picture."""
    if verdict.ok:
        still = "" if case.signature is None else f" It does not fail as recorded. {_ALONE}"
        return f"{verdict}.{still}"
    later = f" in call {verdict.call + 1} of the compiled function" if verdict.call else ""
    return "\n".join([f"{verdict.target} differs from eager{later}:", *(f"  {wrong}" for wrong in verdict.mismatches)])


def write_svg(found: Picture, file: Path, title: str) -> None:
    """Writes the map as an SVG file. Raises `ShowError` if there is no place for it."""
    try:
        file.write_text(svg(found, title), encoding="utf-8")
    except OSError as error:
        raise ShowError(
            f"{file} cannot be written: {error.strerror}; give --svg a file in a folder that exists"
        ) from error


def facts(case: Case) -> dict[str, Any]:
    """What is recorded of a case beside its program."""
    found = {
        "target": case.target,
        "state": case.state,
        "found": case.found,
        "note": case.note,
        "versions": ", ".join(f"{name} {number}" for name, number in sorted(case.versions.items())),
        "signature": str(case.signature or ""),
        "gradients": printing.backward(case.program),
        "further calls": len(case.calls),
    }
    return {name: value for name, value in found.items() if value}


def as_data(case: Case, found: Picture, file: str) -> dict[str, Any]:
    """All of it for machines."""
    return {
        "case": file,
        "target": case.target,
        "state": case.state,
        "found": case.found,
        "note": case.note,
        "versions": case.versions,
        "signature": msgspec.to_builtins(case.signature),
        "calls": 1 + len(case.calls),
        "program": printing.listing(case.program),
        "map": msgspec.to_builtins(found),
    }
