"""Calls of some 290 ATen overloads (overloads.txt), for tests that hold for every operator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from executor.args import Arg, List, Ref
from executor.interpreter import flatten
from executor.memory import allocate, describe
from executor.program import Param, Program
from executor.recorder import Recorder
from executor.schema import resolve

CALLS = Path(__file__).with_suffix(".txt").read_text().splitlines()


def tensors() -> dict[str, torch.Tensor]:
    """The tensors that the calls are about, by name; `x` and `xt` share memory."""
    x = torch.arange(12.0).view(3, 4)
    return {
        "x": x,
        "xt": x.t(),
        "y": x.flip(0) + 1,
        "w": torch.full((3, 4), 2.0),
        "s": torch.tensor(2.0),
        "z": torch.tensor([1 + 2j, 3 - 1j]),
        "n": torch.arange(6),
        "m": x > 3,
        "i": torch.tensor([0, 1]),
        "i32": torch.tensor([0, 1], dtype=torch.int32),
        "j": torch.tensor([1, 0]),
        "k": torch.tensor(1),
        "g": torch.zeros(3, 4, dtype=torch.int64),
        "o": torch.arange(4.0).view(1, 1, 4),
        "a3": torch.ones(3, 3),
        "b3": torch.eye(3),
        "f2": torch.ones(2),
        "f3": torch.zeros(3),
        "h3": torch.ones(3),
        "f4": torch.zeros(4),
        "h4": torch.ones(4),
        "l3": torch.zeros(3, dtype=torch.int64),
        "rows": torch.arange(8.0).view(2, 4),
        "pairs": torch.arange(12.0).view(3, 2, 2),
        "batch": torch.arange(12.0).view(1, 3, 4),
        "batch_t": torch.arange(12.0).view(1, 4, 3),
        "kernel": torch.ones(1, 3, 3),
    }


def record(expression: str) -> Program:
    """The program of one call, such as "aten.add.Tensor(x, y, alpha=2)", that returns all that the call returns."""
    op, _, rest = expression.partition("(")
    known = tensors()
    names = [name for name in dict.fromkeys(re.findall(r"\w+", rest)) if name in known]
    inputs = describe([known[name] for name in names])
    recorder = Recorder()
    live = dict(zip(names, allocate(inputs).tensors, strict=True))
    for name, value in zip(names, inputs.values, strict=True):
        recorder.input(live[name], inputs.storages[value.storage])
    args, kwargs = _arguments(rest, live)
    out = recorder.record(resolve(op), args, kwargs, None)
    outputs: Arg = List(tuple(Ref(recorder.ref(tensor).index) for tensor in flatten(out)))
    return recorder.program([Param(name, Ref(k)) for k, name in enumerate(names)], outputs)


def _arguments(text: str, live: dict[str, torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def capture(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs

    captured: tuple[tuple[Any, ...], dict[str, Any]]
    captured = eval(f"capture({text}", {"capture": capture, "cpu": torch.device("cpu"), "torch": torch, **live})  # noqa: S307
    return captured
