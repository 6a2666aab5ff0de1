"""`docs/findings.md` from the corpus: the bugs of real compilers, one section each. Run: `python -m corpus.findings`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corpus.case import Case
from corpus.store import Store
from executor import printing

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "findings.md"
_OURS = ("null", "pipeline")
_HEAD = """# Findings

Bugs of real compilers that this project found by drawing programs, shrunk, each a case in `corpus/cases`.
This page is made from the corpus by `python -m corpus.findings`.

`aliasfuzz replay CASE` runs one again; `aliasfuzz script CASE` prints a file that shows it without aliasfuzz.
"""


def document(store: Store) -> str:
    """The page. Unreadable files have no place in it; the replay tests name them."""
    cases = [(path, case) for path, case in store.cases() if isinstance(case, Case) and is_finding(case)]
    cases.sort(key=lambda entry: (entry[1].target, entry[0].name))
    rows = ["| case | target | seen with | symptom | statements |", "| --- | --- | --- | --- | --- |"]
    rows += [_row(path, case) for path, case in cases]
    sections = ["\n".join(_section(path, case)) for path, case in cases]
    return "\n".join([_HEAD, *rows, "", *sections])


def is_finding(case: Case) -> bool:
    """Whether a case shows a bug, past or present, of a compiler that is not ours."""
    return case.signature is not None and not case.target.startswith(_OURS)


def _row(path: Path, case: Case) -> str:
    assert case.signature is not None, "a finding has a signature"
    return (f"| [{path.stem}](#{path.stem}) | {case.target} | {_versions(case)} | {case.signature.symptom} "
            f"| {len(case.program.calls)} |")  # fmt: skip


def _versions(case: Case) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(case.versions.items()) if name != "python")


def _section(path: Path, case: Case) -> Iterator[str]:
    yield f"## {path.stem}"
    yield ""
    yield case.note or "No note yet."
    yield ""
    yield f"State: {case.state}. Signature: `{case.signature}`."
    yield ""
    yield "```python"
    yield printing.listing(case.program)
    yield "```"
    yield ""


def main() -> None:
    """Writes the page."""
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document(Store()), encoding="utf-8")


if __name__ == "__main__":
    main()
