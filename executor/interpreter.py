"""Runs a program call by call in eager PyTorch: the meaning that every compiler has to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from executor.args import Arg, Dict, List, Ref, Tuple, to_python
from executor.errors import ArgumentError
from executor.memory import literal_tensor
from executor.program import Call, Program
from executor.schema import changes_metadata, resolve


def run(program: Program, inputs: Sequence[torch.Tensor]) -> Any:
    """The program's outputs on these input tensors, one for each of `program.inputs`, mutated as the program says.

    The tensors may be laid out and may alias in any way, as with a Python function. Raises whatever eager raises.
    """
    env: list[Any] = [None] * len(program.values)
    for index, tensor in zip(program.inputs, inputs, strict=True):
        env[index] = tensor
    for index in program.constants:
        env[index] = literal_tensor(program.storages[program.values[index].storage], program.values[index])
    for call in program.calls:
        step(call, env)
    return to_python(program.outputs, env)


def step(call: Call, env: list[Any] | dict[int, Any]) -> None:
    """Runs one call on the tensors in `env`, and puts its results there."""
    args = [to_python(arg, env) for arg in call.args]
    kwargs = {name: to_python(arg, env) for name, arg in call.kwargs}
    if call.no_grad:
        with torch.no_grad():
            out = resolve(call.op)(*args, **kwargs)
    else:
        out = resolve(call.op)(*args, **kwargs)
    if not call.results:
        return  # eager refused the call on the program's own inputs, but need not on these
    for index, tensor in zip(call.results, returned(call.op, args, out), strict=True):
        env[index] = tensor


def returned(op: str, args: Sequence[Any], out: Any) -> list[torch.Tensor]:
    """The tensors that a call returned, in order; the tensor itself of one that changes a tensor's metadata."""
    return [args[0]] if changes_metadata(op) else flatten(out)


def flatten(out: Any) -> list[torch.Tensor]:
    """The tensors among an operator's results, lists flattened, in order."""
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, (list, tuple)):
        return [tensor for item in out for tensor in flatten(item)]
    return []


def call(program: Program, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls `program` like the Python function it was traced from.

    Raises `ArgumentError` if the arguments' nesting, or a number among them, differs from the program's parameters.
    """
    return run(program, bind(program, args, kwargs))


def bind(program: Program, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors among the arguments, in the order of `program.inputs`. Raises `ArgumentError` as `call` does."""
    names = [param.name for param in program.params]
    signature = f"this program takes ({', '.join(names)})"
    if len(args) > len(names):
        raise ArgumentError(f"{signature}, not {len(args)} positional arguments")
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names or name in given:
            raise ArgumentError(f"{signature}; {name!r} {'came twice' if name in given else 'is none of them'}")
        given[name] = value
    missing = [name for name in names if name not in given]
    if missing:
        raise ArgumentError(f"{signature}; {', '.join(missing)} missing")
    found: dict[int, torch.Tensor] = {}
    for param in program.params:
        _match(param.value, given[param.name], param.name, found)
    return [found[index] for index in program.inputs]


def _match(pattern: Arg, obj: Any, where: str, found: dict[int, torch.Tensor]) -> None:
    if isinstance(pattern, Ref):
        if not isinstance(obj, torch.Tensor):
            raise ArgumentError(f"{where} must be a tensor, not {type(obj).__name__}")
        found[pattern.index] = obj
        return
    if isinstance(pattern, List | Tuple):
        if not isinstance(obj, list | tuple) or len(obj) != len(pattern.items):
            raise ArgumentError(f"{where} must be a sequence of {len(pattern.items)} items, not {_brief(obj)}")
        for i, (item, part) in enumerate(zip(pattern.items, obj, strict=True)):
            _match(item, part, f"{where}[{i}]", found)
        return
    if isinstance(pattern, Dict):
        keys = [key for key, _ in pattern.items]
        if not isinstance(obj, Mapping) or sorted(obj) != sorted(keys):
            raise ArgumentError(f"{where} must be a dict with the keys {keys}, not {_brief(obj)}")
        for key, item in pattern.items:
            _match(item, obj[key], f"{where}[{key!r}]", found)
        return
    expected = to_python(pattern, ())
    if type(obj) is not type(expected) or (obj != expected and not (obj != obj and expected != expected)):
        raise ArgumentError(f"{where} must be {expected!r}, which the program was traced with, not {_brief(obj)}")


def _brief(obj: object) -> str:
    text = repr(obj) if not isinstance(obj, torch.Tensor) else "a tensor"
    return text if len(text) <= 60 else f"{text[:57]}..."
