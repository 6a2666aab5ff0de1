"""The code blocks of this project's documents: where they stand, what they hold, and how their shown output compares.

A block is fenced and has a language. An invisible comment right above it may say more:
`<!-- not run: REASON -->` for what no test can run, and `<!-- file: NAME -->` for a file that the commands below it use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_NOTE = re.compile(r"<!-- (not run|file):\s+(.*?) -->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block: its document and line, its language, its text, why no test runs it, and the file that it is."""

    document: str
    line: int
    language: str
    text: str
    not_run: str = ""
    file: str = ""

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.document}:{self.line}"

    @property
    def transcript(self) -> list[tuple[str, str]]:
        """The commands of a console block, each with the output that is shown below it."""
        found: list[tuple[str, str]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), ""))
            elif not found:
                raise ValueError(f"{self.place}: a console block begins with `$ COMMAND`")
            else:
                command, output = found[-1]
                found[-1] = (command, f"{output}{line}\n")
        return found


def name(document: Path) -> str:
    """A document's path from the root."""
    return document.relative_to(ROOT).as_posix()


@cache
def blocks(document: Path) -> tuple[Block, ...]:
    """All code blocks of a document, in order."""
    return tuple(parsed(document.read_text(encoding="utf-8"), name(document)))


def parsed(text: str, document: str) -> Iterator[Block]:
    """The code blocks of a text; an indented one has no language."""
    note: re.Match[str] | None = None
    for token in MarkdownIt().parse(text):
        if token.type == "html_block":
            note = _NOTE.fullmatch(token.content.strip())
            continue
        if token.type in ("fence", "code_block"):
            assert token.map is not None, "a block has lines"
            kind, said = note.groups() if note else ("", "")
            said = " ".join(said.split())
            yield Block(
                document,
                token.map[0] + 1,
                token.info.strip(),
                token.content,
                said if kind == "not run" else "",
                said if kind == "file" else "",
            )
        note = None


def alike(shown: str, actual: str) -> bool:
    """Whether an output is what is shown: `...` in a line is any text, as a line of its own any lines."""
    parts = []
    for line in shown.rstrip().splitlines():
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*?".join(map(re.escape, line.rstrip().split("..."))) + r"[ ]*\n")
    return re.fullmatch("".join(parts), actual.rstrip() + "\n" if actual.strip() else "") is not None


def links(document: Path) -> Iterator[str]:
    """The files that a document links to or shows as pictures, relative to its folder."""
    for token in MarkdownIt().parse(document.read_text(encoding="utf-8")):
        for child in token.children or ():
            target = str(child.attrs.get("href") or child.attrs.get("src") or "").partition("#")[0]
            if target and ":" not in target:
                yield target
