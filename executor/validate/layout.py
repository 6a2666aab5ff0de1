"""Runs a program once in eager, and checks that each value is what eager lays out."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from executor.args import to_python
from executor.interpreter import returned
from executor.memory import allocate, literal_tensor, value_of
from executor.schema import changes_metadata, resolve
from executor.validate.scope import fail

if TYPE_CHECKING:
    from executor.program import Call, Program, Value


def check_layout(program: Program) -> None:
    """Raises `ProgramError` for the first value whose geometry or storage differs from eager's."""
    memory = allocate(program.entry)
    layout = _Layout(program)
    for position, index in enumerate(program.inputs):
        layout.enter(f"inputs[{position}]", index, memory.tensors[position])
    for position, index in enumerate(program.constants):
        value = program.values[index]
        tensor = literal_tensor(program.storages[value.storage], value)
        layout.enter(f"constants[{position}]", index, tensor)
    for n, call in enumerate(program.calls):
        refused = program.raises is not None and n == len(program.calls) - 1
        layout.run(f"calls[{n}] {call.op}", call, program.raises if refused else None)


class _Layout:
    """The live tensors so far, and which of eager's storages each storage of the program is."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.tensors: list[Any] = [None] * len(program.values)
        self.homes: dict[int, int] = {}  # by the address of torch's storage object
        self.left: list[torch.UntypedStorage] = []  # those that no tensor may keep alive

    def enter(self, where: str, index: int, tensor: torch.Tensor) -> None:
        """Compares a new value with the tensor that eager made for it."""
        value, storage = self.program.values[index], tensor.untyped_storage()
        taken = value.storage in self.homes.values()
        home = self.homes.get(storage._cdata)
        if home is None and taken:
            fail(where, f"value {index} is recorded on storage {value.storage}", "eager gives it a storage of its own")
        if home is not None and home != value.storage:
            fail(where, f"value {index} is recorded on storage {value.storage}", f"in eager it lies on storage {home}")
        nbytes = self.program.storages[value.storage].nbytes
        if home is None and nbytes != storage.nbytes():
            fail(
                where, f"storage {value.storage} is recorded with {nbytes} bytes", f"eager allocates {storage.nbytes()}"
            )
        self.homes[storage._cdata] = value.storage
        laid_out = value_of(tensor, value.storage)
        if laid_out != value:
            fail(where, f"value {index} is recorded as {_geometry(value)}", f"eager lays out {_geometry(laid_out)}")
        self.tensors[index] = tensor

    def run(self, where: str, call: Call, raises: str | None) -> None:
        """Runs a call, and compares its results. `raises` names the exception that eager must raise, if it must."""
        try:
            results = self.call(call)
        except Exception as error:  # noqa: BLE001 (whatever eager raises is the finding)
            if type(error).__name__ != raises:
                fail(where, f"eager raises {type(error).__name__}: {error}", f"recorded is {raises or 'no exception'}")
            return
        if raises is not None:
            fail(where, f"{raises} is recorded", "eager raises nothing")
        if len(results) != len(call.results):
            fail(where, f"{len(call.results)} results are recorded", f"eager returns {len(results)} tensors")
        for k, (index, tensor) in enumerate(zip(call.results, results, strict=True)):
            self.result(f"{where}: result {k}", index, tensor)

    def call(self, call: Call) -> list[torch.Tensor]:
        """What eager returns. A tensor whose metadata changes is no longer the value that it was."""
        args = [to_python(arg, self.tensors) for arg in call.args]
        if changes_metadata(call.op):
            self.left.append(args[0].untyped_storage())
            self.tensors[call.operands[0]] = None
        kwargs = {name: to_python(arg, self.tensors) for name, arg in call.kwargs}
        with torch.no_grad() if call.no_grad else nullcontext():
            return returned(call.op, args, resolve(call.op)(*args, **kwargs))

    def result(self, where: str, index: int, tensor: torch.Tensor) -> None:
        known = self.tensors[index]
        if known is not None and known is not tensor:
            fail(where, f"value {index} is recorded, which exists already", "eager returns another tensor object")
        same = next((i for i, other in enumerate(self.tensors) if other is tensor), None)
        if known is None and same is not None:
            fail(where, f"a new value {index} is recorded", f"eager returns value {same} itself")
        if known is None:
            self.enter(where, index, tensor)


def _geometry(value: Value) -> str:
    bits = (" conj" if value.conj else "") + (" neg" if value.neg else "")
    return f"{value.dtype} {value.shape} with strides {value.strides} and offset {value.offset}{bits}"
