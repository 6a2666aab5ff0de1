"""Builds a `Program` call by call while the calls really run on small CPU tensors.

Running them is how geometry is known exactly: eager itself lays out every result and refuses what it refuses. Both the
tracer and the strategies record through this one class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from executor.args import Arg, List, Ref, Tuple, to_arg
from executor.errors import TraceError
from executor.interpreter import returned
from executor.memory import literal, value_of
from executor.program import Call, Param, Program, Source, Storage, Value
from executor.schema import changes_metadata, op_name

LITERAL_LIMIT = 4096  # elements of a constant that a program may hold


class Recorder:
    """The storages, values and calls so far. `tensors[i]` is the live tensor of value i.

    A call that changes a tensor's metadata makes a new value of it; `current` tells which value a tensor is now.
    """

    def __init__(self) -> None:
        self.storages: list[Storage] = []
        self.values: list[Value] = []
        self.calls: list[Call] = []
        self.constants: list[int] = []
        self.tensors: list[torch.Tensor] = []
        self.refused: BaseException | None = None
        self.grad = False  # whether an input requires grad
        self.name: Callable[[torch.Tensor], str] | None = None  # what a tensor that nobody knows is, in words
        self._index: dict[int, int] = {}
        self._homes: dict[int, int] = {}
        self._left: list[torch.UntypedStorage] = []  # by tensors; kept, so that their addresses stay unique

    def input(self, tensor: torch.Tensor, storage: Storage) -> int:
        """Registers an input; `storage` describes the memory that it lies on, if that is new. Returns its index."""
        home = self._homes.setdefault(tensor.untyped_storage()._cdata, len(self.storages))
        if home == len(self.storages):
            self.storages.append(storage)
        self.grad = self.grad or tensor.requires_grad
        return self._add(tensor, home)

    def constant(self, tensor: torch.Tensor) -> int:
        """Registers a literal tensor that the program makes itself. Returns its index."""
        count = tensor.untyped_storage().nbytes() // tensor.itemsize
        if count > LITERAL_LIMIT:
            raise TraceError(f"a constant of {count} elements (at most {LITERAL_LIMIT}): pass it as an argument")
        self.storages.append(Storage(tensor.untyped_storage().nbytes(), literal(tensor), str(tensor.device)))
        home = self._homes[tensor.untyped_storage()._cdata] = len(self.storages) - 1
        index = self._add(tensor, home)
        self.constants.append(index)
        return index

    def call(self, op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Runs an operator on live tensors, records the call, and returns what the operator returned."""
        return self.record(op, args, kwargs, None)

    def record(
        self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], source: Source | None
    ) -> Any:
        """`call` with the arguments apart and a source line. A refusal is recorded too, and raised."""
        name = op_name(op)
        no_grad = self.grad and not torch.is_grad_enabled()
        given = tuple([to_arg(arg, self.ref) for arg in args])
        named = tuple([(key, to_arg(arg, self.ref)) for key, arg in kwargs.items()])
        changed = changes_metadata(name)
        if changed:
            _check_change(name, args)
            self._left.append(args[0].untyped_storage())
        try:
            out = op(*args, **kwargs)
        except Exception as error:
            self.calls.append(Call(name, given, named, (), source, no_grad))
            self.refused = error
            raise
        if changed:
            del self._index[id(args[0])]
        results = tuple([self._result(tensor) for tensor in returned(name, args, out)])
        self.calls.append(Call(name, given, named, results, source, no_grad))
        return out

    def refuse(
        self, op: torch._ops.OpOverload, args: Sequence[Arg], kwargs: Mapping[str, Arg], error: Exception
    ) -> None:
        """Records a call that eager refused with this error."""
        self.calls.append(Call(op_name(op), tuple(args), tuple(kwargs.items())))
        self.refused = error

    def home(self, tensor: torch.Tensor) -> int | None:
        """The storage that the tensor lies on, if the program knows it."""
        return self._homes.get(tensor.untyped_storage()._cdata)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether this very tensor object is a value of the program."""
        return id(tensor) in self._index

    def current(self, index: int) -> int:
        """The value that the tensor object of this value is now: another one if a call has changed its metadata."""
        return self._index[id(self.tensors[index])] if self._left else index

    def ref(self, tensor: torch.Tensor) -> Ref:
        """The reference to a tensor that this program made or was given.

        Autograd makes tensor objects of its own: for what it kept, and where it makes a view of a base anew. Such a one is the
        value that lies as it does, or a new view.
        """
        known = self._index.get(id(tensor))
        if known is None:
            if tensor.untyped_storage()._cdata in self._homes:
                return Ref(self._like(tensor))
            shape = "x".join(map(str, tensor.shape)) or "0-d"
            who = "a tensor" if self.name is None else self.name(tensor)
            raise TraceError(
                f"{who} from outside the function ({shape}, {tensor.dtype}) is used: pass it as an argument"
            )
        return Ref(known)

    def program(
        self,
        params: Sequence[Param],
        outputs: Arg = None,
        twins: Sequence[tuple[int, int]] = (),
        *,
        leaves: Sequence[int] = (),
        rooted: Sequence[int] = (),
    ) -> Program:
        """What was recorded, as a program."""
        raises = type(self.refused).__name__ if self.refused is not None else None
        return Program(
            tuple(self.storages),
            tuple(self.values),
            tuple(params),
            tuple(self.calls),
            outputs,
            tuple(twins),
            tuple(self.constants),
            raises,
            tuple(leaves),
            tuple(rooted),
        )

    def _like(self, tensor: torch.Tensor) -> int:
        geometry = value_of(tensor, self._home(tensor))
        near = [i for i, value in enumerate(self.values) if value.storage == geometry.storage]
        same = next((i for i in reversed(near) if self.values[i] == geometry), None)
        if same is not None:
            return same
        base = self._of_kind(geometry, near)
        sizes, strides = List(geometry.shape), List(geometry.strides)
        return self._view("aten.as_strided.default", tensor, Ref(base), sizes, strides, geometry.offset)

    def _of_kind(self, geometry: Value, near: Sequence[int]) -> int:
        """One of the values `near` that has this dtype and these lazy bits, or a view of one that has."""
        alike = [i for i in near if self.values[i].dtype == geometry.dtype]
        if not alike:
            raise TraceError("a tensor that no operator made lies, as another dtype, on the memory of another one")
        lazy = geometry.conj, geometry.neg
        found = next((i for i in alike if (self.values[i].conj, self.values[i].neg) == lazy), alike[0])
        with torch.no_grad():
            if self.values[found].conj is not geometry.conj:
                found = self._view("aten._conj.default", self.tensors[found].conj(), Ref(found))
            if self.values[found].neg is not geometry.neg:
                found = self._view("aten._neg_view.default", torch._neg_view(self.tensors[found]), Ref(found))
        return found

    def _view(self, op: str, tensor: torch.Tensor, *args: Arg) -> int:
        """Records the view that makes this tensor, which nobody knew."""
        index = self._add(tensor, self._home(tensor))
        self.calls.append(Call(op, args, results=(index,)))
        return index

    def _home(self, tensor: torch.Tensor) -> int:
        return self._homes[tensor.untyped_storage()._cdata]

    def _add(self, tensor: torch.Tensor, home: int) -> int:
        index = self._index[id(tensor)] = len(self.values)
        self.values.append(value_of(tensor, home))
        self.tensors.append(tensor)  # keeps the object and its storage alive, so ids and addresses stay unique
        return index

    def _result(self, tensor: torch.Tensor) -> int:
        known = self._index.get(id(tensor))
        if known is not None:
            return known
        storage = tensor.untyped_storage()
        home = self._homes.get(storage._cdata)
        if home is None:
            home = self._homes[storage._cdata] = len(self.storages)
            self.storages.append(Storage(storage.nbytes(), None, str(tensor.device)))
        return self._add(tensor, home)


def _check_change(name: str, args: Sequence[Any]) -> None:
    """Raises `TraceError` for a call that would make a storage longer, which has one size, or read one as another dtype."""
    if name.startswith("aten.set_.source_Tensor") and args[0].dtype is not args[1].dtype:
        raise TraceError("it sets a tensor to one of another dtype, which is not supported")
    if name.startswith("aten.resize_"):
        tensor, size = args[0], args[1]
        count = size.numel() if isinstance(size, torch.Tensor) else math.prod(size)
        if (tensor.storage_offset() + count) * tensor.itemsize > tensor.untyped_storage().nbytes():
            raise TraceError("it makes the tensor's storage longer, which is not supported")


def outputs_tree(outputs: Sequence[int]) -> Arg:
    """The outputs tree of a program that returns these values as a tuple."""
    return Tuple(tuple(Ref(i) for i in outputs))
