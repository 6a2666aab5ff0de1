"""Further calls of one compiled function: with fresh data, and with inputs that alias otherwise.

A compiler that caches by shapes alone answers the second call with the first one's code; so does one that knows which
inputs share a storage, but not how they lie on it.
"""

from __future__ import annotations

import msgspec

from executor.memory import fill_tensor
from executor.program import Inputs, Iota, Literal, Program, Storage, itemsize
from executor.targets import Target


def calls(program: Program, compiler: Target) -> tuple[Inputs, ...]:
    """Further ways to call the program: other contents, and other alias patterns if the compiler takes them."""
    limits = compiler.limits
    if not limits.later_calls:
        return ()
    other = realias(program.entry) if limits.aliased_inputs and limits.overlapping_inputs else None
    apart = spread(program.entry) if limits.aliased_inputs and limits.displaced_inputs else None
    return (backwards(program.entry), *(inputs for inputs in (other, apart) if inputs is not None))


def backwards(inputs: Inputs) -> Inputs:
    """The same layout with each storage's contents in reverse order."""
    return msgspec.structs.replace(inputs, storages=tuple(_reversed(storage) for storage in inputs.storages))


def _reversed(storage: Storage) -> Storage:
    fill = _literal(storage)
    return (
        msgspec.structs.replace(storage, fill=Literal(fill.dtype, fill.values[::-1])) if fill is not None else storage
    )


def _literal(storage: Storage) -> Literal | None:
    """The contents written out."""
    fill = storage.fill
    if isinstance(fill, Iota):
        flat = fill_tensor(fill, storage.nbytes // itemsize(fill.dtype))
        return Literal(fill.dtype, tuple(repr(v) if isinstance(v, complex) else v for v in flat.tolist()))
    return fill


def spread(inputs: Inputs) -> Inputs | None:
    """The same shapes, strides and storages, but inputs that share a storage have no element in common.

    Each lies on a copy of its storage, every other one with its contents reversed, and these lie one behind the other. So
    who shares with whom is as before, and only offsets tell the difference. None if no two inputs share a storage, or
    the copies would not begin at an element.
    """
    values, copies = list(inputs.values), [0] * len(inputs.storages)
    for k, value in enumerate(values):
        size, rest = divmod(inputs.storages[value.storage].nbytes, itemsize(value.dtype))
        if rest:
            return None
        values[k] = msgspec.structs.replace(value, offset=value.offset + copies[value.storage] * size)
        copies[value.storage] += 1
    storages = tuple(_repeated(storage, n) for storage, n in zip(inputs.storages, copies, strict=True))
    return Inputs(storages, tuple(values)) if max(copies, default=0) > 1 else None


def _repeated(storage: Storage, times: int) -> Storage:
    fill = _literal(storage)
    if times == 1 or fill is None:
        return storage
    values = tuple(v for k in range(times) for v in fill.values[:: -1 if k % 2 else 1])
    return msgspec.structs.replace(storage, nbytes=storage.nbytes * times, fill=Literal(fill.dtype, values))


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
