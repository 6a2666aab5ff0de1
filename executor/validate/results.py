"""Checks what a call returns against its operator's schema: how many tensors, and on whose memory they lie."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from executor.args import refs
from executor.schema import bound, resolve
from executor.schema_fixes import HIDDEN_VIEWS
from executor.validate.scope import fail

if TYPE_CHECKING:
    from executor.program import Call
    from executor.validate.scope import Scope


def check_results(where: str, call: Call, scope: Scope) -> None:
    """Raises `ProgramError` for a result that the operator cannot have returned; else defines the results."""
    _check_count(where, call)
    for k, (index, ret) in enumerate(zip(call.results, _returns(call), strict=True)):
        spot = f"{where}: result {k}"
        scope.check_exists(spot, index)
        if ret.alias_info is not None and ret.alias_info.is_write:
            _check_written(spot, call, index, ret)
        elif index in scope.defined and index in call.operands and _is_composite(call.op):
            continue  # `x.contiguous()` may be x itself
        else:
            _check_new(spot, call, index, scope)
            scope.define(spot, index)


def _check_count(where: str, call: Call) -> None:
    """The count is free if the operator returns a list, and may be less if an `output_mask` switches results off."""
    schema = resolve(call.op)._schema
    kinds = [str(ret.type) for ret in schema.returns]
    count = kinds.count("Tensor")
    masked = any(str(argument.type) == "List[bool]" for argument in schema.arguments)
    got = len(call.results)
    if got == count or (got > count and "List[Tensor]" in kinds) or (0 < got < count and masked):
        return
    if not got:
        fail(where, "it has no results", "only a refused last call has none, and then `raises` names the exception")
    fail(where, f"{got} results", f"the operator returns {count} tensors")


def _returns(call: Call) -> list[Any]:
    """What the schema says of each result; lists stand once for each of their tensors."""
    returns = [ret for ret in resolve(call.op)._schema.returns if "Tensor" in str(ret.type)]
    lists = [ret for ret in returns if str(ret.type) == "List[Tensor]"]
    if not lists:
        return returns[: len(call.results)]
    spare = len(call.results) - (len(returns) - len(lists))
    expanded: list[Any] = []
    for ret in returns:
        # Where there are several lists, what is known is only that all results are fresh: no such operator aliases.
        expanded += [ret] * (spare if ret is lists[0] else ret not in lists)
    return expanded


def _check_written(spot: str, call: Call, index: int, ret: Any) -> None:
    names = ret.alias_info.after_set
    schema = {argument.name: argument for argument in resolve(call.op)._schema.arguments}
    written = [
        i for name, arg in bound(call) for i in refs(arg)
        if (info := schema[name].alias_info) is not None and info.is_write and info.after_set == names
    ]  # fmt: skip
    if index not in written:
        fail(spot, f"value {index} is not what was written", f"an in-place call returns its target, value {written[0]}")


def _check_new(spot: str, call: Call, index: int, scope: Scope) -> None:
    """A view lies on the storage of what it views. Anything else lies on a storage of its own."""
    storage = scope.storage(index)
    viewed = _viewed(call, scope)
    if viewed and not _is_composite(call.op):
        if storage not in viewed:
            fail(
                spot, f"value {index} lies on storage {storage}", f"a view lies where its operand does, on {viewed[0]}"
            )
        return
    if storage in scope.homes:
        # A composite operator may return a view or a copy, as `reshape` does, and need not declare it.
        if _is_composite(call.op) and storage in map(scope.storage, call.operands):
            return
        fail(
            spot,
            f"value {index} lies on storage {storage}, where an earlier value lies",
            "a result that is no view has a storage of its own",
        )
    if scope.program.storages[storage].fill is not None:
        fail(spot, f"value {index} lies on storage {storage}, which has a fill", "a call's result has none")


def _viewed(call: Call, scope: Scope) -> list[int]:
    """Storages of the operands of which the operator returns views; empty if it returns none."""
    schema = resolve(call.op)._schema
    if call.op in HIDDEN_VIEWS:
        return [scope.storage(i) for i in refs(call.args[0])]
    if not any(ret.alias_info is not None and not ret.alias_info.is_write for ret in schema.returns):
        return []
    aliased = {argument.name for argument in schema.arguments if argument.alias_info is not None}
    return [scope.storage(i) for name, arg in bound(call) if name in aliased for i in refs(arg)]


@lru_cache(maxsize=4096)
def _is_composite(op: str) -> bool:
    """Whether torch decomposes the operator before it reaches a kernel, so that its schema says little about memory."""
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(resolve(op).name(), key))  # noqa: SLF001 (no public way)
