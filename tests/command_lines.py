"""Whether a command line that a document shows could be run as it stands: programs, options, targets and files exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from aliasfuzz import commands
from executor import targets
from fuzz import conftest as main_job

ROOT = Path(__file__).resolve().parents[1]
PLACEHOLDERS = {"T", "fx"}  # what documents call a target of one's own


class Unusable(Exception):
    """What is wrong with a command line."""


def usable(line: str) -> None:
    """Raises `Unusable` for a line of a `sh` block that could not be run, or that there is no rule for."""
    words = shlex.split(line, comments=True)
    for command in " ".join(shlex.quote(word) if word not in ("&&", ">", "|") else word for word in words).split(
        " && "
    ):
        _simple(shlex.split(command))


def _simple(words: list[str]) -> None:
    if ">" in words:
        words = words[: words.index(">")]
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if not words:
        return
    program, arguments = words[0].removesuffix("3"), words[1:]
    if program not in RULES:
        raise Unusable(f"there is no rule for {words[0]!r}")
    RULES[program](arguments)


def _aliasfuzz(arguments: list[str]) -> None:
    try:
        with commands.cli.make_context("aliasfuzz", list(arguments)) as context:
            name, command, rest = commands.cli.resolve_command(context, [*context._protected_args, *context.args])
            assert command is not None, "an unknown one is an error"
            with command.make_context(name, rest, parent=context) as inner:
                given = inner.params
    except click.exceptions.Exit:  # --help and --version
        return
    except click.ClickException as error:
        raise Unusable(f"aliasfuzz {' '.join(arguments)}: {error.format_message()}") from error
    for option in ("names", "target", "against"):
        value = given.get(option) or ()
        _targets((value,) if isinstance(value, str) else value)


def _targets(names: tuple[str, ...] | list[str]) -> None:
    unknown = [name for name in names if name.partition("@")[0] not in {*targets.names(), *PLACEHOLDERS}]
    if unknown:
        raise Unusable(f"no targets: {unknown}")


def fuzz_options() -> set[str]:
    """The options of the main job."""
    found: set[str] = set()
    group = SimpleNamespace(addoption=lambda name, **_: found.add(name))
    main_job.pytest_addoption(SimpleNamespace(getgroup=lambda *_: group))  # type: ignore[arg-type]
    return found


def _pytest(arguments: list[str]) -> None:
    known = fuzz_options() | {"-n", "-q", "-m", "-k", "--corpus-folder", "--hypothesis-profile"}
    unknown = [each for each in arguments if each.startswith("-") and each.partition("=")[0] not in known]
    if unknown:
        raise Unusable(f"pytest has no options {unknown}")
    _targets([value for option, value in pairwise(arguments) if option == "--fuzz-target"])
    missing = [
        each
        for each in arguments
        if "/" in each and not re.fullmatch(r"\d+/\d+", each) and not Path(ROOT, each).exists()
    ]
    if missing:
        raise Unusable(f"no such paths: {missing}")


def _tox(arguments: list[str]) -> None:
    before, _, after = " ".join(arguments).partition(" -- ")
    found = re.findall(r"\[testenv:(.*)\]", (ROOT / "tox.ini").read_text(encoding="utf-8"))
    match = re.search(r"-e (\S+)", before)
    if match is None or match[1] not in found:
        raise Unusable(f"tox.ini has no environment for tox {' '.join(arguments)!r}")
    if match[1] in ("fuzz", "tests", "thunder"):
        _pytest(after.split())


def _python(arguments: list[str]) -> None:
    if arguments[:2] == ["-m", "pytest"]:
        _pytest(arguments[2:])
    elif arguments[:2] == ["-m", "pip"]:
        _pip(arguments[2:])
    elif arguments[:1] == ["-m"]:
        spec = find_spec(arguments[1])
        if spec is None or spec.origin is None:
            raise Unusable(f"no module {arguments[1]}")
        source = Path(spec.origin).read_text(encoding="utf-8")
        unknown = [each for each in arguments[2:] if each.startswith("--") and each not in source]
        if unknown:
            raise Unusable(f"{arguments[1]} has no options {unknown}")
    elif not (arguments and arguments[0].endswith(".py")):
        raise Unusable(f"neither a module nor a file: python {' '.join(arguments)}")


def _pip(arguments: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = re.findall(r"\[(.*)\]", " ".join(arguments))
    unknown = {extra for each in wanted for extra in each.split(",")} - set(extras)
    if arguments[:1] != ["install"] or unknown:
        raise Unusable(f"pip {' '.join(arguments)}: unknown extras {unknown}")


def _file(arguments: list[str]) -> None:
    if not Path(ROOT, arguments[0]).is_file():
        raise Unusable(f"no file {arguments[0]}")


def _anything(arguments: list[str]) -> None:
    """Programs of the system's, which need no look."""


RULES: dict[str, Callable[[list[str]], Any]] = {
    "aliasfuzz": _aliasfuzz,
    "pytest": _pytest,
    "tox": _tox,
    "python": _python,
    "pip": _pip,
    "bash": _file,
    ".ci/run": lambda _: _file([".ci/run"]),
    ".ci/nightly": lambda _: _file([".ci/nightly"]),
    ".": _anything,
    "cd": _anything,
    "git": _anything,
    "mypy": _anything,
    "ruff": _anything,
}
