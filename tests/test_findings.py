"""`docs/findings.md` is what the corpus says."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from corpus.case import Case
from corpus.findings import DOCUMENT, document, is_finding
from corpus.signature import Signature
from corpus.store import Store
from executor.tracing import trace


def case(target: str, signature: Signature | None) -> Case:
    program = trace(lambda a: a.add_(1), torch.ones(2))
    return Case(program=program, target=target, state="open", signature=signature, note="Goes wrong.",
                versions={"torch": "2.13.0", "python": "3.11.7"})  # fmt: skip


def test_the_page_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(Store()), "run: python -m corpus.findings"


def test_each_finding_has_a_note_and_at_most_four_statements() -> None:
    cases = [case for _, case in Store().cases() if isinstance(case, Case) and is_finding(case)]
    assert cases
    assert [case.digest for case in cases if not case.note or len(case.program.calls) > 4] == []


def test_what_the_page_of_reports_says_was_met_is_a_finding() -> None:
    page = DOCUMENT.with_name("reports.md").read_text(encoding="utf-8")
    met = [row for row in page.splitlines() if "yes" in row]
    names = re.findall(r"`((?:aot|inductor|functionalize)-[^`]+)`", "\n".join(met))
    findings = [path.name for path, case in Store().cases() if isinstance(case, Case) and is_finding(case)]
    assert len(met) >= 15
    assert [name for name in names if not any(file.startswith(name) for file in findings)] == []


def test_only_bugs_of_other_compilers_are_findings() -> None:
    assert is_finding(case("thunder", Signature("thunder", "value")))
    assert not is_finding(case("pipeline", Signature("pipeline", "value")))
    assert not is_finding(case("thunder", None))


def test_a_finding_has_a_row_and_a_section(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.save(case("thunder", Signature("thunder", "value")), "wrong-rows")
    page = document(store)
    assert f"| [{path.stem}](#{path.stem}) | thunder | torch 2.13.0 | value | 1 |" in page
    assert f"## {path.stem}\n\nGoes wrong.\n" in page
    assert "a.add_(1)" in page
