"""The compilers that can be put under test, by name. Each is imported when it is asked for.

Third parties add theirs through the entry-point group `aliasfuzz.targets`: a target object, or a class or function
without arguments that makes one. See `Target`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from executor.errors import TargetError
from executor.targets.base import Target, adapt

__all__ = ["DEFAULT", "GROUP", "Target", "adapt", "get", "names", "versions"]

DEFAULT = "pipeline"
GROUP = "aliasfuzz.targets"

_BUILT_IN = {
    "null": "executor.targets.null:Null",
    "pipeline": "executor.targets.pipeline:weak_memory",
    "pipeline:eager": "executor.targets.pipeline:eager",
    "pipeline:nvfuser": "executor.targets.cuda:pipeline",
    "pipeline:nvfuser:validated": "executor.targets.cuda:validated",
    "aot_eager": "executor.targets.torch_compile:aot_eager",
    "aot_eager:breaks": "executor.targets.torch_compile:aot_eager_breaks",
    "inductor": "executor.targets.torch_compile:inductor",
    "inductor:breaks": "executor.targets.torch_compile:inductor_breaks",
    "functionalize": "executor.targets.functionalize:Functionalize",
    "thunder": "executor.targets.thunder:Thunder",
    "thunder:nvfuser": "executor.targets.cuda:thunder",
}


def names() -> tuple[str, ...]:
    """All targets: ours, then third parties' in alphabetical order. Imports none, so some may not be installed."""
    others = {point.name for point in entry_points(group=GROUP)} - _BUILT_IN.keys()
    return (*_BUILT_IN, *sorted(others))


@lru_cache(maxsize=64)
def get(name: str) -> Target:
    """The target of this name, the same object each time.

    "NAME/STAGE" is a stage of the target NAME.
    Raises `TargetError` if there is none, if what it needs is not installed, or if a third party's entry point fails.
    """
    whole, slash, stage = name.rpartition("/")
    if slash and whole in names():
        return _stage(get(whole), stage)
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return cast("Callable[[], Target]", getattr(importlib.import_module(module), attribute))()
    points = list(entry_points(group=GROUP, name=name))
    if not points:
        raise TargetError(f"there is no target {name!r}; there are {', '.join(names())}")
    if len(points) > 1:
        raise TargetError(f"target {name!r} is claimed by {' and '.join(map(_origin, points))}: uninstall all but one")
    return _third_party(points[0])


def versions(target: Target) -> dict[str, str]:
    """The packages on which the target's behaviour depends, with their versions."""
    return target.versions()


def _stage(target: Target, stage: str) -> Target:
    if stage not in target.stages:
        known = ", ".join(target.stages) or "none"
        raise TargetError(f"target {target.name!r} has no stage {stage!r}; its stages are {known}")
    return target.stages[stage]


def _third_party(point: EntryPoint) -> Target:
    try:
        found = point.load()
        # A class or function that makes the target; a target itself has `compile`, which a class has too.
        made = found() if isinstance(found, type) or not hasattr(found, "compile") else found
    except Exception as error:
        raise TargetError(
            f"target {point.name!r} of {_origin(point)} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    target = adapt(made)
    if target.name != point.name:
        raise TargetError(
            f"target {point.name!r} of {_origin(point)} calls itself {target.name!r}: the names must agree"
        )
    return target


def _origin(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist is not None else ""
    return f"the entry point {point.value!r}{package}"
