"""The declared dependences, their pins in constraints.txt, and what the wheel holds agree with each other."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PACKAGES = {"aliasfuzz", "corpus", "executor", "fuzz", "strategies"}
# Built for a torch of its own, so it cannot be installed under these constraints.
UNPINNED_EXTRAS = {"nvfuser"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def declared(project: dict[str, Any]) -> list[Requirement]:
    table = project["project"]
    lines = [*table["dependencies"], *project["build-system"]["requires"]]
    for extra, requirements in table["optional-dependencies"].items():
        lines += [] if extra in UNPINNED_EXTRAS else requirements
    for group in project["dependency-groups"].values():
        lines += [line for line in group if isinstance(line, str)]
    return [Requirement(line) for line in lines]


@pytest.fixture(scope="module")
def pins() -> dict[str, Version]:
    """The pinned version of each package, by canonical name; a line that is no exact pin fails."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line), f"not `name==version`: {line}"
            name, version = line.split("==")
            assert name not in found, f"{name} is pinned twice"
            found[name] = Version(version)
    return found


def closure(roots: list[Requirement]) -> set[str]:
    """The canonical names of the packages that `roots` bring in this environment; those not installed end the walk."""
    names: set[str] = set()
    queue = [(canonicalize_name(root.name), root.extras) for root in roots]
    while queue:
        name, extras = queue.pop()
        if name not in names:
            names.add(name)
            queue += [(canonicalize_name(child.name), child.extras) for child in children(name, extras)]
    return names


def children(name: str, extras: set[str]) -> list[Requirement]:
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return []
    found = [Requirement(line) for line in lines]
    return [child for child in found if wanted(child, extras)]


def wanted(requirement: Requirement, extras: set[str]) -> bool:
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def test_every_pin_lies_in_the_declared_range(declared: list[Requirement], pins: dict[str, Version]) -> None:
    wrong = [str(each) for each in declared if pins[canonicalize_name(each.name)] not in each.specifier]
    assert wrong == []


def test_every_package_that_is_installed_for_us_is_pinned(
    declared: list[Requirement], pins: dict[str, Version]
) -> None:
    names = closure(declared)
    assert {"torch", "sympy", "mpmath", "pluggy"} <= names  # the walk does go down
    assert names - pins.keys() == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (file,) = folder.glob("*.whl")
    return zipfile.Path(file)


def test_the_wheel_holds_the_packages_and_neither_tests_nor_benchmarks(wheel: zipfile.Path) -> None:
    folders = {each.name for each in wheel.iterdir()}
    assert {name for name in folders if not name.endswith(".dist-info")} == PACKAGES


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_the_wheel_holds_every_file_of_a_package(wheel: zipfile.Path, package: str) -> None:
    source = {path.relative_to(ROOT) for path in (ROOT / package).rglob("*") if path.suffix in {".py", ".json"}}
    packed = {Path(name) for name in wheel.root.namelist()}
    assert source - packed == set()
    assert Path(package, "py.typed") in packed


def test_the_wheel_declares_the_command_and_the_pythons(wheel: zipfile.Path) -> None:
    (info,) = (each for each in wheel.iterdir() if each.name.endswith(".dist-info"))
    assert "aliasfuzz = aliasfuzz.__main__:main" in (info / "entry_points.txt").read_text()
    metadata = (info / "METADATA").read_text()
    assert "Requires-Python: <3.14,>=3.11" in metadata
    assert "License-Expression: Apache-2.0" in metadata
