"""A program's memory as Python source: lines that build storages, and then tensors on them, with nothing but `torch`."""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING

from executor.args import Ref, refs
from executor.args import constant as torch_constant
from executor.printing.arguments import number
from executor.printing.backward import backward
from executor.program import Iota, Literal, contiguous_strides, itemsize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.program import Fill, Inputs, Program, Storage, Value

# Integers up to this size are exact in each dtype that `torch.arange` makes; elsewhere the ramp is made and then cast.
_EXACT = {"float64": 2**53, "float32": 2**24, "float16": 2**11, "bfloat16": 2**8, "int64": 2**63 - 1} | {
    f"int{bits}": 2 ** (bits - 1) - 1 for bits in (8, 16, 32)
}


def inputs(inputs: Inputs, names: Sequence[str]) -> list[str]:
    """Lines that leave `names[k]` as input k, laid out, filled and shared as `executor.memory.allocate(inputs)` does.

    Storages come first, then what lies below the inputs that are no leaves though they require grad.
    """
    prefix = _prefix(names)
    lines: list[str] = []
    for i, storage in enumerate(inputs.storages):
        lines += _storage_lines(f"{prefix}{i}", storage)
    for i in _rooted_storages(inputs):
        lines.append(f"{prefix}{i}_root = {prefix}{i}.clone().requires_grad_()")
        lines.append(f"{prefix}{i}_base = {prefix}{i}.detach().copy_({prefix}{i}_root)")
    twins = dict(inputs.twins)
    for i, value in enumerate(inputs.values):
        flat = f"{prefix}{value.storage}{'_base' if i in inputs.rooted else ''}"
        placed = _placed(flat, *_elements(inputs.storages[value.storage]), value)
        placed += ".detach().requires_grad_()" if i in inputs.leaves else ""
        lines.append(f"{names[i]} = {names[twins[i]] if i in twins else placed}")
    return lines


def leaves(inputs: Inputs, names: Sequence[str]) -> list[str]:
    """The names, in the lines of `inputs`, of the tensors that gradients flow to, in the order of `Memory.leaves`."""
    twins, prefix = dict(inputs.twins), _prefix(names)
    own = [names[position] for position in inputs.leaves if position not in twins]
    return [*own, *(f"{prefix}{i}_root" for i in _rooted_storages(inputs))]


def _prefix(names: Sequence[str]) -> str:
    """What the names of storages begin with, and those of inputs do not."""
    prefix = "s"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def _rooted_storages(inputs: Inputs) -> list[int]:
    return sorted({inputs.values[position].storage for position in inputs.rooted})


def constant(storage: Storage, value: Value) -> str:
    """The expression of one of a program's constants: a fresh tensor with literal contents."""
    dtype, count = _elements(storage)
    fill = storage.fill
    device = f", device={storage.device!r}" if storage.device != "cpu" else ""
    dense = (value.dtype, value.offset, value.strides) == (dtype, 0, contiguous_strides(value.shape))
    if isinstance(fill, Literal) and dense and value.numel == count > 0 and not (value.conj or value.neg):
        return f"torch.tensor({_nested(_numbers(fill), value.shape)}, dtype=torch.{dtype}{device})"
    flat = _contents(fill, count) if fill else f"torch.zeros({count}, dtype=torch.uint8)"
    return _placed(flat + (f".to({storage.device!r})" if device else ""), dtype, count, value)


def _elements(storage: Storage) -> tuple[str, int]:
    """The dtype in which a storage is built, and its count of elements. Bytes are what is left to odd sizes."""
    dtype = storage.fill.dtype if storage.fill else "uint8"
    if storage.nbytes % itemsize(dtype):
        dtype = "uint8"
    return dtype, storage.nbytes // itemsize(dtype)


def _storage_lines(name: str, storage: Storage) -> list[str]:
    fill = storage.fill
    if fill is None:
        lines = [f"{name} = torch.zeros({storage.nbytes}, dtype=torch.uint8)"]
    else:
        count, rest = divmod(storage.nbytes, itemsize(fill.dtype))
        lines = [f"{name} = {_contents(fill, count)}"]
        if rest:
            tail = f"torch.zeros({rest}, dtype=torch.uint8)"
            lines.append(f"{name} = torch.cat(({name}.view(torch.uint8), {tail}))")
    return lines if storage.device == "cpu" else [*lines, f"{name} = {name}.to({storage.device!r})"]


def _contents(fill: Fill, count: int) -> str:
    """A flat tensor's first `count` elements; see `executor.memory.fill_tensor`."""
    if isinstance(fill, Literal):
        return f"torch.tensor([{', '.join(_numbers(fill))}], dtype=torch.{fill.dtype})"
    ramp = _ramp(fill, count)
    if fill.dtype == "bool":
        return f"({ramp}) % 3 == 0" if fill.period else f"{ramp} % 3 == 0"
    if torch_constant(fill.dtype).is_complex:
        wide = f"({ramp}).double()" if fill.period else f"{ramp}.double()"
        return f"torch.complex({wide}, {wide}.flip(0)).to(torch.{fill.dtype})"
    if fill.period:
        return f"({ramp}).to(torch.{fill.dtype})"
    bound = _EXACT.get(fill.dtype, -1)
    if -bound <= fill.start and fill.start + count <= bound:
        return ramp[:-1] + f", dtype=torch.{fill.dtype})"
    return f"{ramp}.to(torch.{fill.dtype})"


def _ramp(fill: Iota, count: int) -> str:
    if not fill.period:
        return f"torch.arange({fill.start}, {fill.start + count})"
    return f"torch.arange({count}) % {fill.period} + {fill.start}"


def _numbers(fill: Literal) -> list[str]:
    real = not torch_constant(fill.dtype).is_complex
    values = [complex(value) if isinstance(value, str) else value for value in fill.values]
    return [number(value.real if real and isinstance(value, complex) else value) for value in values]


def _nested(items: list[str], shape: tuple[int, ...]) -> str:
    """`[[1, 2], [3, 4]]`: items in row-major order as nested lists."""
    if not shape:
        return items[0]
    step = len(items) // shape[0]
    return f"[{', '.join(_nested(items[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))}]"


def _placed(flat: str, dtype: str, count: int, value: Value) -> str:
    """The tensor that `value` describes, on the storage of a flat tensor; see `executor.memory.on_base`."""
    if value.dtype != dtype:
        whole = count * itemsize(dtype) // value.itemsize * value.itemsize // itemsize(dtype)
        flat += f"[:{whole}]" if whole != count else ""
        flat, count = f"{flat}.view(torch.{value.dtype})", whole * itemsize(dtype) // value.itemsize
    whole_view = value.dtype != dtype and (value.shape, value.strides, value.offset) == ((count,), (1,), 0) and count
    text = flat if whole_view else f"{flat}{_subscript(count, value) or _view(count, value) or _strided(value)}"
    text += ".conj()" if value.conj else ""
    # The lazy negative bit has no method of its own.
    return f"torch.ops.aten._neg_view.default({text})" if value.neg else text


def _subscript(count: int, value: Value) -> str:
    """`[2:8:2]` for a part of one dimension, `[3]` for one element."""
    if value.shape == () and count:
        return f"[{value.offset}]"
    if len(value.shape) != 1 or not value.numel or value.strides[0] < 1 or value.numel == count:
        return ""
    (step,) = value.strides
    stop = value.offset + (value.numel - 1) * step + 1
    ends = f"{value.offset or ''}:{stop if stop != count else ''}"
    return f"[{ends}]" if step == 1 else f"[{ends}:{step}]"


def _view(count: int, value: Value) -> str:
    """`.view(3, 4)` for all elements in row-major order."""
    if value.numel != count or not count or value.offset or value.strides != contiguous_strides(value.shape):
        return ""
    return f".view({', '.join(map(str, value.shape)) or '()'})"


def _strided(value: Value) -> str:
    return f".as_strided({value.shape}, {value.strides}, {value.offset})"


def input_names(program: Program) -> dict[int, str]:
    """Python names for a program's inputs, by value: their parameters', numbered inside a list or dict."""
    names: dict[int, str] = {}
    for param in program.params:
        base = re.sub(r"\W", "_", param.name, flags=re.ASCII)
        if not base.isidentifier() or keyword.iskeyword(base) or base == "torch":
            base = f"x_{base}"
        for k, index in enumerate(refs(param.value)):
            name = base if isinstance(param.value, Ref) else f"{base}{k}"
            while name in names.values():
                name += "_"
            names[index] = name
    return names


def listing(program: Program) -> str:
    """The program as one reads it: its inputs' memory, a line each, then the function, and how its caller goes backward."""
    lines = inputs(program.entry, list(input_names(program).values()))
    later = backward(program)
    return "\n".join([*lines, "", str(program).rstrip(), *([f"# {later}"] if later else [])])
