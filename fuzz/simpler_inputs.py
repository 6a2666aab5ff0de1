"""Steps of the reducer on inputs: fewer, shorter, of lower rank, and more plainly laid out and filled."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import msgspec

from executor.args import Arg, Ref, refs, rename
from executor.program import Inputs, Iota, Literal, Program, Value, contiguous_strides, itemsize
from fuzz.rewriting import compact, renamed, rerecord, with_inputs_left

PLAIN_RAMP = 64  # bytes of a storage up to which a ramp needs no period to stay exact in any dtype


def fewer_inputs(program: Program) -> Iterator[Program]:
    """Programs without one parameter that nothing uses, or in which no tensor is passed twice."""
    if program.twins:
        yield msgspec.structs.replace(program, twins=())
    used = {i for call in program.calls for i in call.operands} | set(refs(program.outputs))
    for param in program.params if len(program.params) > 1 else ():
        held = set(refs(param.value))
        if not used.isdisjoint(held) or held == set(program.inputs):
            continue
        kept = tuple(other for other in program.params if other is not param)
        left = [k for k, index in enumerate(program.inputs) if index not in held]
        yield compact(msgspec.structs.replace(with_inputs_left(program, left), params=kept))


def merged_inputs(program: Program) -> Iterator[Program]:
    """Programs in which one input stands for another that lies in the same place, or in a like place elsewhere."""
    for later, earlier in combinations(reversed(program.inputs), 2):
        one, other = program.values[earlier], program.values[later]
        if (one.shape, one.dtype, one.strides) == (other.shape, other.dtype, other.strides) and not program.twins:
            yield from _standing_in(program, later, earlier)


def _standing_in(program: Program, gone: int, stand_in: int) -> Iterator[Program]:
    if not any(gone in refs(param.value) for param in program.params if isinstance(param.value, Ref)):
        return

    def new(index: int) -> Arg:
        return Ref(stand_in if index == gone else index)

    left = [k for k, index in enumerate(program.inputs) if index != gone]
    params = tuple(param for param in program.params if param.value != Ref(gone))
    calls = tuple(renamed(call, new) for call in program.calls)
    changed = msgspec.structs.replace(
        with_inputs_left(program, left), params=params, calls=calls, outputs=rename(program.outputs, new)
    )
    candidate = rerecord(changed, changed.entry)
    if candidate is not None:
        yield candidate


def plainer_contents(program: Program) -> Iterator[Program]:
    """Programs in which one storage with contents written out counts up instead, so that it can be cut."""
    for k, storage in enumerate(program.storages):
        if isinstance(storage.fill, Literal) and program.values and k not in _constant_homes(program):
            changed = msgspec.structs.replace(storage, fill=Iota(storage.fill.dtype, 1, 0))
            storages = (*program.storages[:k], changed, *program.storages[k + 1 :])
            yield msgspec.structs.replace(program, storages=storages)


def _constant_homes(program: Program) -> set[int]:
    return {program.values[i].storage for i in program.constants}


def smaller_inputs(program: Program) -> Iterator[Program]:
    """Programs one of whose inputs is shorter, of lower rank, or more plainly laid out and filled."""
    entry = program.entry
    for k, value in enumerate(entry.values):
        for changed in (*_shorter(value), *_flatter(value), *_nearer(value), *_plainly_laid(value, entry)):
            values = (*entry.values[:k], changed, *entry.values[k + 1 :])
            candidate = rerecord(program, _fitted(msgspec.structs.replace(entry, values=values)))
            if candidate is not None and _measure(candidate) < _measure(program):
                yield candidate


def _measure(program: Program) -> tuple[int, int, int, int]:
    """Elements of the inputs, bytes of their storages, their ranks, and how many of them are laid out oddly."""
    entry = program.entry
    odd = sum((value.strides != contiguous_strides(value.shape)) + bool(value.offset) for value in entry.values)
    elements, ranks = sum(value.numel for value in entry.values), sum(len(value.shape) for value in entry.values)
    return elements, sum(storage.nbytes for storage in entry.storages), ranks, odd


def _shorter(value: Value) -> Iterator[Value]:
    for d, n in enumerate(value.shape):
        for length in sorted({1, 2, n - 1}):
            if 0 < length < n:
                yield msgspec.structs.replace(value, shape=(*value.shape[:d], length, *value.shape[d + 1 :]))


def _flatter(value: Value) -> Iterator[Value]:
    """The value without one of its dimensions of size one."""
    for d, n in enumerate(value.shape):
        if n == 1:
            shape, strides = [*value.shape], [*value.strides]
            del shape[d], strides[d]
            yield msgspec.structs.replace(value, shape=tuple(shape), strides=tuple(strides))


def _nearer(value: Value) -> Iterator[Value]:
    """The value nearer to the start of its storage."""
    for offset in sorted({0, 1, value.offset // 2}):
        if offset < value.offset:
            yield msgspec.structs.replace(value, offset=offset)


def _plainly_laid(value: Value, entry: Inputs) -> Iterator[Value]:
    """The value contiguous, if it shares its storage with none; else with plain strides where they mean nothing."""
    plain = contiguous_strides(value.shape)
    if value.conj or value.neg:
        return
    if sum(other.storage == value.storage for other in entry.values) == 1:
        yield msgspec.structs.replace(value, strides=plain, offset=0)
    free = tuple(p if n == 1 else s for n, s, p in zip(value.shape, value.strides, plain, strict=True))
    yield msgspec.structs.replace(value, strides=free if value.numel else plain)


def _fitted(inputs: Inputs) -> Inputs:
    """The same inputs on storages no longer than they need, where the contents can be shortened."""
    storages = list(inputs.storages)
    for k, storage in enumerate(storages):
        end = max(value.end for value in inputs.values if value.storage == k)
        if isinstance(storage.fill, Iota) and not end % itemsize(storage.fill.dtype):
            fill = msgspec.structs.replace(storage.fill, period=0) if end <= PLAIN_RAMP else storage.fill
            storages[k] = msgspec.structs.replace(storage, nbytes=min(end, storage.nbytes), fill=fill)
    return msgspec.structs.replace(inputs, storages=tuple(storages))


def plainer_dtypes(program: Program) -> Iterator[Program]:
    """Programs with one input storage less that is not float32."""
    entry = program.entry
    for k, storage in enumerate(entry.storages):
        held = [value for value in entry.values if value.storage == k]
        dtype = held[0].dtype
        if dtype == "float32" or not isinstance(storage.fill, Iota) or any(value.dtype != dtype for value in held):
            continue
        fill = msgspec.structs.replace(storage.fill, dtype="float32")
        changed = msgspec.structs.replace(storage, nbytes=storage.nbytes // itemsize(dtype) * 4, fill=fill)
        values = tuple(msgspec.structs.replace(v, dtype="float32") if v.storage == k else v for v in entry.values)
        storages = (*entry.storages[:k], changed, *entry.storages[k + 1 :])
        candidate = rerecord(program, msgspec.structs.replace(entry, storages=storages, values=values))
        if candidate is not None:
            yield candidate


def named(program: Program) -> Iterator[Program]:
    """The program with its parameters named in order, if they are not."""
    names = [f"{'abcdefgh'[k]}" if k < 8 else f"p{k}" for k in range(len(program.params))]
    if [param.name for param in program.params] != names:
        params = tuple(msgspec.structs.replace(p, name=name) for p, name in zip(program.params, names, strict=True))
        yield msgspec.structs.replace(program, params=params)
