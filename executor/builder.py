"""A program under reconstruction: the passes append calls here, and get the geometry of every new value."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import torch

from executor.args import Arg, Const, Device, List, Ref, exactly, rename, to_python
from executor.interpreter import flatten
from executor.memory import value_of
from executor.program import Call, Program, Source, Storage, Value, contiguous_strides, itemsize
from executor.schema import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

# Operands up to this many elements are laid out for real to learn a result's geometry; larger ones on the meta device.
_REAL = 4096
_HERE = -1  # the storage of a result that lies on its first operand
CONTIGUOUS = (("memory_format", Const("contiguous_format")),)


class Builder:
    """Storages, values and calls so far; starts from a program's storages and values, without its calls."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.storages: list[Storage] = list(program.storages)
        self.values: list[Value] = list(program.values)
        self.calls: list[Call] = []

    def finish(self, outputs: Arg | None = None) -> Program:
        """The program with the calls that were appended."""
        tree = self.program.outputs if outputs is None else outputs
        return msgspec.structs.replace(
            self.program,
            storages=tuple(self.storages),
            values=tuple(self.values),
            calls=tuple(self.calls),
            outputs=tree,
        )

    def twin(self, value: int) -> int:
        """A new value laid out like this one, on a storage of its own."""
        geometry = self.values[value]
        self.values.append(msgspec.structs.replace(geometry, storage=len(self.storages)))
        self.storages.append(self.storages[geometry.storage])
        return len(self.values) - 1

    def emit(self, op: str, *args: Arg, source: Source | None = None, kwargs: tuple[tuple[str, Arg], ...] = ()) -> int:
        """Appends a call that returns one tensor; the new value's index."""
        call = Call(op, args, kwargs, (len(self.values),), source)
        geometry = _geometry(call, self.values)[0]
        if call.operands:
            home = self.values[call.operands[0]].storage
            return self.append(call, geometry, self.storages[home].device, home)
        device = next((arg.name for key, arg in kwargs if key == "device" and isinstance(arg, Device)), "cpu")
        return self.append(call, geometry, device, _HERE)

    def append(self, call: Call, geometry: Value, device: str, home: int) -> int:
        """Appends a call whose result is the next value: on storage `home` if `geometry.storage` is negative, else a new one."""
        if geometry.storage < 0:
            geometry = msgspec.structs.replace(geometry, storage=home)
        else:
            geometry = msgspec.structs.replace(geometry, storage=len(self.storages))
            self.storages.append(Storage(geometry.end, None, device))
        self.values.append(geometry)
        self.calls.append(call)
        return len(self.values) - 1

    def replace_operands(self, call: Call, new: dict[int, int]) -> None:
        """Appends an existing call on other operands, with the same contents; its results stay laid out as they are.

        An operator lays out its results like its operands. Where these are laid out in another way, the results are put
        back in order: by a view if only strides of single elements differ, else by a copy.
        """
        if not new:
            self.calls.append(call)
            return
        changed = renamed(call, new)
        moved = any(self.values[a].strides != self.values[b].strides for a, b in new.items())
        if not moved or not call.results:
            self.calls.append(changed)
            return
        found = _geometry(changed, self.values)
        turned = [_place(geometry) != _place(self.values[r]) for r, geometry in zip(call.results, found, strict=True)]
        loose = any(turn and not _packed(self.values[r]) for r, turn in zip(call.results, turned, strict=True))
        if loose or any(geometry.storage < 0 for geometry in found):
            # A copy would become a view, or lose the gaps between its elements: it stays a copy of what it was one of.
            self.calls.append(call)
            return
        results, fixes = list(call.results), []
        for i, (result, geometry) in enumerate(zip(call.results, found, strict=True)):
            wanted = self.values[result]
            if turned[i]:
                self.values.append(msgspec.structs.replace(geometry, storage=wanted.storage))
                results[i] = len(self.values) - 1
                fixes.append((results[i], result))
        self.calls.append(msgspec.structs.replace(changed, results=tuple(results)))
        for actual, result in fixes:
            self._relayout(actual, result, call.source)

    def _relayout(self, actual: int, result: int, source: Source | None) -> None:
        """Appends what makes `result` of `actual`, which has the same elements on the same storage in another order."""
        geometry, wanted = self.values[actual], self.values[result]
        long = [dim for dim, size in enumerate(wanted.shape) if size > 1]
        if any(geometry.strides[dim] != wanted.strides[dim] for dim in long):
            self.storages.append(self.storages[wanted.storage])
            self.values[actual] = msgspec.structs.replace(geometry, storage=len(self.storages) - 1)
            order = sorted(range(len(wanted.shape)), key=lambda dim: -wanted.strides[dim])
            turned = self.view("aten.permute.default", actual, sizes(order), source=source)
            actual = self.dense(turned, source)
            self.values[actual] = msgspec.structs.replace(self.values[actual], storage=wanted.storage)
        args = (Ref(actual), sizes(wanted.shape), sizes(wanted.strides), wanted.offset)
        self.calls.append(Call("aten.as_strided.default", args, (), (result,), source))

    def copy(self, target: int, value: int, source: Source | None = None) -> None:
        """Appends the write of a value into memory."""
        self.calls.append(Call("aten.copy_.default", (Ref(target), Ref(value)), (), (target,), source))

    def view(self, op: str, value: int, *args: Arg, source: Source | None = None) -> int:
        """Appends a call of a view operator on one value."""
        return self.emit(op, Ref(value), *args, source=source)

    def as_strided(self, value: int, like: Value, offset: int, source: Source | None = None) -> int:
        """Appends a view with the shape and strides of `like`; of a value without lazy bits. It may reach past its own end."""
        geometry = Value(_HERE, self.values[value].dtype, like.shape, like.strides, offset)
        args = (Ref(value), sizes(like.shape), sizes(like.strides), offset)
        call = Call("aten.as_strided.default", args, (), (len(self.values),), source)
        return self.append(call, geometry, "", self.values[value].storage)

    def full(self, like: Value, shape: tuple[int, ...], fill: Arg, source: Source | None = None) -> int:
        """Appends a constant tensor of this dtype on the device of `like`."""
        device = self.storages[like.storage].device
        kwargs = (("dtype", Const(like.dtype)), ("device", Device(device)))
        call = Call("aten.full.default", (sizes(shape), fill), kwargs, (len(self.values),), source)
        return self.append(call, _contiguous(like.dtype, shape), device, _HERE)

    def dense(self, value: int, source: Source | None = None) -> int:
        """Appends a row-major copy."""
        geometry = self.values[value]
        call = Call("aten.clone.default", (Ref(value),), CONTIGUOUS, (len(self.values),), source)
        return self.append(call, _contiguous(geometry.dtype, geometry.shape), self._device(value), _HERE)

    def reshaped(self, dense: int, shape: tuple[int, ...], source: Source | None = None) -> int:
        """Appends a view of another shape of a row-major value."""
        geometry = self.values[dense]
        found = Value(_HERE, geometry.dtype, shape, contiguous_strides(shape), geometry.offset)
        call = Call("aten.view.default", (Ref(dense), sizes(shape)), (), (len(self.values),), source)
        return self.append(call, found, "", geometry.storage)

    def scattered(self, flat: int, part: int, where: Value, source: Source | None = None) -> int:
        """Appends a copy of a flat row-major value with a part, laid out there as `where` says, replaced."""
        args = (Ref(flat), Ref(part), sizes(where.shape), sizes(where.strides), where.offset)
        call = Call("aten.as_strided_scatter.default", args, (), (len(self.values),), source)
        geometry = self.values[flat]
        return self.append(call, _contiguous(geometry.dtype, geometry.shape), self._device(flat), _HERE)

    def _device(self, value: int) -> str:
        return self.storages[self.values[value].storage].device

    def empty(self, value: int, source: Source | None = None) -> None:
        """Appends the allocation of an existing value, without contents: as a part of its storage if it begins later."""
        geometry = self.values[value]
        storage = self.storages[geometry.storage]
        kwargs = (("dtype", Const(geometry.dtype)), ("device", Device(storage.device)))
        if not geometry.offset:
            whole_args = (sizes(geometry.shape), sizes(geometry.strides))
            self.calls.append(Call("aten.empty_strided.default", whole_args, kwargs, (value,), source))
            return
        shape = (storage.nbytes // geometry.itemsize,)
        self.values.append(msgspec.structs.replace(geometry, shape=shape, strides=(1,), offset=0))
        whole = len(self.values) - 1
        self.calls.append(Call("aten.empty_strided.default", (sizes(shape), sizes((1,))), kwargs, (whole,), source))
        args = (Ref(whole), sizes(geometry.shape), sizes(geometry.strides), geometry.offset)
        self.calls.append(Call("aten.as_strided.default", args, (), (value,), source))

    def cast(self, value: int, dtype: str, source: Source | None = None) -> int:
        """The value in this dtype; the value itself if it has it."""
        if self.values[value].dtype == dtype:
            return value
        return self.emit("aten._to_copy.default", Ref(value), kwargs=(("dtype", Const(dtype)),), source=source)

    def expand(self, value: int, shape: tuple[int, ...], source: Source | None = None) -> int:
        """The value expanded to this shape; the value itself if it has it."""
        if self.values[value].shape == shape:
            return value
        return self.view("aten.expand.default", value, sizes(shape), source=source)


def sizes(numbers: Sequence[int]) -> List:
    """A list argument."""
    return List(tuple(numbers))


def renamed(call: Call, new: dict[int, int]) -> Call:
    """The call with operands replaced; results stay."""
    if not new or new.keys().isdisjoint(call.operands):
        return call

    def ref(index: int) -> Arg:
        return Ref(new.get(index, index))

    args = tuple([rename(arg, ref) for arg in call.args])
    kwargs = tuple([(key, rename(arg, ref)) for key, arg in call.kwargs]) if call.kwargs else ()
    return Call(call.op, args, kwargs, call.results, call.source, call.no_grad)


def _place(value: Value) -> tuple[tuple[int, ...], int]:
    return value.strides, value.offset


def _packed(value: Value) -> bool:
    """Whether a value alone on its storage leaves no gap there."""
    return value.end == value.numel * value.itemsize


def _contiguous(dtype: str, shape: tuple[int, ...]) -> Value:
    """A fresh row-major value, on any storage."""
    return Value(0, dtype, shape, contiguous_strides(shape))


def _geometry(call: Call, values: list[Value]) -> tuple[Value, ...]:
    """What the call returns: on storage -1 if it lies on its first operand's."""
    place = {index: i for i, index in enumerate(dict.fromkeys(call.operands))}
    local = tuple([msgspec.structs.replace(values[index], storage=0) for index in place])
    own = renamed(call, place)
    exact = exactly((*own.args, *[arg for _, arg in own.kwargs]))
    return _infer(call.op, local, own.args, own.kwargs, exact, torch.get_default_dtype())


@lru_cache(maxsize=4096)
def _infer(
    op: str,
    operands: tuple[Value, ...],
    args: tuple[Arg, ...],
    kwargs: tuple[tuple[str, Arg], ...],
    _exact: tuple[object, ...],
    _default: torch.dtype,
) -> tuple[Value, ...]:
    """Runs the operator on tensors laid out like its operands: zeros, so that whatever indexes stays in range.

    Where there are many elements, or the operator refuses zeros, it runs on tensors without contents. The last two tell
    apart what is kept: the types of numbers, and the default dtype, which results of whole numbers may have.
    """
    real = sum([max(value.end, 1) for value in operands]) <= 8 * _REAL
    try:
        return _run_on(op, operands, args, kwargs, "cpu" if real else "meta")
    except RuntimeError:  # no whole number is divided through 0
        return _run_on(op, operands, args, kwargs, "meta")


def _run_on(
    op: str, operands: tuple[Value, ...], args: tuple[Arg, ...], kwargs: tuple[tuple[str, Arg], ...], device: str
) -> tuple[Value, ...]:
    tensors = [_tensor(value, device) for value in operands]
    named = {name: to_python(arg, tensors) for name, arg in kwargs if name != "device"}
    results = flatten(resolve(op)(*[to_python(arg, tensors) for arg in args], **named))
    home = tensors[0].untyped_storage()._cdata if tensors else None
    return tuple([value_of(result, _HERE if result.untyped_storage()._cdata == home else 0) for result in results])


def _tensor(value: Value, device: str) -> torch.Tensor:
    base = torch.zeros(max(value.end // itemsize(value.dtype), 1), dtype=value.torch_dtype, device=device)
    tensor = base.as_strided(value.shape, value.strides, value.offset)
    tensor = tensor.conj() if value.conj else tensor
    return torch._neg_view(tensor) if value.neg else tensor
