"""Dependences between the folders point one way: what each may import, checked on the source of every module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "executor": set(),
    "strategies": {"executor"},
    "corpus": {"executor"},
    "fuzz": {"corpus", "executor", "strategies"},
    "aliasfuzz": {"corpus", "executor", "fuzz", "strategies"},
}
OURS = {*MAY_IMPORT, "benchmarks", "conftest", "tests"}


def imported(source: str) -> set[str]:
    """The top-level names that a module imports anywhere, functions and type-checking blocks included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def test_imports_are_found_wherever_they_stand() -> None:
    source = "import os.path as p\nfrom fuzz.oracle import check\ndef f():\n    import tests.helpers, corpus"
    assert imported(source) == {"os", "fuzz", "tests", "corpus"}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_comes_before_it(package: str) -> None:
    # The tests that stand in a package may use what comes after it.
    modules = [path for path in (ROOT / package).rglob("*.py") if not path.name.startswith("test_")]
    assert modules, f"{package}/ holds no module"
    allowed = MAY_IMPORT[package] | {package}
    wrong = {
        str(module.relative_to(ROOT)): names
        for module in modules
        if (names := (imported(module.read_text()) & OURS) - allowed)
    }
    assert wrong == {}
