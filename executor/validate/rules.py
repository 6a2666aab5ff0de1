"""Checks a program that this process did not make: what it says must be possible, and consistent with itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from executor.args import refs
from executor.program import Iota, Literal, itemsize
from executor.validate.calls import check_call
from executor.validate.gradients import check_gradients
from executor.validate.layout import check_layout
from executor.validate.scope import Scope, check_floats, fail

if TYPE_CHECKING:
    from executor.program import Fill, Program, Storage, Value


def validate(program: Program) -> None:
    """Checks all that can be checked without running the program.

    Raises `ProgramError` for the first rule that is broken: where, what is wrong, and what would be right.
    """
    for i, storage in enumerate(program.storages):
        _check_storage(f"storages[{i}]", storage)
    for i, value in enumerate(program.values):
        _check_value(f"values[{i}]", value, program.storages)
    scope = Scope(program)
    _check_params(program, scope)
    _check_twins(program)
    check_gradients(program)
    _check_constants(program, scope)
    for n, call in enumerate(program.calls):
        refused = program.raises is not None and n == len(program.calls) - 1
        check_call(f"calls[{n}] {call.op}", call, scope, refused=refused)
    _check_refusal(program)
    check_floats("outputs", program.outputs)
    for index in refs(program.outputs):
        scope.check_use("outputs", index)
    _check_all_used(program, scope)


def validate_geometry(program: Program) -> None:
    """`validate`, and then one run in eager: every value must be what eager lays out.

    Compared are dtype, shape, strides, offset, lazy bits, and which values share a storage. Raises `ProgramError`.
    """
    validate(program)
    check_layout(program)


def _check_storage(where: str, storage: Storage) -> None:
    if storage.nbytes < 0:
        fail(where, f"nbytes is {storage.nbytes}", "it must not be negative")
    try:
        torch.device(storage.device)
    except RuntimeError:
        fail(where, f"torch knows no device {storage.device!r}", "one looks like 'cpu' or 'cuda:0'")
    if storage.fill is not None:
        _check_fill(f"{where}.fill", storage.fill, storage.nbytes)


def _check_fill(where: str, fill: Fill, nbytes: int) -> None:
    _check_dtype(where, fill.dtype)
    if isinstance(fill, Iota):
        if fill.period < 0:
            fail(where, f"period is {fill.period}", "it must be positive, or 0 for none")
        return
    count = nbytes // itemsize(fill.dtype)
    if len(fill.values) != count:
        fail(where, f"{len(fill.values)} values", f"{nbytes} bytes are {count} elements of {fill.dtype}")
    for i, item in enumerate(fill.values):
        if not _fits(item, fill):
            fail(f"{where}.values[{i}]", f"{item!r} is no {fill.dtype}", "give each element as that dtype can hold it")


def _fits(item: bool | int | float | str, fill: Literal) -> bool:  # noqa: FBT001 (an element may be a bool)
    """Whether the dtype can hold the element: text only where JSON has no number for it, integers within the range."""
    dtype: torch.dtype = getattr(torch, fill.dtype)
    if dtype == torch.bool:
        return isinstance(item, bool)
    if not (dtype.is_floating_point or dtype.is_complex):
        bounds = torch.iinfo(dtype)
        return type(item) is int and bounds.min <= item <= bounds.max
    if not isinstance(item, str):
        return not isinstance(item, bool) and math.isfinite(item)
    try:
        complex(item)
    except ValueError:
        return False
    return dtype.is_complex or "j" not in item


def _check_dtype(where: str, name: str) -> None:
    """Aliases ("float", "half") are wrong too: dtypes are compared by name."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or str(found) != f"torch.{name}":
        canonical = f", so write {str(found).removeprefix('torch.')!r}" if isinstance(found, torch.dtype) else ""
        fail(
            where,
            f"{name!r} is not the name of a dtype",
            f"names are those that torch prints, such as 'float32'{canonical}",
        )


def _check_value(where: str, value: Value, storages: tuple[Storage, ...]) -> None:
    if not 0 <= value.storage < len(storages):
        fail(where, f"storage {value.storage} does not exist", f"there are {len(storages)}")
    _check_dtype(where, value.dtype)
    if len(value.shape) != len(value.strides):
        fail(where, f"shape {value.shape} and strides {value.strides} differ in rank", "give one stride a dimension")
    numbers = (*value.shape, *value.strides, value.offset)
    if any(type(n) is not int for n in numbers):
        fail(
            where, f"shape {value.shape}, strides {value.strides}, offset {value.offset}", "all must be whole elements"
        )
    if min(numbers) < 0:
        fail(where, f"shape {value.shape}, strides {value.strides}, offset {value.offset}", "none may be negative")
    if value.conj and not value.torch_dtype.is_complex:
        fail(where, f"conj is set on {value.dtype}", "only complex dtypes are conjugated")
    nbytes = storages[value.storage].nbytes
    if value.end > nbytes:
        fail(where, f"its last byte is {value.end - 1}", f"storage {value.storage} has {nbytes} bytes")


def _check_params(program: Program, scope: Scope) -> None:
    names: set[str] = set()
    for i, param in enumerate(program.params):
        where = f"params[{i}] {param.name!r}"
        if not param.name or param.name in names:
            fail(where, "the name is empty or taken", "parameters are told apart by their names")
        names.add(param.name)
        check_floats(where, param.value)
        for index in refs(param.value):
            scope.check_exists(where, index)
            scope.define(where, index)
            storage = program.values[index].storage
            if program.storages[storage].fill is None:
                fail(
                    where,
                    f"value {index} lies on storage {storage}, which has no fill",
                    "an input's storage has contents",
                )


def _check_twins(program: Program) -> None:
    count = len(program.inputs)
    later_ones = [later for later, _ in program.twins]
    for i, (later, earlier) in enumerate(program.twins):
        where = f"twins[{i}]"
        if not 0 <= earlier < later < count:
            fail(
                where, f"({later}, {earlier}) are no positions of inputs, the later first", f"there are {count} inputs"
            )
        if earlier in later_ones or later_ones.count(later) > 1:
            fail(
                where, f"({later}, {earlier}) is one of a chain", "pair each input once, with the first that it equals"
            )
        one, other = (program.values[program.inputs[position]] for position in (later, earlier))
        if one != other:
            fail(where, f"inputs {later} and {earlier} differ: {one}, {other}", "one tensor object has one geometry")


def _check_constants(program: Program, scope: Scope) -> None:
    for i, index in enumerate(program.constants):
        where = f"constants[{i}]"
        scope.check_exists(where, index)
        storage = program.values[index].storage
        if storage in scope.homes:
            fail(where, f"value {index} lies on storage {storage}, where another value lies", "a constant has its own")
        if not isinstance(program.storages[storage].fill, Literal):
            fail(where, f"storage {storage} has no literal contents", "a constant's fill is a Literal")
        scope.define(where, index)


def _check_refusal(program: Program) -> None:
    if program.raises is None:
        return
    if not program.raises.isidentifier():
        fail("raises", f"{program.raises!r} names no exception", "give its class name, such as 'RuntimeError'")
    if not program.calls or program.calls[-1].results:
        fail("raises", "no call is refused", "the last call raises, and so has no results")


def _check_all_used(program: Program, scope: Scope) -> None:
    for i in range(len(program.values)):
        if i not in scope.defined:
            fail(f"values[{i}]", "nothing defines it", "each value is an input, a constant or a call's result")
    for i in range(len(program.storages)):
        if i not in scope.homes:
            fail(f"storages[{i}]", "no value lies on it", "leave it out")
