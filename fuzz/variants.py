"""Further calls of one compiled function: with fresh data, and with inputs that lie or alias otherwise.

A compiler that caches by shapes alone answers the second call with the first one's code; so does one that knows which
inputs share a storage, but not how they lie on it, or with which strides, or which are one object. In the end the
first two calls are made again: what ran in the meantime must not matter, nor that a compiler may do better for what runs
often.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from executor.memory import fill_tensor
from executor.program import Inputs, Iota, Literal, Program, Storage, Value, itemsize
from executor.targets import Target

WRITTEN_OUT = 10_000  # elements of a storage, at most, whose contents are written out


def calls(program: Program, compiler: Target) -> tuple[Inputs, ...]:
    """Further ways to call the program: other contents, and other alias patterns if the compiler takes them.

    A program whose last call eager refuses is called in no other layout: there eager may not see that the call's operands
    overlap, and what it does then depends on the order of its loops. Nor is one with so many elements that they are not
    written out.
    """
    limits, entry = compiler.limits, program.entry
    if not limits.later_calls:
        return ()
    if any(_count(storage) > WRITTEN_OUT for storage in entry.storages):
        return later(entry), entry
    if program.raises is not None:
        return backwards(entry), entry, backwards(entry)
    other = realias(entry) if limits.aliased_inputs and limits.overlapping_inputs else None
    apart = spread(entry) if limits.aliased_inputs and limits.displaced_inputs else None
    # What `as_strided` gives would lie to the rest in another way.
    wide = stretched(entry) if not any(call.op.startswith("aten.as_strided") for call in program.calls) else None
    ways = (backwards(entry), parted(entry), other, apart, wide, entry, backwards(entry))
    return tuple(inputs for inputs in ways if inputs is not None)


def later(inputs: Inputs) -> Inputs:
    """The same layout with contents that begin one later, where they are a ramp."""
    storages = (
        msgspec.structs.replace(storage, fill=msgspec.structs.replace(storage.fill, start=storage.fill.start + 1))
        if isinstance(storage.fill, Iota)
        else storage
        for storage in inputs.storages
    )
    return msgspec.structs.replace(inputs, storages=tuple(storages))


def _count(storage: Storage) -> int:
    """How many elements a storage has, of the dtype that it was filled with."""
    return storage.nbytes // itemsize(storage.fill.dtype) if storage.fill is not None else 0


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
    return _laid(inputs, storages, values) if max(copies, default=0) > 1 else None


def parted(inputs: Inputs) -> Inputs | None:
    """The same memory, where what was one tensor passed twice is two. None if there is no such tensor."""
    return msgspec.structs.replace(inputs, twins=()) if inputs.twins else None


def stretched(inputs: Inputs) -> Inputs | None:
    """The same shapes, storages and overlaps, but with all strides and offsets twice as long.

    So inputs have elements between theirs, which nothing should touch. Storages that hold several dtypes stay as they are;
    None if all do.
    """
    wide = {k for k in range(len(inputs.storages)) if _one_dtype(inputs, k)}
    if not wide:
        return None
    storages = tuple(_doubled(storage) if k in wide else storage for k, storage in enumerate(inputs.storages))
    values = tuple(
        msgspec.structs.replace(value, strides=tuple(2 * step for step in value.strides), offset=2 * value.offset)
        if value.storage in wide
        else value
        for value in inputs.values
    )
    return msgspec.structs.replace(inputs, storages=storages, values=values)


def _one_dtype(inputs: Inputs, storage: int) -> bool:
    """Whether a storage was filled with elements of the one dtype that all inputs read there."""
    fill = inputs.storages[storage].fill
    return fill is not None and {value.dtype for value in inputs.values if value.storage == storage} == {fill.dtype}


def _doubled(storage: Storage) -> Storage:
    fill = _literal(storage)
    assert fill is not None, "asked of storages with contents"
    pairs = zip(fill.values, fill.values[::-1], strict=True)
    literal = Literal(fill.dtype, tuple(value for pair in pairs for value in pair))
    return msgspec.structs.replace(storage, nbytes=2 * len(fill.values) * itemsize(fill.dtype), fill=literal)


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
        return _laid(inputs, [inputs.storages[value.storage] for value in values], copies)
    for k, value in enumerate(values):
        for j, other in enumerate(values[:k]):
            if other.dtype == value.dtype != "int64" and other.shape == value.shape and other.strides == value.strides:
                moved = (*values[:k], msgspec.structs.replace(value, storage=j, offset=other.offset), *values[k + 1 :])
                return _without_unused(inputs, moved)
    return None


def _without_unused(inputs: Inputs, values: Sequence[Value]) -> Inputs:
    used = sorted({value.storage for value in values})
    place = {storage: i for i, storage in enumerate(used)}
    moved = [msgspec.structs.replace(value, storage=place[value.storage]) for value in values]
    return _laid(inputs, [inputs.storages[i] for i in used], moved)


def _laid(inputs: Inputs, storages: Sequence[Storage], values: Sequence[Value]) -> Inputs:
    """The same inputs on other storages, each a tensor object of its own."""
    return msgspec.structs.replace(inputs, storages=tuple(storages), values=tuple(values), twins=())
