"""Compiled fusions, one for each body, kept for all programs of the process."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from executor.backends.base import Detail
from executor.backends.nvfuser.definition import define
from executor.backends.nvfuser.loading import nvfuser
from executor.backends.nvfuser.views import ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.backends.nvfuser.body import Body

KEPT = 4096  # fusions
_DIFFER = "Validation error in output"  # how nvFuser's message begins to say so
_EXACT = ["fma"]  # a product and a sum are rounded each, as in eager


class EvaluationError(Exception):
    """A fusion's results differ from those of nvFuser's own evaluation on the host: the compiler is at fault, not the definition."""


class CompilerError(Exception):
    """NvFuser's compiler failed on a fusion that by all rules it should take. Nothing ran, nothing was written."""


class Fusion:
    """A body, compiled when it runs first. Stores that the body wants early are made late if it takes several kernels.

    `failure`: what nvFuser's compiler said when it failed, empty if it did not.
    """

    def __init__(self, body: Body) -> None:
        self.body, self.failure = body, ""
        self._late: Any = None
        self._early: Any = None
        self._is_one: dict[tuple[int, ...], bool] = {}

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The body's outputs; its stores are made. Raises `CompilerError`, each time once the compiler failed."""
        if self.failure:
            raise CompilerError(self.failure)
        try:
            return self._run(inputs)
        except CompilerError as error:
            self.failure = str(error)
            _failed[0] += 1
            raise

    def _run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        body = self.body
        if body.early and self._writes_early(inputs):
            return self._execute(self._early, inputs)[: len(body.outputs)]
        made = self._execute(self._late_definition(), inputs)
        for (target, _), value in zip(body.early, made[len(body.outputs) :], strict=True):
            inputs[target].copy_(value)
        return made[: len(body.outputs)]

    def validate(self, inputs: Sequence[torch.Tensor]) -> None:
        """Has nvFuser evaluate the late definition on the host, on copies of the inputs, beside a run of its kernels.

        Says nothing of what the host cannot evaluate, complex numbers for one. Raises `EvaluationError` where the two differ.
        """
        copies = [_copy(tensor) for tensor in inputs]
        device = None if inputs else self.body.device
        try:
            self._late_definition().validate(copies, device=device, _disable_options=_EXACT)
        except RuntimeError as error:
            if _DIFFER in str(error):
                raise EvaluationError(f"nvFuser's kernels and its evaluation on the host differ: {error}") from error

    def detail(self, inputs: Sequence[torch.Tensor]) -> Detail:
        """What serves inputs like these, found on stand-ins for them."""
        early = bool(self.body.early) and not self.failure and self._writes_early(inputs)
        stand_ins = [_stand_in(tensor) for tensor in inputs]
        fd = self._early if early else self._late_definition()
        if self.failure:
            return Detail(str(fd), "", (), early=False)
        self._execute(fd, stand_ins)
        code = fd.fec.get_cuda_kernel(stand_ins)
        return Detail(str(fd), code, kernel_names(code), early)

    def _late_definition(self) -> Any:
        if self._late is None:
            self._late = define(nvfuser(), self.body, early=False)
        return self._late

    def _writes_early(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether one kernel does it all, and to aligned targets, for inputs like these; found on stand-ins for them."""
        alignment = tuple([tensor.data_ptr() % ALIGNMENT for tensor in inputs])
        if any(alignment[target] for target, _ in self.body.early):
            return False
        found = self._is_one.get(alignment)
        if found is None:
            if self._early is None:
                self._early = define(nvfuser(), self.body, early=True)
            found = self._is_one[alignment] = self._takes_one_kernel([_stand_in(tensor) for tensor in inputs])
        return found

    def _takes_one_kernel(self, stand_ins: list[torch.Tensor]) -> bool:
        try:
            self._execute(self._early, stand_ins)
        except CompilerError:
            return False  # the late definition may be one that it takes
        return len(kernel_names(self._early.fec.get_cuda_kernel(stand_ins))) == 1

    def _execute(self, fd: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        device = None if inputs else self.body.device
        try:
            made: list[torch.Tensor] = fd.execute(list(inputs), device=device, _disable_options=_EXACT)
        except RuntimeError as error:
            if not says_compiler_failed(str(error)):
                raise
            raise CompilerError(_gist(str(error))) from error
        return made


_failed = [0]  # fusions of this process
# The last is raised between kernels, too; those that ran wrote outputs of their own: a fusion of several stores nothing.
_FAILURES = (
    "INTERNAL ASSERT FAILED", "Detected exception while compiling", "nvFuser Limitation", "Error from segmentation group",
)  # fmt: skip


def says_compiler_failed(message: str) -> bool:
    """Whether an error of nvFuser's is one of its compiler's, and not of a kernel that ran."""
    return "CUDA error" not in message and any(mark in message for mark in _FAILURES)


def _gist(message: str) -> str:
    """The line that says what was expected, or the first one."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("Expected")), lines[0])[:200]


def kernel_names(code: str) -> tuple[str, ...]:
    """The kernels in CUDA source text."""
    marks = code.split("__global__ void")[1:]
    return tuple(mark.split("(")[0].split()[-1] for mark in marks)


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of ones laid out and aligned alike, on memory of its own."""
    skip = tensor.data_ptr() % ALIGNMENT // tensor.itemsize
    flat = torch.ones(skip + _extent(tensor), dtype=tensor.dtype, device=tensor.device)
    return flat.as_strided(tensor.shape, tensor.stride(), skip)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the same elements, laid out and aligned alike, on memory of its own."""
    found = _stand_in(tensor)
    extent = (_extent(tensor),), (1,)
    found.as_strided(*extent).copy_(tensor.as_strided(*extent))
    return found


def _extent(tensor: torch.Tensor) -> int:
    """How many elements of memory lie between its first and its last one, both counted."""
    return 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


class CacheInfo(NamedTuple):
    """How many regions found a compiled fusion, how many had to compile theirs, and how many of these nvFuser could not."""

    hits: int
    misses: int
    failures: int = 0


@lru_cache(maxsize=KEPT)
def fusion_of(body: Body) -> Fusion:
    """The fusion of a body, the same for all regions that have it."""
    return Fusion(body)


def cache_info() -> CacheInfo:
    """Hits and misses of this process so far."""
    found = fusion_of.cache_info()
    return CacheInfo(found.hits, found.misses, _failed[0])


class Tally:
    """What the cache did since this was asked last."""

    def __init__(self) -> None:
        self._before = CacheInfo(0, 0)

    def take(self) -> dict[str, int]:
        """How many fusions were asked for, how many of them the cache had, and on how many the compiler failed."""
        now, before = cache_info(), self._before
        self._before = now
        hits, misses, failures = (a - b for a, b in zip(now, before, strict=True))
        found = {"fusions": hits + misses, "fusions from the cache": hits} if hits + misses else {}
        return found | ({"fusions that nvFuser failed to compile": failures} if failures else {})
