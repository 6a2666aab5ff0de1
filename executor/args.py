"""What an argument of a call, or an output, may be: an immutable tree that survives JSON.

Leaves are Python numbers, strings, None, references to values (`Ref`) and torch constants such as dtypes (`Const`).
Inner nodes are `List`, `Tuple` and `Dict`, which keep the container's type, since outputs are pytrees that the caller sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import torch

from executor.errors import ArgumentError


class Ref(msgspec.Struct, frozen=True, tag="ref", gc=False):
    """A use of the value with this index in `Program.values`."""

    index: int


class Const(msgspec.Struct, frozen=True, tag="torch", gc=False):
    """An attribute of the torch module: a dtype, layout or memory format, by its name ("float32")."""

    name: str


class Device(msgspec.Struct, frozen=True, tag="device", gc=False):
    """A torch device by its name ("cpu", "cuda:0")."""

    name: str


class Number(msgspec.Struct, frozen=True, tag="number", gc=False):
    """A number that JSON cannot write: complex, infinite or NaN, as Python prints it ("(1+2j)", "inf")."""

    text: str


class List(msgspec.Struct, frozen=True, tag="list", gc=False):
    """A Python list."""

    items: tuple[Arg, ...]


class Tuple(msgspec.Struct, frozen=True, tag="tuple", gc=False):
    """A Python tuple."""

    items: tuple[Arg, ...]


class Dict(msgspec.Struct, frozen=True, tag="dict", gc=False):
    """A Python dict with string keys, in insertion order."""

    items: tuple[tuple[str, Arg], ...]


Arg = None | bool | int | float | str | Ref | Const | Device | Number | List | Tuple | Dict

_TORCH_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)
_PLAIN = (bool, int, str, type(None))
_NUMBERS = (bool, int, float, str)  # tuples, which `isinstance` takes in half the time of a union
_SEQUENCES = (List, Tuple)
_TOLD_APART = frozenset({float, List, Tuple, Dict})  # by more than their type


def constant(name: str) -> Any:
    """The torch constant of this name. Raises `ValueError` if torch has no dtype, layout or memory format so named."""
    found = getattr(torch, name, None)
    if not isinstance(found, _TORCH_CONSTANTS):
        raise ValueError(f"torch.{name} is no dtype, layout or memory format")
    return found


def to_arg(obj: Any, ref: Callable[[torch.Tensor], Arg]) -> Arg:
    """`obj` as an argument tree; tensors are translated by `ref`.

    Raises `ArgumentError` for an object that a program cannot hold, naming it.
    """
    if isinstance(obj, torch.Tensor):
        return ref(obj)
    if type(obj) in _PLAIN:
        return obj  # type: ignore[no-any-return]
    if isinstance(obj, Mapping):
        return Dict(tuple([(_key(key), to_arg(item, ref)) for key, item in obj.items()]))
    if isinstance(obj, list):
        return List(tuple([to_arg(item, ref) for item in obj]))
    if isinstance(obj, Sequence) and not isinstance(obj, str | bytes | bytearray):
        return Tuple(tuple([to_arg(item, ref) for item in obj]))
    return _leaf(obj)


def _leaf(obj: Any) -> Arg:
    """Subclasses such as the members of an `IntEnum` become what they are made of, as JSON would make of them."""
    if isinstance(obj, int):
        return int(obj)
    if isinstance(obj, str):
        return str.__str__(obj)
    if isinstance(obj, float):
        return float(obj) if math.isfinite(obj) else Number(repr(float(obj)))
    if isinstance(obj, complex):
        return Number(repr(complex(obj)))
    if isinstance(obj, _TORCH_CONSTANTS):
        return Const(str(obj).removeprefix("torch."))
    if isinstance(obj, torch.device):
        return Device(str(obj))
    raise ArgumentError(
        f"a program cannot hold {obj!r} of type {type(obj).__name__}; it holds tensors, numbers, strings, "
        "None, dtypes, devices, and lists, tuples and string-keyed dicts of those"
    )


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise ArgumentError(f"a program's dicts have string keys, not {key!r} of type {type(key).__name__}")
    return key


def to_python(arg: Arg, env: Sequence[Any] | Mapping[int, Any]) -> Any:
    """The Python object that `arg` stands for; `Ref(i)` becomes `env[i]`."""
    if isinstance(arg, Ref):
        return env[arg.index]
    if arg is None or isinstance(arg, _NUMBERS):
        return arg
    if isinstance(arg, _SEQUENCES):
        items = [to_python(item, env) for item in arg.items]
        return items if isinstance(arg, List) else tuple(items)
    if isinstance(arg, Dict):
        return {key: to_python(item, env) for key, item in arg.items}
    if isinstance(arg, Const):
        return constant(arg.name)
    if isinstance(arg, Device):
        return torch.device(arg.name)
    value = complex(arg.text)
    return value if "j" in arg.text else value.real


def children(arg: Arg) -> tuple[Arg, ...]:
    """The direct parts of a list, tuple or dict; nothing for a leaf."""
    if isinstance(arg, _SEQUENCES):
        return arg.items
    if isinstance(arg, Dict):
        return tuple(item for _, item in arg.items)
    return ()


def refs(arg: Arg) -> Iterator[int]:
    """Indices of the values that `arg` uses, in order, repeated where it uses one twice."""
    found: list[int] = []
    collect((arg,), found)
    return iter(found)


def collect(args: Iterable[Arg], found: list[int]) -> None:
    """Adds to `found` what `refs` gives of each. Nearly everything asks this of every call, so it is no generator."""
    for arg in args:
        if isinstance(arg, Ref):
            found.append(arg.index)
        elif isinstance(arg, _SEQUENCES):
            collect(arg.items, found)
        elif isinstance(arg, Dict):
            collect(children(arg), found)


def exactly(args: Iterable[Arg]) -> tuple[object, ...]:
    """What tells arguments apart that Python takes for equal, in lists too: 1, 1.0 and True, or 0.0 and -0.0.

    For keys, beside the arguments themselves.
    """
    return tuple(
        [
            kind if (kind := type(arg)) not in _TOLD_APART else repr(arg) if kind is float else exactly(children(arg))
            for arg in args
        ]
    )


def rename(arg: Arg, new: Callable[[int], Arg]) -> Arg:
    """`arg` with every `Ref(i)` replaced by `new(i)`."""
    if isinstance(arg, Ref):
        return new(arg.index)
    if isinstance(arg, _SEQUENCES):
        items = tuple([rename(item, new) for item in arg.items])
        return List(items) if isinstance(arg, List) else Tuple(items)
    if isinstance(arg, Dict):
        return Dict(tuple((key, rename(item, new)) for key, item in arg.items))
    return arg
