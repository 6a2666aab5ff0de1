"""Settings of every pytest run: a test whose marker names what this machine lacks is skipped, with the reason."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["pytester"]

# A change is judged by one set of examples, so that a failure is the change's; nightly runs draw new ones each time.
settings.register_profile("repeatable", derandomize=True)


@cache
def cuda_lacks() -> str | None:
    """The reason why no test can run on a CUDA device here; None if they can."""
    import torch

    if torch.version.cuda is None:
        return f"no CUDA: torch {torch.__version__} is built without it"
    return None if torch.cuda.is_available() else "no CUDA device: torch.cuda.is_available() is False"


@cache
def thunder_lacks() -> str | None:
    """The reason why no test can run Thunder here; None if they can."""
    return None if find_spec("thunder") else "no Thunder: install the extra `thunder`"


NEEDS: dict[str, Callable[[], str | None]] = {"cuda": cuda_lacks, "thunder": thunder_lacks}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run."""
    for item in items:
        for marker, lacks in NEEDS.items():
            if item.get_closest_marker(marker) and (reason := lacks()):
                item.add_marker(pytest.mark.skip(reason=reason))
