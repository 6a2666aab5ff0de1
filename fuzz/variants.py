"""Further calls of one compiled function: with fresh data, and with inputs that alias otherwise.

A compiler that caches by shapes alone answers the second call with the first one's code.
"""

from __future__ import annotations

import msgspec

from executor.memory import fill_tensor
from executor.program import Inputs, Iota, Literal, Program, Storage, itemsize
from executor.targets import Target


def calls(program: Program, compiler: Target) -> tuple[Inputs, ...]:
    """Further ways to call the program, the last with another alias pattern if the compiler takes one."""
    if not compiler.limits.later_calls:
        return ()
    again = backwards(program.entry)
    other = realias(program.entry)
    taken = compiler.limits.aliased_inputs and compiler.limits.overlapping_inputs
    return (again, other) if other is not None and taken else (again,)


def backwards(inputs: Inputs) -> Inputs:
    """The same layout with each storage's contents in reverse order."""
    return msgspec.structs.replace(inputs, storages=tuple(_reversed(storage) for storage in inputs.storages))


def _reversed(storage: Storage) -> Storage:
    fill = storage.fill
    if fill is None:
        return storage
    if isinstance(fill, Iota):
        flat = fill_tensor(fill, storage.nbytes // itemsize(fill.dtype)).flip(0)
        fill = Literal(fill.dtype, tuple(repr(v) if isinstance(v, complex) else v for v in flat.tolist()))
    else:
        fill = Literal(fill.dtype, fill.values[::-1])
    return msgspec.structs.replace(storage, fill=fill)


def realias(inputs: Inputs) -> Inputs | None:
    """The same shapes and strides with another alias pattern; None for a single input.

    Inputs that share a storage get one each. If none share, the second takes the first one's place where that fits; but
    not of whole numbers, which may be indices.
    """
    values = inputs.values
    if len({value.storage for value in values}) < len(values):
        copies = tuple(msgspec.structs.replace(value, storage=k) for k, value in enumerate(values))
        return Inputs(tuple(inputs.storages[value.storage] for value in values), copies)
    for k, value in enumerate(values):
        for j, other in enumerate(values[:k]):
            if other.dtype == value.dtype != "int64" and other.shape == value.shape and other.strides == value.strides:
                moved = (*values[:k], msgspec.structs.replace(value, storage=j, offset=other.offset), *values[k + 1 :])
                return _without_unused(inputs, moved)
    return None


def _without_unused(inputs: Inputs, values: tuple) -> Inputs:  # type: ignore[type-arg]
    used = sorted({value.storage for value in values})
    place = {storage: i for i, storage in enumerate(used)}
    return Inputs(
        tuple(inputs.storages[i] for i in used),
        tuple(msgspec.structs.replace(value, storage=place[value.storage]) for value in values),
        (),
    )
