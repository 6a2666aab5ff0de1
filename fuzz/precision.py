"""Judges results that are not exact: the compiler may be off by a few times eager's own error against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from executor.memory import Memory, describe, to_bytes
from executor.program import Backward
from fuzz.gradients import followed
from fuzz.runs import Run, run

FACTOR = 3.0  # the compiler's error may be so many times eager's
LOST = 2.0**-5  # of the largest magnitude: where eager itself errs by more, cancellation has left nothing to compare
_WIDE = {"float16": "float64", "bfloat16": "float64", "float32": "float64", "complex64": "complex128"}


class Judge:
    """Judges by a float64 run of `fn` on widened copies of the tensors in `memory`, which is left as it is.

    `rebuild` puts tensors into the places of the arguments, `backward` is how the caller goes backward. Where the wide run
    fails, equality is asked for.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        memory: Memory,
        rebuild: Callable[[Sequence[torch.Tensor]], Sequence[Any]],
        backward: Backward | None = None,
    ) -> None:
        wide = widen(memory)
        self._golden = followed(run(fn, wide, rebuild(wide.tensors)), backward)

    def __call__(self, k: int, expected: torch.Tensor, actual: torch.Tensor) -> bool:
        """See `fuzz.oracle.Close`."""
        if self._golden.error is not None:
            return False
        golden = self._pick(k)
        gradient = k >= len(self._golden.leaves) + len(self._golden.memory.bases) + len(self._golden.memory.tensors)
        return _near(golden, expected, actual) or (gradient and _roughly(golden, actual))

    def alike(self, k: int, eager: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> bool:
        """Whether two compilers' results differ by no more than one of them may err; `eager` is eager's, k as in `Close`."""
        golden = self._pick(k) if self._golden.error is None else None
        if golden is None or golden.shape != eager.shape:
            return False
        truth = _widest(golden)
        apart = (one.to(truth.dtype) - other.to(truth.dtype)).abs()
        fine = (apart <= _allowed(truth, eager)) | ((one != one) & (other != other))
        return bool((fine | (one == other)).all())

    def doubt(self, eager: Run) -> str | None:
        """Why eager's own result is no measure, in words: it is far from float64's; None if it is near."""
        if self._golden.error is not None or eager.error is not None:
            return None
        for k, tensor in enumerate((*eager.leaves, *eager.memory.bases)):
            golden = self._pick(k) if isinstance(tensor, torch.Tensor) and _inexact(tensor) else None
            if golden is None or golden.shape != tensor.shape:
                continue
            truth, own = _widest(golden), _widest(tensor)
            lost = (own - truth).abs() > LOST * truth.abs().nan_to_num(0, 0, 0).max() if truth.numel() else truth
            if bool(lost.any()) or bool((truth.isfinite() != own.isfinite()).any()):
                where = f"output {k}" if k < len(eager.leaves) else f"storage {k - len(eager.leaves)}"
                return f"eager's {where} is far from what float64 gives"
        return None

    def _pick(self, k: int) -> torch.Tensor | None:
        golden = self._golden
        gradients = [gradient for _, gradient in golden.passed.gradients] if golden.passed is not None else []
        every = (*golden.leaves, *golden.memory.bases, *golden.memory.tensors, *gradients)
        return every[k] if k < len(every) and isinstance(every[k], torch.Tensor) else None


def widen(memory: Memory) -> Memory:
    """Copies of storages and tensors with each floating-point dtype widened to double precision."""
    inputs = describe(memory.tensors, fill=False)
    data, dtypes = [b""] * len(inputs.storages), ["uint8"] * len(inputs.storages)
    for tensor, value in zip(memory.tensors, inputs.values, strict=True):
        base = memory.bases[_home(memory, tensor)] if tensor.untyped_storage().nbytes() else tensor.flatten()
        wide = base.to(getattr(torch, _WIDE.get(str(base.dtype)[6:], str(base.dtype)[6:])))
        data[value.storage], dtypes[value.storage] = to_bytes(wide), str(wide.dtype)[6:]
    values = tuple(msgspec.structs.replace(v, dtype=_WIDE.get(v.dtype, v.dtype)) for v in inputs.values)
    wide_inputs = msgspec.structs.replace(inputs, values=values)
    return Memory(data, dtypes, wide_inputs)


def _home(memory: Memory, tensor: torch.Tensor) -> int:
    home = memory.locate(tensor)
    assert home is not None, "a tensor of this memory lies in it"
    return home


def _inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _widest(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _near(golden: torch.Tensor | None, expected: torch.Tensor, actual: torch.Tensor) -> bool:
    """Whether `actual` errs at most FACTOR times as much as `expected` does at its worst, with a floor of one ulp."""
    if golden is None or golden.shape != expected.shape:
        return False
    truth = _widest(golden)
    error = (actual.to(truth.dtype) - truth).abs()
    fine = (error <= _allowed(truth, expected)) | ((actual != actual) & (expected != expected))
    return bool((fine | (actual == expected)).all())


def _roughly(golden: torch.Tensor | None, actual: torch.Tensor) -> bool:
    """Whether half of the digits of the greatest element are right.

    That is for gradients, whose rules may be written in several ways: 1 - y, say, loses digits where y is near 1.
    """
    if golden is None or golden.shape != actual.shape:
        return False
    truth = _widest(golden)
    if not truth.numel():
        return True
    largest = truth.abs().nan_to_num(0, 0, 0).max()
    fine = (actual.to(truth.dtype) - truth).abs() <= torch.finfo(actual.dtype).eps ** 0.5 * largest
    return bool((fine | ((actual != actual) & (truth != truth)) | (actual == truth)).all())


def _allowed(truth: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """How far each element may be from the float64 run's, given eager's own result."""
    own = (eager.to(truth.dtype) - truth).abs()
    ulp = torch.finfo(eager.dtype).eps * truth.abs().clamp_min(torch.finfo(eager.dtype).tiny)
    return FACTOR * own.nan_to_num(0).max() + ulp
