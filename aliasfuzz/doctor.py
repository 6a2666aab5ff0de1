"""What `aliasfuzz doctor` finds on this machine, and what to install for what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch

from corpus.store import findings_folder
from executor import targets
from executor.errors import TargetError
from fuzz.check import check

DEFAULT_TARGET = "default target"
_SPACE = 1 << 30  # bytes free; a night's findings and journals take less
_NVFUSER = "for the targets with nvFuser: with Python 3.12 on Linux and an NVIDIA GPU: pip install 'aliasfuzz[nvfuser]'"


class Check(NamedTuple):
    """One thing that was looked for: what is there, and what to do about it, empty if nothing."""

    name: str
    what: str
    remedy: str = ""

    @property
    def found(self) -> bool:
        """Whether it is there, and good."""
        return not self.remedy


def checks() -> list[Check]:
    """Everything that is looked for, what each run needs first."""
    folder = _nearest(findings_folder())
    return [
        _python(),
        Check("torch", f"{torch.__version__}, {_cuda()}"),
        Check("hypothesis", version("hypothesis")),
        _default_target(),
        _findings(folder),
        _space(folder),
        _compiler(),
        _jinja(),
        _target("thunder", "thunder", "for the target thunder: pip install 'aliasfuzz[thunder]'"),
        _gpu(),
        _target("nvfuser", "pipeline:nvfuser", _NVFUSER),
    ]


def _python() -> Check:
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Check("python", platform.python_version(), "" if fits else "install Python 3.11, 3.12 or 3.13")


def _cuda() -> str:
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"


def _default_target() -> Check:
    """Whether the default target does with a small program what eager does."""
    verdict = check(lambda x: x.add_(1), [torch.ones(2)], targets.DEFAULT)
    remedy = "pip install --force-reinstall aliasfuzz; if that does not help, please report it"
    return Check(DEFAULT_TARGET, str(verdict), "" if verdict.ok else remedy)


def _compiler() -> Check:
    """The C++ compiler that Inductor calls on the CPU."""
    wanted = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    path = shutil.which(wanted)
    if path is not None:
        return Check("C++ compiler", path)
    return Check("C++ compiler", f"no {wanted}", "for the target inductor: install g++ or clang++, and name it in $CXX")


def _jinja() -> Check:
    """What pages about runs are made with."""
    try:
        return Check("jinja2", version("jinja2"))
    except PackageNotFoundError:
        return Check("jinja2", "not installed", "for aliasfuzz report: pip install 'aliasfuzz[report]'")


def _gpu() -> Check:
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return Check("GPU", f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}")
    missing = "an NVIDIA GPU and its driver" if torch.version.cuda else "a build of torch with CUDA, and an NVIDIA GPU"
    return Check("GPU", "none", f"for the targets with nvFuser: {missing}")


def _target(name: str, target: str, remedy: str) -> Check:
    """An optional compiler, by a target that needs it."""
    try:
        found = targets.get(target).versions()
    except TargetError as error:
        return Check(name, str(error), remedy)
    return Check(name, ", ".join(f"{package} {number}" for package, number in found.items() if package != "torch"))


def _nearest(folder: Path) -> Path:
    """The folder, or the innermost one around it that exists."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())


def _findings(existing: Path) -> Check:
    if existing.is_dir() and os.access(existing, os.W_OK):
        return Check("findings folder", str(findings_folder()))
    remedy = "name a folder that you may write to in $ALIASFUZZ_CORPUS"
    return Check("findings folder", f"{findings_folder()} cannot be written", remedy)


def _space(existing: Path) -> Check:
    free = shutil.disk_usage(existing).free
    remedy = "" if free >= _SPACE else "free 1 GiB, or name a folder on another disk in $ALIASFUZZ_CORPUS"
    return Check("disk space", f"{free / (1 << 30):.1f} GiB free", remedy)
