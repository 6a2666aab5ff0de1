"""Every code block of README and docs: commands are run, or checked against what exists; Python runs; outputs are as shown.

Commands with output stand in `console` blocks and are run one after the other in an empty folder, `aliasfuzz` in this
process and without its sandbox. In shown output `...` stands for what varies. Commands without output stand in `sh` blocks:
their programs, options, targets and files have to exist.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from aliasfuzz import commands, showing
from aliasfuzz.pictures import svg
from corpus.store import SHIPPED, Store
from executor.errors import AliasfuzzError
from executor.targets import Target
from tests import documents
from tests.command_lines import RULES, Unusable, usable
from tests.documents import DOCUMENTS, ROOT, Block, alike, blocks, parsed

PINNED = "2.13.0"
LANGUAGES = {"console", "sh", "python", "text", "toml", "json"}
# Why blocks are not run, by document: a comment above each block says it.
NOT_RUN = {
    "docs/nvfuser.md": ["needs nvFuser and a GPU"] * 3,
    "README.md": ["takes a minute, and what it finds depends on the seed and on how programs are drawn"],
}


def session(document: Path) -> list[Block]:
    return [block for block in blocks(document) if block.language and not block.not_run]


class Session:
    """A reader who does all that a document shows, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, Any] = {"__name__": "document", "torch": torch}
        self._printed = ""

    def do(self, block: Block) -> None:
        """Does what one block shows; fails if that cannot be done, or gives something else."""
        if block.file:
            Path(self._folder, block.file).write_text(block.text, encoding="utf-8")
        getattr(self, f"_{block.language}")(block)

    def _console(self, block: Block) -> None:
        for command, shown in block.transcript:
            actual = "".join(map(self._run, command.split(" && ")))
            assert alike(shown, actual), f"{block.place}: {command}\n--- shown\n{shown}\n--- is\n{actual}"

    def _run(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] == "aliasfuzz":
            return self._aliasfuzz(words[1:])
        if words[0] == "python" and len(words) == 2:
            return self._script(words[1])
        done = subprocess.run(["/usr/bin/env", "bash", "-c", command], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def _aliasfuzz(self, words: list[str]) -> str:
        words, file = (words[:-2], words[-1]) if ">" in words else (words, "")
        try:
            result = CliRunner().invoke(commands.cli, words, prog_name="aliasfuzz", catch_exceptions=False)
        except AliasfuzzError as error:
            return f"aliasfuzz: {error}\n"
        if file:
            Path(file).write_text(result.stdout, encoding="utf-8")
            return result.stderr
        return result.stdout + result.stderr

    def _script(self, file: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
            runpy.run_path(file, run_name="__main__")
        return output.getvalue()

    def _sh(self, block: Block) -> None:
        for line in block.text.splitlines():
            try:
                usable(line)
            except Unusable as error:
                pytest.fail(f"{block.place}: {line}: {error}", pytrace=False)

    def _python(self, block: Block) -> None:
        if block.file:
            sys.modules.pop(Path(block.file).stem, None)
            return
        # A file of its own, which compilers read; the lines count as in the document, for tracebacks.
        file = self._folder / f"line_{block.line}_of_{Path(block.document).name}.py"
        file.write_text("\n" * block.line + block.text, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(file.read_text(encoding="utf-8"), file, "exec"), self._names)  # noqa: S102
        self._printed = output.getvalue()

    def _text(self, block: Block) -> None:
        """The output of the Python block above."""
        assert alike(block.text, self._printed), f"{block.place}\n--- shown\n{block.text}\n--- is\n{self._printed}"

    def _toml(self, block: Block) -> None:
        tomllib.loads(block.text)

    def _json(self, block: Block) -> None:
        json.loads(block.text)


@contextlib.contextmanager
def in_this_process(target: Target, **_: object) -> Iterator[Target]:
    """Instead of a sandbox, which would import torch anew for each command; it has tests of its own."""
    yield target


@pytest.mark.parametrize("document", DOCUMENTS, ids=documents.name)
def test_what_a_document_shows_can_be_done(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doable = session(document)
    if any("thunder" in block.text for block in doable if block.language == "console") and not find_spec("thunder"):
        pytest.skip("no Thunder: install the extra `thunder`")
    if not torch.__version__.startswith(PINNED):
        pytest.skip(f"outputs are those with torch {PINNED}, this is {torch.__version__}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("ALIASFUZZ_CORPUS", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(commands.console, "width", 240)
    monkeypatch.setattr(commands, "contained", in_this_process)
    monkeypatch.setattr(showing, "contained", in_this_process)
    reader = Session(tmp_path)
    for block in doable:
        reader.do(block)


def test_every_block_is_of_a_language_that_a_test_knows() -> None:
    """An indented block has none: it is a listing, and holds no commands."""
    wrong = [
        f"{block.place}: {block.language or 'commands in a block without a language'}"
        for document in DOCUMENTS
        for block in blocks(document)
        if block.language not in LANGUAGES and (block.language or _commands(block))
    ]
    assert wrong == []


def _commands(block: Block) -> list[str]:
    programs = tuple(f"{program} " for program in (*RULES, "$", "python3"))
    return [line for line in block.text.splitlines() if line.startswith(programs) and not line.startswith(". ")]


def test_blocks_that_no_test_runs_are_these() -> None:
    left: dict[str, list[str]] = {}
    for document in DOCUMENTS:
        for block in blocks(document):
            if block.not_run:
                left.setdefault(block.document, []).append(block.not_run)
    assert left == NOT_RUN


def test_links_between_documents_lead_somewhere() -> None:
    found = [(document, target) for document in DOCUMENTS for target in documents.links(document)]
    assert found
    assert [each for each in found if not (each[0].parent / each[1]).exists()] == []


PICTURES = [
    pytest.param(*found, id=found[1])
    for document in DOCUMENTS
    for block in blocks(document)
    for found in re.findall(r"aliasfuzz show (\S+) --svg (docs/\S+)", block.text)
]


@pytest.mark.parametrize(("case", "file"), PICTURES)
def test_a_picture_is_what_the_command_above_it_makes(case: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "contained", in_this_process)
    path = Store(SHIPPED).find(case)
    if "thunder" in case and not find_spec("thunder"):
        pytest.skip("no Thunder: install the extra `thunder`")
    picture = showing.picture(Store(SHIPPED).load(path))
    assert svg(picture, path.stem) == (ROOT / file).read_text(encoding="utf-8")


def test_every_picture_is_made_by_a_command_or_a_benchmark() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "pictures").iterdir()}
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py")]
    drawn = {file for text in texts for file in re.findall(r"--svg (docs/\S+\.svg)", text)}
    assert files == {parameter.values[1] for parameter in PICTURES} | drawn


def test_blocks_are_found_with_what_is_said_of_them() -> None:
    text = "x\n\n<!-- not run:\nneeds a GPU -->\n```sh\na\n```\n\n<!-- file: b.py -->\n\n```python\nb\n```\n\n    c\n"
    assert list(parsed(text, "d.md")) == [
        Block("d.md", 5, "sh", "a\n", not_run="needs a GPU"),
        Block("d.md", 11, "python", "b\n", file="b.py"),
        Block("d.md", 15, "", "c\n"),
    ]


@pytest.mark.parametrize(
    ("shown", "actual", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a ... c\n", "a b c\n", True),
        ("a...\n", "a b\nc\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("...\nd\n", "a\n", False),
        ("", "a\n", False),
        ("", "", True),
    ],
)
def test_outputs_compare_with_gaps(shown: str, actual: str, *, same: bool) -> None:
    assert alike(shown, actual) == same


def test_a_transcript_is_commands_with_their_output() -> None:
    block = Block("d.md", 1, "console", "$ a\nx\ny\n$ b\n")
    assert block.transcript == [("a", "x\ny\n"), ("b", "")]
    with pytest.raises(ValueError, match=r"d.md:1: .* begins with"):
        Block("d.md", 1, "console", "x\n").transcript  # noqa: B018 - it raises


@pytest.mark.parametrize(
    "line",
    [
        "aliasfuzz run --budgets 60s",
        "aliasfuzz find",
        "aliasfuzz run --target nobody",
        "aliasfuzz run --target thunder --against nobody@python",
        "pytest fuzz/ --fuzz-budgets 1m",
        "pytest nowhere/",
        "tox run -e nowhere",
        "tox run -e fuzz -- --fuzz-budgets 10m",
        "python -m benchmarks.nothing",
        "python -m benchmarks.soundness --programmes 3",
        "pip install '.[everything]'",
        "bash .ci/walk",
        "frobnicate",
        "cd x && frobnicate",
    ],
)
def test_what_could_not_be_run_is_told(line: str) -> None:
    with pytest.raises(Unusable):
        usable(line)


def test_what_could_be_run_passes() -> None:
    usable("A=1 aliasfuzz run --target thunder --against aot_eager@old/bin/python   # a comment")
    usable("aliasfuzz script CASE > bug.py && python bug.py")
    usable("python3 -m pip install -q tox && tox run -e fuzz -- --fuzz-budget 10m")
    usable("aliasfuzz --version")
    usable("python -m pytest fuzz/ -n auto --fuzz-shard 0/2")
