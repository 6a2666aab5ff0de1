"""The package `nvfuser_direct`, imported when it is needed."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import torch

from executor.errors import TargetError


@lru_cache(maxsize=1)
def nvfuser() -> Any:
    """The package. Raises `TargetError` where it, or a CUDA device, is missing."""
    if not torch.cuda.is_available():
        raise TargetError("nvFuser needs a CUDA device, and torch finds none here")
    try:
        return importlib.import_module("nvfuser_direct")
    except ModuleNotFoundError as error:
        if error.name != "nvfuser_direct":
            raise
        raise TargetError("nvFuser is not installed: pip install 'aliasfuzz[nvfuser]'") from error
