"""`pytest corpus/`: one test for each case and compiler that it is replayed on, named after the case's file."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from corpus.case import Case, CorpusError
from corpus.store import SHIPPED, Store
from executor import targets
from executor.targets import DEFAULT


class Entry(NamedTuple):
    """A case file, its case or why it has none, and the compiler to replay it on."""

    file: str
    case: Case | CorpusError
    target: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Registers the folder to replay."""
    parser.getgroup("aliasfuzz", "aliasfuzz: replay of saved cases").addoption(
        "--corpus-folder", default=str(SHIPPED), metavar="DIR", help="the cases to replay (those of this package)"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes the tests: each case on our compiler, if it takes the program, and on its own where that is another one."""
    if "entry" in metafunc.fixturenames:
        # Absent where this file was found too late to add it, as in `pytest .`.
        folder = metafunc.config.getoption("--corpus-folder", default=str(SHIPPED))
        found = list(entries(Store(folder)))
        metafunc.parametrize("entry", [pytest.param(entry, id=_id(entry), marks=_marks(entry)) for entry in found])


def entries(store: Store) -> list[Entry]:
    """What to replay, sorted by file name; a file that cannot be read stands there once."""
    found, limits = [], targets.get(DEFAULT).limits
    for path, case in store.cases():
        if isinstance(case, CorpusError) or limits.refuse(case.program) is None:
            found.append(Entry(path.name, case, DEFAULT))
        if isinstance(case, Case) and case.target != DEFAULT:
            found.append(Entry(path.name, case, case.target))
    return found


def _marks(entry: Entry) -> list[pytest.MarkDecorator]:
    """Inductor calls a C++ compiler, which takes seconds a case."""
    return [pytest.mark.slow] if entry.target == "inductor" else []


def _id(entry: Entry) -> str:
    return entry.file if entry.target == DEFAULT else f"{entry.file}@{entry.target}"
