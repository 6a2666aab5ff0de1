"""Makes a failing program smaller on its own terms: statements out, inputs and outputs dropped, sizes down.

Hypothesis shrinks the draws behind a program, well but in hundreds of runs. This works on the program itself, by delta
debugging (Zeller and Hildebrandt, 2002: chunks of statements, halved while none can go), so that a compiler that takes a
tenth of a second a program still gives a small case in a few seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from executor import memory
from executor.args import Arg, Ref, Tuple, refs, rename, to_python
from executor.interpreter import flatten
from executor.program import Call, Inputs, Iota, Program, Value, contiguous_strides, itemsize
from executor.recorder import Recorder
from executor.schema import effects, resolve
from fuzz.runs import quiet
from fuzz.skeletons import FORMS, Rank, skeletons

PLAIN_RAMP = 64  # bytes of a storage up to which a ramp needs no period to stay exact in any dtype

Fails = Callable[[Program], bool]


def reduce(program: Program, fails: Fails) -> Program:
    """A program that still `fails`, and that none of the steps here can make smaller.

    `program` must fail itself. Steps are tried until none succeeds; each only ever makes the program smaller or plainer.
    """
    rank: Rank = (len(FORMS), 0)
    while True:
        before = program
        program = _fewer_statements(program, fails)
        for step in (_bypassed, _fewer_outputs, _fewer_inputs, _smaller_inputs, _plainer_dtypes, _plainer_calls):
            program = _greedy(program, step, fails)
        if program == before:
            program, rank = _plainest(program, fails, rank)
        if program == before:
            return program


def _plainest(program: Program, fails: Fails, best: Rank) -> tuple[Program, Rank]:
    """The first skeleton of the program that fails and is no longer, of a better rank than the last, with its rank."""
    for rank, candidate in skeletons(program):
        if rank >= best:
            break
        if len(candidate.calls) <= len(program.calls) and fails(candidate):
            return candidate, rank
    return program, best


def _greedy(program: Program, step: Callable[[Program], Iterator[Program]], fails: Fails) -> Program:
    """Takes the first candidate of `step` that fails, again and again."""
    while (smaller := next((candidate for candidate in step(program) if fails(candidate)), None)) is not None:
        program = smaller
    return program


def _fewer_statements(program: Program, fails: Fails) -> Program:
    size = max(len(program.calls) // 2, 1)
    while program.calls:
        smaller = next((c for c in _without_chunks(program, size) if fails(c)), None)
        if smaller is not None:
            program = smaller
        elif size == 1:
            break
        else:
            size //= 2
        size = max(min(size, len(program.calls)), 1)
    return program


def _without_chunks(program: Program, size: int) -> Iterator[Program]:
    for start in reversed(range(0, len(program.calls), size)):
        yield without(program, set(range(start, start + size)))


def without(program: Program, gone: set[int]) -> Program:
    """The program without the calls at these positions and all that need their results.

    Outputs that are gone with them are dropped; if all are, the first input is returned.
    """
    lost: set[int] = set()
    calls: list[Call] = []
    for k, call in enumerate(program.calls):
        if k in gone or not lost.isdisjoint(call.operands):
            lost.update(set(call.results) - set(call.operands))
        else:
            calls.append(call)
    outputs = [i for i in refs(program.outputs) if i not in lost]
    tree = program.outputs if len(outputs) == len(list(refs(program.outputs))) else returning(outputs, program)
    raises = program.raises if calls and not calls[-1].results else None
    return compact(msgspec.structs.replace(program, calls=tuple(calls), outputs=tree, raises=raises))


def returning(outputs: list[int], program: Program) -> Arg:
    """An outputs tree: the one value, a tuple of several, or the first input if there is none."""
    if len(outputs) > 1:
        return Tuple(tuple(Ref(i) for i in outputs))
    return Ref(outputs[0] if outputs else program.inputs[0])


def _bypassed(program: Program) -> Iterator[Program]:
    """Programs in which one call is left out and its operand stands for its result."""
    for k, call in enumerate(program.calls):
        if len(call.results) != 1 or not call.operands or call.results[0] in call.operands:
            continue
        (gone,), stand_in = call.results, call.operands[0]

        def new(index: int, gone: int = gone, stand_in: int = stand_in) -> Arg:
            return Ref(stand_in if index == gone else index)

        calls = tuple(_renamed(other, new) for other in program.calls[:k] + program.calls[k + 1 :])
        changed = msgspec.structs.replace(program, calls=calls, outputs=rename(program.outputs, new))
        candidate = rerecord(changed, program.entry)
        if candidate is not None:
            yield candidate


def _renamed(call: Call, new: Callable[[int], Arg]) -> Call:
    """The call on other values; in-place results follow their operand."""
    args = tuple(rename(arg, new) for arg in call.args)
    kwargs = tuple((name, rename(arg, new)) for name, arg in call.kwargs)
    results = tuple(i for result in call.results for i in refs(new(result)))
    return msgspec.structs.replace(call, args=args, kwargs=kwargs, results=results)


def _fewer_outputs(program: Program) -> Iterator[Program]:
    outputs = list(refs(program.outputs))
    if len(outputs) > 1:
        for i in dict.fromkeys(outputs):
            yield compact(msgspec.structs.replace(program, outputs=Ref(i)))
        for k in range(len(outputs)):
            kept = outputs[:k] + outputs[k + 1 :]
            yield compact(msgspec.structs.replace(program, outputs=returning(kept, program)))


def _fewer_inputs(program: Program) -> Iterator[Program]:
    if program.twins:
        yield msgspec.structs.replace(program, twins=())
    used = {i for call in program.calls for i in call.operands} | set(refs(program.outputs))
    for param in program.params if len(program.params) > 1 else ():
        held = set(refs(param.value))
        if not used.isdisjoint(held) or held == set(program.inputs):
            continue
        kept = tuple(other for other in program.params if other is not param)
        left = [k for k, index in enumerate(program.inputs) if index not in held]
        twins = tuple((left.index(a), left.index(b)) for a, b in program.twins if a in left and b in left)
        yield compact(msgspec.structs.replace(program, params=kept, twins=twins))


def _smaller_inputs(program: Program) -> Iterator[Program]:
    """Programs one of whose inputs is shorter, of lower rank, or more plainly laid out and filled."""
    entry = program.entry
    for k, value in enumerate(entry.values):
        for changed in (*_shorter(value), *_flatter(value), *_plainly_laid(value, entry)):
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


def _plainly_laid(value: Value, entry: Inputs) -> Iterator[Value]:
    """The value contiguous, if it shares its storage with none; else with plain strides where they mean nothing."""
    plain = contiguous_strides(value.shape)
    if value.conj or value.neg:
        return
    if sum(other.storage == value.storage for other in entry.values) == 1:
        yield msgspec.structs.replace(value, strides=plain, offset=0)
    free = tuple(p if n == 1 else s for n, s, p in zip(value.shape, value.strides, plain, strict=True))
    yield msgspec.structs.replace(value, strides=free if value.numel else plain)


def _plainer_dtypes(program: Program) -> Iterator[Program]:
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


def _plainer_calls(program: Program) -> Iterator[Program]:
    """Programs in which one pointwise call became the addition of its other operand, or of 1."""
    for k, call in enumerate(program.calls):
        plain = _plain(program, call)
        for args in _additions(call) if plain is not None else ():
            calls = (*program.calls[:k], Call(plain or "", args, (), call.results), *program.calls[k + 1 :])
            candidate = rerecord(msgspec.structs.replace(program, calls=calls), program.entry)
            if candidate is not None and candidate != program:
                yield candidate


def _plain(program: Program, call: Call) -> str | None:
    """The addition that could stand for a call which returns a tensor shaped like its first operand; None for others."""
    if not call.operands or len(call.results) != 1 or effects(call.op).views:
        return None
    first, result = program.values[call.operands[0]], program.values[call.results[0]]
    if first.shape != result.shape or call.op in ("aten.add.Tensor", "aten.add_.Tensor"):
        return None
    return "aten.add_.Tensor" if call.results[0] == call.operands[0] else "aten.add.Tensor"


def _additions(call: Call) -> Iterator[tuple[Arg, ...]]:
    first, *others = call.operands
    yield Ref(first), 1
    for other in others[:1]:
        yield Ref(first), Ref(other)


def _fitted(inputs: Inputs) -> Inputs:
    """The same inputs on storages no longer than they need, where the contents can be shortened."""
    storages = list(inputs.storages)
    for k, storage in enumerate(storages):
        end = max(value.end for value in inputs.values if value.storage == k)
        if isinstance(storage.fill, Iota) and not end % itemsize(storage.fill.dtype):
            fill = msgspec.structs.replace(storage.fill, period=0) if end <= PLAIN_RAMP else storage.fill
            storages[k] = msgspec.structs.replace(storage, nbytes=min(end, storage.nbytes), fill=fill)
    return msgspec.structs.replace(inputs, storages=tuple(storages))


def rerecord(program: Program, inputs: Inputs) -> Program | None:
    """The same calls on other inputs, with the geometry that eager gives them; None if eager refuses one of them."""
    if program.constants or program.raises:
        return None
    if any(inputs.values[later] != inputs.values[earlier] for later, earlier in inputs.twins):
        return None
    apart = msgspec.structs.replace(inputs, twins=())  # each input is a value of its own
    recorder = Recorder()
    env: list[object] = [None] * len(program.values)
    if any(value.end > inputs.storages[value.storage].nbytes for value in inputs.values):
        return None  # a value that overlapped itself needs more room once it is contiguous
    given: dict[int, int] = {}
    for index, tensor, value in zip(program.inputs, memory.allocate(apart).tensors, inputs.values, strict=True):
        given[index] = recorder.input(tensor, inputs.storages[value.storage])
        env[index] = tensor
    try:
        with quiet():
            for call in program.calls:
                _again(recorder, call, env)
    except (RuntimeError, IndexError, ValueError):
        return None
    place = [recorder.ref(value).index if value is not None else -1 for value in env]  # type: ignore[arg-type]

    def new(index: int) -> Arg:
        return Ref(place[index])

    params = [
        msgspec.structs.replace(param, value=rename(param.value, lambda index: Ref(given[index])))
        for param in program.params
    ]
    return recorder.program(params, rename(program.outputs, new), program.twins)


def _again(recorder: Recorder, call: Call, env: list[object]) -> None:
    args = [to_python(arg, env) for arg in call.args]
    out = recorder.call(resolve(call.op), *args, **{name: to_python(arg, env) for name, arg in call.kwargs})
    for index, tensor in zip(call.results, flatten(out), strict=True):
        env[index] = tensor


def compact(program: Program) -> Program:
    """The same program without values and storages that nothing uses, renumbered in order."""
    used = {*program.inputs, *refs(program.outputs)}
    for call in program.calls:
        used.update(call.operands, call.results)
    constants = tuple(i for i in program.constants if i in used)
    kept = sorted(used)
    place = {index: k for k, index in enumerate(kept)}
    homes = sorted({program.values[i].storage for i in kept})
    home = {index: k for k, index in enumerate(homes)}

    def new(index: int) -> Arg:
        return Ref(place[index])

    return Program(
        storages=tuple(program.storages[i] for i in homes),
        values=tuple(msgspec.structs.replace(program.values[i], storage=home[program.values[i].storage]) for i in kept),
        params=tuple(msgspec.structs.replace(param, value=rename(param.value, new)) for param in program.params),
        calls=tuple(_renamed(call, new) for call in program.calls),
        outputs=rename(program.outputs, new),
        twins=program.twins,
        constants=tuple(place[i] for i in constants),
        raises=program.raises,
    )
