"""`docs/reference/` names every command, option, variable, public name and field, and no other."""

from __future__ import annotations

import re

import aliasfuzz
from aliasfuzz import commands
from corpus.case import Case
from corpus.flags import Ban, Flag, Match
from corpus.signature import Signature
from executor.program import Backward, Program
from tests.command_lines import fuzz_options
from tests.documents import ROOT

REFERENCE = ROOT / "docs" / "reference"


def options(section: str) -> set[str]:
    """The options in the first column of a section's table."""
    rows = re.findall(r"^\| (`-.*?) \|", section, re.MULTILINE)
    return {option.split()[0] for row in rows for option in re.findall(r"`(-.*?)`", row)}


def test_the_reference_names_every_command_and_option_and_no_other() -> None:
    sections = (REFERENCE / "command-line.md").read_text(encoding="utf-8").split("\n## aliasfuzz ")[1:]
    named = {section.split()[0]: options(section) for section in sections}
    real = {
        name: {option for parameter in command.params for option in parameter.opts if option.startswith("-")}
        for name, command in commands.cli.commands.items()
    }
    assert named == real


def test_the_reference_names_every_option_of_the_main_job_and_no_other() -> None:
    assert options((REFERENCE / "pytest.md").read_text(encoding="utf-8")) == fuzz_options()


def test_the_reference_names_every_public_name() -> None:
    text = (REFERENCE / "python.md").read_text(encoding="utf-8")
    headings = " ".join(re.findall(r"^## (.*)", text, re.MULTILINE))
    assert [name for name in aliasfuzz.__all__ if not re.search(rf"\b{name}\b", headings)] == []


STRUCTS = {
    "Case": Case,
    "Signature": Signature,
    "Program": Program,
    "Backward": Backward,
    "Flag": Flag,
    "Match": Match,
    "Ban": Ban,
}


def test_the_reference_names_every_field_of_cases_and_flags_and_no_other() -> None:
    text = (REFERENCE / "cases-and-flags.md").read_text(encoding="utf-8")
    tables = {section.split()[0]: section for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]}
    rows = {
        name: re.findall(r"^\| (`.*?) \|", table.partition("\n## ")[0], re.MULTILINE) for name, table in tables.items()
    }
    named = {name: {field for row in found for field in re.findall(r"`(\w+)`", row)} for name, found in rows.items()}
    assert named == {name: set(struct.__struct_fields__) for name, struct in STRUCTS.items()}


def test_every_variable_of_the_environment_that_is_read_is_in_the_reference() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (*ROOT.glob(".ci/*"), *ROOT.glob("[acefs]*/**/*.py"))]
    read = {name for text in sources for name in re.findall(r"\bALIASFUZZ_[A-Z_]+", text)}
    named = set(re.findall(r"^\| `(ALIASFUZZ_\w+)`", (REFERENCE / "command-line.md").read_text(), re.MULTILINE))
    assert named == read
