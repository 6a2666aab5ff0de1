"""`Program`: the one form in which a tensor program is generated, interpreted, compiled, stored, reduced and printed.

A program is in *memory form*. A `Storage` is a flat allocation. A `Value` is one tensor object, as geometry on a storage,
so aliasing is known exactly and never guessed from an operator's name. A `Call` is one ATen overload: a view op computes
an address only; an in-place op returns the `Value` that it wrote. One that changes what a tensor is (`transpose_`, `set_`) returns a new
value, the same tensor object under its new geometry, and the value that it took is gone. Everything is immutable and
hashable.
"""

from __future__ import annotations

import hashlib
import math
from functools import cached_property, lru_cache
from pathlib import PurePath
from typing import Any

import msgspec
import torch

from executor.args import Arg, collect, constant, refs
from executor.errors import ProgramError
from executor.facts import Access, own_access
from executor.geometry import CACHED, Footprint, Overlap, overlap
from executor.once import once

FORMAT = "aliasfuzz.program"
VERSION = 1


class Iota(msgspec.Struct, frozen=True, gc=False, tag="iota"):
    """Initial contents start, start + 1, ..., begun anew every `period` elements if that is not 0.

    For bool: whether each of those numbers is divisible by 3. For complex dtypes the imaginary part counts backwards.
    """

    dtype: str
    start: int = 1
    period: int = 0


class Literal(msgspec.Struct, frozen=True, gc=False, tag="literal"):
    """Initial contents written out, for small constants; complex numbers, infinities and NaN as Python prints them."""

    dtype: str
    values: tuple[bool | int | float | str, ...]


Fill = Iota | Literal


# Nothing of a storage is left out: msgspec knows defaults by identity, and equal programs must have equal digests.
class Storage(msgspec.Struct, frozen=True, gc=False):
    """A flat allocation of `nbytes` bytes. `fill` is None for a storage that a call of the program allocates."""

    nbytes: int
    fill: Fill | None = None
    device: str = "cpu"


class Value(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One tensor object: where it lies on which storage. Strides and offset count elements of `dtype`.

    `conj` and `neg` are torch's lazy conjugate and negative bits.
    """

    storage: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    conj: bool = False
    neg: bool = False

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch's object."""
        return constant(self.dtype)  # type: ignore[no-any-return]

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return itemsize(self.dtype)

    @property
    def footprint(self) -> Footprint:
        """The addresses that this value touches, relative to its storage."""
        return _footprint(self)

    def meets(self, other: Value) -> bool:
        """Whether the two have memory in common."""
        return self.storage == other.storage and overlap(self.footprint, other.footprint) is not Overlap.NO_ALIAS

    @property
    def end(self) -> int:
        """The byte of the storage after the last one that this value touches; 0 if it has no elements."""
        if not self.numel:
            return 0
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.itemsize


class Source(msgspec.Struct, frozen=True, gc=False):
    """The line of the user's program that made a call."""

    file: str
    line: int


class Call(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """One ATen overload ("aten.add_.Tensor") with its arguments and the values that it returns.

    `results` holds one index per returned tensor, lists flattened. It is empty for a call that eager refuses. A call that
    changes a tensor's metadata has one, a value that is new, also if the operator returns nothing. `no_grad`: it runs
    under `torch.no_grad()`, which shows where an input requires grad.
    """

    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...] = ()
    results: tuple[int, ...] = ()
    source: Source | None = None
    no_grad: bool = False

    @once
    def operands(self) -> tuple[int, ...]:
        """Indices of the values among the arguments, in order."""
        found: list[int] = []
        collect(self.args, found)
        if self.kwargs:
            collect([arg for _, arg in self.kwargs], found)
        return tuple(found)

    @once
    def own_access(self) -> Access:
        """What the call does to memory if none of its results is a view; see `executor.facts.access`."""
        return own_access(self)


class Param(msgspec.Struct, frozen=True, gc=False):
    """A named parameter: a tree whose `Ref` leaves are input values; its other leaves are what the caller must pass."""

    name: str
    value: Arg


class Inputs(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to call a program: storages with contents, and one value on them for each input, in parameter order.

    `twins` are pairs of positions in `values`, the later one first, that are one tensor object passed twice.

    `leaves` and `rooted` are the positions of inputs that require grad, ascending; no position is in both, and twins are
    in the same or in neither. A leaf is a leaf of autograd's graph, on the storage's memory but no view to autograd. A
    rooted input is none: the storage's memory holds `root.clone()` for a hidden leaf `root`, and each rooted input there
    is a view of that clone, to autograd too.
    """

    storages: tuple[Storage, ...]
    values: tuple[Value, ...]
    twins: tuple[tuple[int, int], ...] = msgspec.field(default_factory=lambda: ())  # never omitted, for old digests
    leaves: tuple[int, ...] = ()
    rooted: tuple[int, ...] = ()


class Backward(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the caller goes backward from what a call gave, where inputs require grad.

    Results are the outputs and then the inputs, counted in a row. Each output that is part of the graph, and each such input
    that the call wrote, gets a cotangent of small integers that depend on `seed`, but for those that are `left_out`.
    `functional`: by `torch.autograd.grad`, instead of `backward()`, which accumulates in `grad`. `passes`: how many times; the
    graph is retained for all but the last. `apart`: each result has a pass of its own. `written`: before that, the caller
    adds 1 to the tensor among the results at this position, counted round.
    """

    seed: int = 0
    left_out: tuple[int, ...] = ()
    functional: bool = False
    passes: int = 1
    apart: bool = False
    written: int | None = None


class Program(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A tensor program in memory form.

    Each tensor that the parameters hold is a value of its own, also where the caller passes one object twice (`twins`,
    see `Inputs`, as for `leaves` and `rooted`). `constants` are values on storages with `Literal` contents that exist anew at the start of each run.
    `raises` names the exception with which eager refuses the last call, if it does. `backward` is how its caller goes
    backward, None for once from all results.
    """

    storages: tuple[Storage, ...]
    values: tuple[Value, ...]
    params: tuple[Param, ...]
    calls: tuple[Call, ...]
    outputs: Arg
    twins: tuple[tuple[int, int], ...] = ()
    constants: tuple[int, ...] = ()
    raises: str | None = None
    leaves: tuple[int, ...] = ()
    rooted: tuple[int, ...] = ()
    backward: Backward | None = None

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Indices of the values that the parameters hold, in order."""
        return tuple(i for param in self.params for i in refs(param.value))

    @cached_property
    def entry(self) -> Inputs:
        """The inputs that this program was made for."""
        values = tuple(self.values[i] for i in self.inputs)
        used = sorted({value.storage for value in values})
        place = {storage: i for i, storage in enumerate(used)}
        return Inputs(
            tuple(self.storages[i] for i in used),
            tuple(msgspec.structs.replace(value, storage=place[value.storage]) for value in values),
            self.twins,
            self.leaves,
            self.rooted,
        )

    @cached_property
    def digest(self) -> str:
        """Sixty-four hex digits that depend on the program alone, not on source lines, process or platform."""
        return hashlib.sha256(msgspec.json.encode(self.without_sources())).hexdigest()

    def without_sources(self) -> Program:
        """This program with its calls' source lines dropped."""
        if not any(call.source for call in self.calls):
            return self
        calls = tuple(msgspec.structs.replace(call, source=None) for call in self.calls)
        return msgspec.structs.replace(self, calls=calls)

    def to_json(self) -> bytes:
        """This program as JSON. Source files keep only their names, so that it says nothing of a machine's folders."""
        calls = tuple(
            call
            if call.source is None
            else msgspec.structs.replace(call, source=Source(PurePath(call.source.file).name, call.source.line))
            for call in self.calls
        )
        program = msgspec.structs.replace(self, calls=calls)
        return msgspec.json.encode({"format": FORMAT, "version": VERSION, "program": program})

    @classmethod
    def from_json(cls, data: bytes | str) -> Program:
        """The program that `to_json` wrote. Raises `ProgramError` saying which field is wrong."""
        try:
            envelope = msgspec.json.decode(data, type=_Envelope)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProgramError(f"this is no program in JSON: {error}") from error
        if envelope.format != FORMAT:
            raise ProgramError(f"format is {envelope.format!r}; a program has {FORMAT!r}")
        if envelope.version != VERSION:
            raise ProgramError(f"version is {envelope.version}; this release reads {VERSION}: upgrade aliasfuzz")
        try:
            return msgspec.json.decode(envelope.program, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProgramError(f"this is no program in JSON: in program: {error}") from error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Interprets this program in eager on the caller's tensors. See `executor.interpreter.call`."""
        from executor import interpreter

        return interpreter.call(self, args, kwargs)

    def __str__(self) -> str:
        from executor import printing

        return printing.function(self)


class _Envelope(msgspec.Struct):
    format: str
    version: int
    program: msgspec.Raw


@lru_cache(maxsize=CACHED)
def _footprint(value: Value) -> Footprint:
    """Made once: a footprint is asked for many times on a program's way through the passes."""
    return Footprint(value.itemsize, value.shape, value.strides, value.offset, value.dtype, value.conj, value.neg)


@lru_cache(maxsize=64)
def itemsize(dtype: str) -> int:
    """Bytes per element of the dtype with this name."""
    return int(constant(dtype).itemsize)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The row-major strides that torch gives a fresh tensor of this shape, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))
