"""Checks a call that changes what a tensor is: the value that it takes is gone, and the one that it returns is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from executor.args import Ref
from executor.schema_fixes import SET_DATA
from executor.validate.scope import fail

if TYPE_CHECKING:
    from executor.program import Call
    from executor.validate.scope import Scope

_PART_OF_SOURCE = "aten.set_.source_Tensor_storage_offset"
_SOURCES = frozenset({"aten.set_.source_Tensor", _PART_OF_SOURCE, SET_DATA})


def check_change(where: str, call: Call, scope: Scope) -> None:
    """Raises `ProgramError` for a result that the operator cannot have returned; else it takes its operand's place."""
    if len(call.results) != 1:
        fail(
            where,
            f"{len(call.results)} results",
            "it changes a tensor's metadata, and returns that tensor as a new value",
        )
    index, operand = call.results[0], call.args[0]
    spot = f"{where}: result 0"
    if not isinstance(operand, Ref):
        fail(where, "it changes no value", "its first argument is the tensor that it changes")
    scope.check_exists(spot, index)
    if scope.is_twin(operand.index):
        fail(where, "it changes a tensor that is passed twice", "the other parameter's value would change unseen")
    if call.op in _SOURCES:
        _check_source(spot, call, index, scope)
    elif call.op == "aten.set_.default":
        if scope.storage(index) in scope.homes:
            fail(spot, f"value {index} lies on storage {scope.storage(index)}", "it has an empty storage of its own")
    elif scope.storage(index) != scope.storage(operand.index):
        fail(
            spot,
            f"value {index} lies on storage {scope.storage(index)}",
            f"its tensor stays on {scope.storage(operand.index)}",
        )
    scope.define(spot, index)
    scope.replace(operand.index, index)


def _check_source(spot: str, call: Call, index: int, scope: Scope) -> None:
    """What takes another tensor's place in memory lies as that one does."""
    source, found = call.args[1], scope.program.values[index]
    if not isinstance(source, Ref):
        fail(spot, "its source is no value", "it takes the place of a tensor")
    wanted = msgspec.structs.replace(scope.program.values[source.index], conj=found.conj, neg=found.neg)
    if call.op == _PART_OF_SOURCE:
        wanted = msgspec.structs.replace(wanted, shape=found.shape, strides=found.strides, offset=found.offset)
    if found != wanted:
        fail(spot, f"value {index} is {found}", f"it lies as its source does: {wanted}")
