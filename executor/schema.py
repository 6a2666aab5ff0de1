"""What a call reads and writes, from its operator's schema and the corrections in `schema_fixes`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch._ops import OpOverload

import executor.functions  # noqa: F401 (defines operators)
from executor.args import Arg, refs
from executor.errors import ProgramError
from executor.schema_fixes import HIDDEN_VIEWS, HIDDEN_WRITES, OVERWRITES, SET_DATA

if TYPE_CHECKING:
    from executor.program import Call, Program


class Effects(NamedTuple):
    """What an operator does to its arguments, by their names.

    `writes`: arguments whose memory is written. `only_written`: those of them that are not read. `views`: whether some
    result is an address computed from an argument, with no element read. `metadata`: whether it changes what its first
    argument is, and touches no element at all.
    """

    names: tuple[str, ...]
    writes: frozenset[str]
    only_written: frozenset[str]
    views: bool
    metadata: bool


class Accesses(NamedTuple):
    """Indices of the values whose elements a call reads and writes, each index once, in argument order."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]


@lru_cache(maxsize=4096)
def resolve(name: str) -> OpOverload:
    """The operator of this name ("aten.add_.Tensor").

    Raises `ProgramError` if torch has none.
    """
    parts = name.split(".")
    if len(parts) != 3:
        raise ProgramError(f"{name!r} names no operator overload; one looks like 'aten.add_.Tensor'")
    namespace, packet, overload = parts
    found = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
    if not isinstance(found, OpOverload) or str(found) != name:
        raise ProgramError(f"torch {torch.__version__} has no operator {name!r}")
    return found


@lru_cache(maxsize=4096)
def op_name(op: OpOverload) -> str:
    """The name that `resolve` takes."""
    return str(op)


@lru_cache(maxsize=4096)
def changes_metadata(name: str) -> bool:
    """Whether the operator of this name gives its first argument another shape, strides, offset or storage in place."""
    return torch.Tag.inplace_view in resolve(name).tags or name == SET_DATA


@lru_cache(maxsize=4096)
def effects(name: str) -> Effects:
    """What the operator of this name does to its arguments."""
    schema = resolve(name)._schema
    names = tuple(argument.name for argument in schema.arguments)
    if changes_metadata(name):
        return Effects(names, frozenset(), frozenset(), views=True, metadata=True)
    declared = {a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write}
    outs = {a.name for a in schema.arguments if a.is_out}
    writes = declared | outs | set(HIDDEN_WRITES.get(name, ()))
    only_written = outs | ({names[0]} if name in OVERWRITES else set())
    views = name in HIDDEN_VIEWS or any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    return Effects(names, frozenset(writes), frozenset(only_written), views, metadata=False)


def bound(call: Call) -> tuple[tuple[str, Arg], ...]:
    """The call's arguments with their schema names, in order. Raises `ProgramError` for more than the schema takes."""
    names = effects(call.op).names
    if len(call.args) > len(names):
        raise ProgramError(f"{call.op} takes {len(names)} arguments, not {len(call.args)}")
    return (*zip(names, call.args, strict=False), *call.kwargs)


def accesses(program: Program, call: Call) -> Accesses:
    """The values of `program` that `call` reads and writes.

    A view op reads nothing, and neither does one that changes a tensor's metadata. An operator that may return either a view or a copy (`reshape`) reads when it copied, which
    the program records as a result on a storage of its own.
    """
    effect = effects(call.op)
    if effect.metadata:
        return Accesses((), ())
    reads: dict[int, None] = {}
    writes: dict[int, None] = {}
    homes = {program.values[i].storage for i in call.results} if effect.views else set()
    for name, arg in bound(call):
        for i in refs(arg):
            if name in effect.writes:
                writes[i] = None
            if name not in effect.only_written and program.values[i].storage not in homes:
                reads[i] = None
    return Accesses(tuple(reads), tuple(writes))
