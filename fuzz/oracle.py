"""The oracle: compares everything that a caller can observe after a run with what eager left.

Values are compared bit for bit, except that NaN equals NaN and -0.0 equals 0.0. Not compared: strides of dimensions of
size one and of empty tensors, and where in its own fresh storage a single output begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from executor.memory import Memory, dtype_name
from fuzz.gradients import UNCLEAR
from fuzz.runs import Run, Timeout

# From the symptom that says most to the one that says least.
SYMPTOMS = ("crash", "memory-limit", "timeout", "exception", "no-exception", "structure", "dtype", "shape", "value",
            "memory", "guard", "backward-exception", "no-backward-exception", "gradient", "autograd", "alias", "state",
            "identity", "strides", "count")  # fmt: skip


_WIDER = {
    torch.complex32: torch.complex64,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e4m3fnuz: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.float8_e5m2fnuz: torch.float32,
}


class Mismatch(NamedTuple):
    """One difference: which symptom it is, where it shows, and eager's and the compiler's side of it in words."""

    symptom: str
    where: str
    expected: str
    actual: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.symptom}: {self.where}: expected {self.expected}, got {self.actual}"


Close = Callable[[int, torch.Tensor, torch.Tensor], bool]
"""Whether tensor k is close enough, of the outputs, the storages, the inputs and the gradients in a row: the expected one, then
the actual."""


def compare(
    eager: Run,
    compiled: Run,
    *,
    mixed: Collection[int] = (),
    undefined: bool = False,
    close: Close | None = None,
) -> list[Mismatch]:
    """The differences between two runs of one program on equal memory, worst symptom first.

    `mixed` are the storages that hold elements of several dtypes, compared as bytes. `undefined` says that the program
    may write memory in any order before eager refuses it. `close` judges floating-point tensors instead of equality.
    """
    found = [*_errors(eager, compiled), *_changes(eager, compiled)]
    # An input that lies elsewhere now, or nowhere, cannot be read; after an error there is nothing to compare.
    if not any(mismatch.symptom != "state" or mismatch.detail == LAYOUT for mismatch in found):
        if eager.error is None:
            found += _outputs(eager, compiled, close)
            found += _moved(eager, compiled, close)
        if not undefined:
            found += _memory(eager.memory, compiled.memory, frozenset(mixed), close, len(eager.leaves))
    return sorted(found, key=lambda mismatch: SYMPTOMS.index(mismatch.symptom))


def _errors(eager: Run, compiled: Run) -> Iterator[Mismatch]:
    return _raised("", "the run", eager.error, compiled.error)


def _raised(kind: str, where: str, eager: BaseException | None, compiled: BaseException | None) -> Iterator[Mismatch]:
    if isinstance(compiled, Timeout):
        yield Mismatch("timeout", where, "a result", str(compiled))
    elif compiled is not None and not _alike(eager, compiled):
        expected = brief(eager) if eager else "no exception"
        yield Mismatch(f"{kind}exception", where, expected, brief(compiled), theme(compiled))
    elif eager is not None and compiled is None:
        yield Mismatch(f"no-{kind}exception", where, brief(eager), "no exception", type(eager).__name__)


def compare_backward(
    eager: Run,
    compiled: Run,
    *,
    mixed: Collection[int] = (),
    close: Close | None = None,
    none_gradients: bool = True,
    refusing: bool = True,
) -> list[Mismatch]:
    """The differences in what two runs that did alike up to then left of autograd, and of memory afterwards.

    Gradients are compared where the caller went backward from the same results. Without `none_gradients`, zeros may stand for
    a gradient that is None; unless `refusing`, there may be gradients where eager refuses to go backward. For the rest see `compare`.
    """
    one, other = eager.passed, compiled.passed
    if one is None or other is None:
        return []
    found = [
        Mismatch("autograd", name, here, there, f"{here}, not {there}")
        for (name, here), (_, there) in zip(one.states, other.states, strict=False)
        if here != there and UNCLEAR not in here
    ]
    if one.roots == other.roots:
        errors = list(_raised("backward-", "going backward", one.error, other.error))
        errors = errors if refusing or other.error is not None else []
        found += [*errors, *_changes(eager, compiled)]
        if one.error is None and not errors:
            found += _gradients(eager, compiled, close, none=none_gradients)
            later = [*_outputs(eager, compiled, close), *_memory(eager.memory, compiled.memory, frozenset(mixed), close,
                                                                 len(eager.leaves))]  # fmt: skip
            found += [mismatch._replace(where=f"{mismatch.where} after going backward") for mismatch in later]
    return sorted(found, key=lambda mismatch: SYMPTOMS.index(mismatch.symptom))


def refused_at_once(eager: Run, compiled: Run) -> bool:
    """Whether a compiler that makes forward and backward together refuses in the call what eager refuses going backward."""
    return eager.passed is not None and eager.passed.error is not None and _alike(eager.passed.error, compiled.error)


def _gradients(eager: Run, compiled: Run, close: Close | None, *, none: bool) -> Iterator[Mismatch]:
    assert eager.passed is not None, "both went backward"
    assert compiled.passed is not None, "both went backward"
    first = len(eager.leaves) + len(eager.memory.bases) + len(eager.memory.tensors)
    pairs = zip(eager.passed.gradients, compiled.passed.gradients, strict=True)
    for k, ((where, expected), (_, actual)) in enumerate(pairs, first):
        if none or expected is not None or actual is None or bool(actual.any()):
            yield from _gradient(where, k, expected, actual, close)


def _gradient(
    where: str, k: int, expected: torch.Tensor | None, actual: torch.Tensor | None, close: Close | None
) -> Iterator[Mismatch]:
    """Strides are not compared: autograd promises none."""
    if expected is None or actual is None:
        if expected is not actual:
            here, there = ("none" if side is None else "a gradient" for side in (expected, actual))
            yield Mismatch("gradient", where, here, there, f"{here}, not {there}")
    elif (expected.dtype, expected.shape) != (actual.dtype, actual.shape) or not is_dense(actual):
        yield Mismatch("gradient", where, _described(expected), _described(actual))
    elif not same_values(expected, actual) and not (close and _inexact(expected) and close(k, expected, actual)):
        yield Mismatch("gradient", _at(where, first_difference(expected, actual)), *_pair(expected, actual))


def _described(tensor: torch.Tensor) -> str:
    return f"{kind_of_leaf(tensor)} {tuple(tensor.shape)} of {dtype_name(tensor.dtype)}"


def _changes(eager: Run, compiled: Run) -> Iterator[Mismatch]:
    for name in compiled.changed:
        if name not in eager.changed:
            yield Mismatch("state", name, "no change", "a change that outlives the run", name)
    if not set(compiled.moved) <= set(eager.moved):
        yield Mismatch("state", LAYOUT, "no change", "a change that outlives the run", LAYOUT)


LAYOUT = "an input's layout"


def _alike(eager: BaseException | None, compiled: BaseException | None) -> bool:
    """Whether an exception is of the kind that eager raised, perhaps wrapped by the compiler."""
    while compiled is not None:
        if eager is not None and isinstance(compiled, type(eager)):
            return True
        compiled = compiled.__cause__ or getattr(compiled, "inner_exception", None)
    return False


def theme(error: BaseException) -> str:
    """What an exception is about: its type and the first words of its message, without what depends on the program."""
    text = _VARIABLE.sub(" ", " ".join(str(error).split())[:_LOOKED_AT])
    words = [word for word in text.split() if word.strip(",:;!?").isalpha()][:_WORDS]
    return f"{type(error).__name__}: {' '.join(words)}".rstrip(" :,")


_LOOKED_AT, _WORDS = 300, 7
# What is quoted or in brackets.
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\([^)]*\)|\[[^]]*\]|\{[^}]*\}|<[^>]*>")


def brief(error: BaseException | None) -> str:
    """An exception in at most some 200 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) <= 200 else text[:197] + '...'}"


def _outputs(eager: Run, compiled: Run, close: Close | None) -> Iterator[Mismatch]:
    kinds = [kind_of_leaf(leaf) for leaf in eager.leaves]
    others = [kind_of_leaf(leaf) for leaf in compiled.leaves]
    if eager.structure != compiled.structure or kinds != others:
        yield Mismatch("structure", "outputs", f"{eager.structure} of {kinds}", f"{compiled.structure} of {others}")
        return
    for k, (expected, actual) in enumerate(zip(eager.leaves, compiled.leaves, strict=True)):
        where = f"output {k}" if len(kinds) > 1 else "output"
        if isinstance(expected, torch.Tensor):
            yield from _tensor(where, k, expected, actual, close)
        elif not same_objects(expected, actual):
            yield Mismatch("value", where, repr(expected), repr(actual))
    yield from _topology(eager, compiled)


def _moved(eager: Run, compiled: Run, close: Close | None) -> Iterator[Mismatch]:
    """Differences in the inputs whose metadata eager changes: they are results, too, as long as all can be compared."""
    count, names = len(eager.leaves) + len(eager.memory.bases), [f"input {k}" for k in eager.moved]
    pairs = [(eager.memory.tensors[k], compiled.memory.tensors[k]) for k in eager.moved]
    for k, where, (expected, actual) in zip(eager.moved, names, pairs, strict=True):
        if not is_dense(actual):
            yield Mismatch("structure", where, "Tensor", kind_of_leaf(actual))
            return
        yield from _tensor(where, count + k, expected, actual, close)
    for where, here, there in zip(
        names, _places_of(eager, eager.moved), _places_of(compiled, eager.moved), strict=True
    ):
        if here != there:
            yield Mismatch("alias", where, here, there)
            return


def _places_of(run: Run, inputs: Sequence[int]) -> list[str]:
    """Where these inputs lie, as `places` says of outputs."""
    if not inputs:
        return []
    leaves = [leaf for leaf in run.leaves if isinstance(leaf, torch.Tensor) and is_dense(leaf)]
    return places(run._replace(leaves=(*leaves, *[run.memory.tensors[k] for k in inputs])))[len(leaves) :]


def same_objects(a: Any, b: Any) -> bool:
    """Whether two results of one type that are no tensors are equal, as far as their type can tell."""
    if getattr(type(a), "__eq__") is object.__eq__:  # noqa: B009 - mypy takes the plain spelling to be never so
        return True
    if isinstance(a, float | complex):
        return bool(a == b or (a != a and b != b))
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    try:
        return bool(a == b)
    except Exception:  # noqa: BLE001 - a list of tensors, of a class of its own: an equality that fails tells nothing
        return True


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor has strides and contents, so that it can be compared."""
    return tensor.layout == torch.strided and not (tensor.is_meta or tensor.is_nested or tensor.is_quantized)


def kind_of_leaf(leaf: Any) -> str:
    """What kind of object one output is, in words that are equal for what can be compared."""
    if not isinstance(leaf, torch.Tensor):
        return type(leaf).__name__
    if is_dense(leaf):
        return "Tensor"
    what = "nested" if leaf.is_nested else "quantized" if leaf.is_quantized else "meta" if leaf.is_meta else leaf.layout
    return f"Tensor ({what})"


def _tensor(
    where: str, k: int, expected: torch.Tensor, actual: torch.Tensor, close: Close | None
) -> Iterator[Mismatch]:
    if expected.dtype != actual.dtype:
        yield Mismatch("dtype", where, dtype_name(expected.dtype), dtype_name(actual.dtype))
        return
    if expected.shape != actual.shape:
        yield Mismatch("shape", where, str(tuple(expected.shape)), str(tuple(actual.shape)))
        return
    if not same_values(expected, actual) and not (close and _inexact(expected) and close(k, expected, actual)):
        yield Mismatch("value", _at(where, first_difference(expected, actual)), *_pair(expected, actual))
    if steps(expected) != steps(actual):
        yield Mismatch("strides", where, str(expected.stride()), str(actual.stride()))


def _inexact(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def comparable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, widened without loss if its dtype is one that torch cannot compare."""
    wide = _WIDER.get(tensor.dtype)
    return tensor if wide is None else tensor.to(wide)


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one dtype and shape hold equal elements, NaN equal to NaN."""
    a, b = comparable(a), comparable(b)
    if torch.equal(a, b):
        return True
    return bool(((a == b) | ((a != a) & (b != b))).all())


def first_difference(a: torch.Tensor, b: torch.Tensor) -> tuple[int, ...]:
    """The index of the first element, in row-major order, in which two tensors of one shape differ."""
    a, b = comparable(a), comparable(b)
    wrong = ~((a == b) | ((a != a) & (b != b)))
    return tuple(int(i) for i in wrong.nonzero()[0])


def _pair(expected: torch.Tensor, actual: torch.Tensor) -> tuple[str, str]:
    at = first_difference(expected, actual)
    return str(expected[at].item()), str(actual[at].item())


def _at(where: str, index: tuple[int, ...]) -> str:
    return f"{where}[{', '.join(map(str, index))}]" if index else where


def steps(tensor: torch.Tensor) -> tuple[tuple[int, int], ...]:
    """(size, stride) of the dimensions whose stride means something."""
    if not tensor.numel():
        return ()
    return tuple((n, step) for n, step in zip(tensor.shape, tensor.stride(), strict=True) if n > 1)


def _topology(eager: Run, compiled: Run) -> Iterator[Mismatch]:
    expected, actual = places(eager), places(compiled)
    for k, (here, there) in enumerate(zip(expected, actual, strict=True)):
        if here != there:
            yield Mismatch("alias", f"output {k}" if len(expected) > 1 else "output", here, there)
            return
    names, others = identities(eager), identities(compiled)
    for k, (one, other) in enumerate(zip(names, others, strict=True)):
        if one != other:
            yield Mismatch("identity", f"output {k}" if len(names) > 1 else "output", one, other)
            return


def places(run: Run) -> list[str]:
    """Where each output tensor lies: on which input's storage, or beside which earlier output, at which byte."""
    fresh: dict[int, tuple[int, int]] = {}
    found = []
    for k, leaf in enumerate(run.leaves):
        if not isinstance(leaf, torch.Tensor) or not leaf.numel():
            found.append("no memory")
            continue
        home = run.memory.locate(leaf)
        if home is not None:
            found.append(f"on storage {home} at byte {leaf.data_ptr() - run.memory.bases[home].data_ptr()}")
            continue
        owner, start = fresh.setdefault(leaf.untyped_storage().data_ptr(), (k, leaf.data_ptr()))
        found.append(
            "memory of its own"
            if owner == k
            else f"on the storage of output {owner}, {leaf.data_ptr() - start} bytes further"
        )
    return found


def identities(run: Run) -> list[str]:
    """For each output, the input or earlier output that it is the same Python object as, if any."""
    names: dict[int, str] = {}
    for k, tensor in enumerate(run.memory.tensors):
        names.setdefault(id(tensor), f"the object of input {k}")
    return [
        names.setdefault(id(leaf), f"the object of output {k}") if isinstance(leaf, torch.Tensor) else "no tensor"
        for k, leaf in enumerate(run.leaves)
    ]


def _memory(
    eager: Memory, compiled: Memory, mixed: frozenset[int], close: Close | None, first: int
) -> Iterator[Mismatch]:
    for i in range(len(eager.bases)):
        expected, actual = eager.contents(i), compiled.contents(i)
        if np.array_equal(expected, actual):
            continue
        if expected.shape != actual.shape:  # it was resized
            yield Mismatch("memory", f"storage {i}", f"{len(expected)} bytes", f"{len(actual)} bytes")
            continue
        base, other = eager.bases[i], compiled.bases[i]
        if i in mixed or base.nbytes < len(expected):
            base, other = torch.from_numpy(expected), torch.from_numpy(actual)
        yield from _storage(i, base, other, close, first)
    for i in compiled.damaged():
        yield Mismatch("guard", f"storage {i}", "no write outside it", "bytes beside it overwritten")


def _storage(
    i: int, expected: torch.Tensor, actual: torch.Tensor, close: Close | None, first: int
) -> Iterator[Mismatch]:
    if same_values(expected, actual) or (close and _inexact(expected) and close(first + i, expected, actual)):
        return
    yield Mismatch("memory", _at(f"storage {i}", first_difference(expected, actual)), *_pair(expected, actual))
