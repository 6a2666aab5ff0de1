"""Dead calls and common subexpressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from executor.args import Ref, exactly, refs, rename
from executor.builder import renamed
from executor.facts import facts
from executor.memory_ssa import MemorySSA

if TYPE_CHECKING:
    from executor.program import Call, Program, Value


def dead_calls(program: Program) -> Program:
    """The same program without the calls whose results nobody uses and that write nothing."""
    used = set(refs(program.outputs))
    kept: list[Call] = []
    for call in reversed(program.calls):
        if call.own_access.writes or not used.isdisjoint(call.results):
            kept.append(call)
            used.update(call.operands)
    if len(kept) == len(program.calls):
        return program
    return msgspec.structs.replace(program, calls=tuple(reversed(kept)))


def common_subexpressions(program: Program) -> Program:
    """The same program with calls that compute the same from the same computed once.

    Two reads of memory are the same only if the same writes reach both. Fresh tensors that are returned, or written
    later, stay apart: eager gives each its own memory. So do the results of views that are returned: each is an object.
    """
    memory = MemorySSA.of(program)
    apart = set(refs(program.outputs)).union(program.inputs)
    seen: dict[tuple[object, ...], Call] = {}
    new: dict[int, int] = {}
    calls: list[Call] = []
    for i, original in enumerate(program.calls):
        what = memory.accesses[i]
        call = renamed(original, new)
        if not what.writes and not facts(call.op).uninitialised and call.results:
            exact = exactly((*call.args, *(arg for _, arg in call.kwargs)))
            key = (call.op, call.args, call.kwargs, _versions(memory, i), len(call.results), exact)
            earlier = seen.setdefault(key, call)
            if earlier is not call and not _kept_apart(memory, earlier, call, apart):
                new.update(zip(call.results, earlier.results, strict=True))
                continue
        calls.append(call)
    if len(calls) == len(program.calls):
        return program
    return msgspec.structs.replace(
        program,
        calls=tuple(calls),
        values=_rehomed(memory, new),
        outputs=rename(program.outputs, lambda i: Ref(new.get(i, i))),
    )


def _versions(memory: MemorySSA, number: int) -> tuple[tuple[int, ...], ...]:
    """For each value that a call reads in memory, the writes that it sees."""
    reaching = memory.reaching_writes()
    reads = memory.accesses[number].reads
    return tuple(
        [tuple([write.seq for write, _ in reaching.get((number, v), ())]) for v in reads if memory.is_memory(v)]
    )


def _kept_apart(memory: MemorySSA, earlier: Call, call: Call, objects: set[int]) -> bool:
    """Whether somebody can tell the second call's results from the first one's: their memory, or the tensor objects."""
    values = memory.program.values
    for first, second in zip(earlier.results, call.results, strict=True):
        if second in objects:
            return True
        for home, maker in (
            (values[first].storage, memory.maker.get(first)),
            (values[second].storage, memory.maker.get(second)),
        ):
            if memory.owner.get(home) == maker and home in memory.memory:
                return True
        home = values[second].storage
        if home in memory.returned and memory.owner.get(home) == memory.maker.get(second):
            return True
    return False


def _rehomed(memory: MemorySSA, new: dict[int, int]) -> tuple[Value, ...]:
    """The values; views of what was merged lie on the memory that is left."""
    values = memory.program.values
    homes: dict[int, int] = {}

    def home(storage: int) -> int:
        while storage in homes:
            storage = homes[storage]
        return storage

    for gone, left in new.items():  # in program order: what a view was taken of has been merged before
        one, other = home(values[gone].storage), home(values[left].storage)
        if one != other:
            homes[one] = other
    return tuple(msgspec.structs.replace(v, storage=home(v.storage)) if v.storage in homes else v for v in values)
