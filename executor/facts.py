"""What the compiler knows about an operator, computed once: which arguments it touches, and its out-of-place form."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch

from executor.args import refs
from executor.schema import effects, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from executor.program import Call, Value

UPDATE_ALIASES = "aliasfuzz.update_aliases.default"

_library = torch.library.Library("aliasfuzz", "DEF")
_library.define("update_aliases(Tensor[] aliases) -> ()")
_library.impl("update_aliases", lambda _aliases: None, "CompositeExplicitAutograd")

# Operators that look at an argument's shape, dtype and strides only, although the schema says nothing of it.
_METADATA = frozenset({
    "empty_like", "zeros_like", "ones_like", "full_like", "new_empty", "new_zeros", "new_ones", "new_full",
    "new_empty_strided", "update_aliases",
})  # fmt: skip
_UNINITIALISED = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
# In-place operators whose result doesn't depend on what was there; the passes write their values out.
CONSTANT_WRITES = frozenset({"aten.fill_.Scalar", "aten.zero_.default"})
COPIES = frozenset({"aten.copy_.default", "aten.fill_.Tensor"})
# Out-of-place results that a fuser may hand out as their argument's own memory.
MOVES = frozenset({"clone", "contiguous", "_to_copy", "lift_fresh_copy", "alias_copy", "view_copy", "_reshape_copy",
                   "expand_copy", "permute_copy", "slice_copy", "reshape", "_unsafe_view"})  # fmt: skip


class Facts(NamedTuple):
    """One operator overload.

    `written` and `only_written` are argument names; `in_place`: it writes its first argument, a tensor, and nothing else.
    `views`: a result may be an address computed from an argument; `may_view`: then the call does nothing else.
    `metadata`: it looks at no element. `uninitialised`: its result has no contents. `move`: its result holds its first
    argument's elements. `single`: it returns one tensor, not a list. `functional` is the overload that computes what this
    one writes, if there is one.
    """

    written: frozenset[str]
    only_written: frozenset[str]
    in_place: bool
    views: bool
    may_view: bool
    metadata: bool
    uninitialised: bool
    move: bool
    single: bool
    functional: str | None


class Access(NamedTuple):
    """Indices of the values that a call reads and writes (each once), and whether it only computes addresses."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    address: bool


@lru_cache(maxsize=4096)
def facts(op: str) -> Facts:
    """What the operator of this name does."""
    effect = effects(op)
    packet = op.split(".")[1]
    metadata, uninitialised = packet in _METADATA, packet in _UNINITIALISED
    return Facts(
        effect.writes,
        effect.only_written,
        _is_in_place(op),
        effect.views,
        effect.views and not (effect.writes or metadata or uninitialised),
        metadata,
        uninitialised,
        packet in MOVES,
        _is_single(op),
        _functional(op) if effect.writes else None,
    )


def _is_in_place(op: str) -> bool:
    arguments = resolve(op)._schema.arguments
    return bool(arguments) and effects(op).writes == {arguments[0].name} and str(arguments[0].type) == "Tensor"


def _is_single(op: str) -> bool:
    returns = resolve(op)._schema.returns
    return len(returns) == 1 and str(returns[0].type) == "Tensor"


def access(values: Sequence[Value], call: Call) -> Access:
    """What a call does to memory. A view that had to copy (`reshape`) reads; any other only computes an address."""
    viewed = facts(call.op).may_view and call.results and call.operands
    if viewed and {values[i].storage for i in call.results} == {values[call.operands[0]].storage}:
        return _ADDRESS
    return call.own_access


_ADDRESS = Access((), (), address=True)


def own_access(call: Call) -> Access:
    """What a call does to memory if none of its results is a view."""
    known = facts(call.op)
    if known.in_place and call.args:
        read = call.operands[1:] if known.only_written else call.operands
        return Access(tuple(dict.fromkeys(read)), call.operands[:1], address=False)
    if known.written:
        return _mixed_access(call, known)
    if known.uninitialised or known.metadata:
        return Access((), (), address=known.uninitialised)
    return Access(tuple(dict.fromkeys(call.operands)), (), address=False)


def _mixed_access(call: Call, known: Facts) -> Access:
    reads: dict[int, None] = {}
    writes: dict[int, None] = {}
    for name, arg in (*zip(effects(call.op).names, call.args, strict=False), *call.kwargs):
        for i in refs(arg):
            if name in known.written:
                writes[i] = None
            if name not in known.only_written:
                reads[i] = None
    return Access(tuple(reads), tuple(writes), address=False)


def loads(calls: Iterable[Call], values: Sequence[Value], wanted: Iterable[int]) -> set[int]:
    """The values outside these calls that they read to compute those that are wanted."""
    reads = {
        values[r].storage: what.reads
        for call in calls
        if not (what := access(values, call)).address
        for r in call.results
    }
    found: set[int] = set()
    seen: set[int] = set()
    left = list(wanted)
    while left:
        v = left.pop()
        home = values[v].storage
        if home not in reads:
            found.add(v)
        elif home not in seen:
            seen.add(home)
            left += reads[home]
    return found


def _functional(op: str) -> str | None:
    """The overload that returns what `op` writes into its only written argument, and takes the others as they are."""
    schema = resolve(op)._schema
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    packet, overload = op.split(".")[1:]
    if len(written) != 1 or len(schema.returns) != 1 or effects(op).writes != {written[0].name}:
        return None
    if not written[0].is_out:
        if not packet.endswith("_") or schema.arguments[0].name != written[0].name:
            return None
        packet = packet[:-1]
    overloads = getattr(torch.ops.aten, packet).overloads() if hasattr(torch.ops.aten, packet) else []
    names = [f"aten.{packet}.{name}" for name in sorted(overloads, key=lambda name: (name != overload, name))]
    wanted = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    return next((name for name in names if _computes(name, wanted)), None)


def _computes(op: str, arguments: list[tuple[str, str]]) -> bool:
    """Whether `op` takes these arguments, writes none of them and returns one new tensor."""
    schema = resolve(op)._schema
    fresh = all(a.alias_info is None for a in (*schema.arguments, *schema.returns)) and not effects(op).writes
    return fresh and len(schema.returns) == 1 and [(a.name, str(a.type)) for a in schema.arguments] == arguments
