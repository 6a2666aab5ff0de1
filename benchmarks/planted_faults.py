"""How fast the harness finds and shrinks faults that are planted in the pipeline on purpose.

    python -m benchmarks.planted_faults [--seconds 20] [--shrink 40] [FAULT]...

Each fault is a classic mistake of an alias analysis, switched on by replacing one function. Prints a row a fault:
seconds until the first failure, to how many statements and inputs the program was shrunk in how many seconds, and what
failed. Exits with 1 if a fault wasn't found, or not shrunk to four statements.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec
import torch

import executor.guards
import executor.jit
from executor import executable, geometry, memory_ssa, partition, pipeline
from executor.args import Arg
from executor.builder import Builder
from executor.facts import operand_list
from executor.geometry import Footprint, Overlap
from executor.memory_ssa import MemorySSA, Reach, State
from executor.passes import functional, writeback
from executor.pipeline import Aliases
from executor.printing import function
from executor.program import Call, Program, Value, contiguous_strides
from executor.targets.base import Target
from executor.targets.pipeline import Pipeline
from fuzz.batch import Batch
from fuzz.campaign import batch_seed, judge
from strategies.programs import programs

Patches = tuple[tuple[Any, str, Any], ...]
_footprint, _overlap, _reaching = memory_ssa.footprint, geometry.overlap, State.reaching
_guard, _is_dead = executor.guards.guard, writeback._is_dead
_out_of_place, _run = functional.out_of_place, executable.Executable.run


def _everywhere(changed: Callable[[Footprint], Footprint]) -> Patches:
    def footprint(value: Value) -> Footprint:
        return changed(_footprint(value))

    return ((memory_ssa, "footprint", footprint),)


def _without_partial(read: Footprint, write: Footprint) -> Overlap:
    found = _overlap(read, write)
    return Overlap.NO_ALIAS if found is Overlap.PARTIAL else found


def _same_shape_is_identical(state: State, value: int) -> list[Reach]:
    found = _reaching(state, value)
    geometry = state.values[value]
    index = state._index.get(geometry.storage)
    for write in index.meeting(0, 1 << 60) if index is not None and not found else ():
        other = state.values[write.value]
        if (other.shape, other.dtype) == (geometry.shape, geometry.dtype):
            return [Reach(write, Overlap.MUST_ALIAS)]
    return found


def _newest_missed(state: State, value: int) -> list[Reach]:
    found = _reaching(state, value)
    return found[1:] or found


def _fixed(memory: MemorySSA, number: int) -> int | None:
    """`MemorySSA.stored` without its look at the dtype."""
    call, values = memory.program.calls[number], memory.program.values
    if call.op != "aten.copy_.default":
        return None
    target, source = operand_list(call)
    plain = values[source].storage not in memory.memory and values[source].shape == values[target].shape
    return source if plain else None


def _no_hazards(memory: MemorySSA) -> Iterator[set[int]]:
    for needed, what in zip(_dependences(memory), memory.accesses, strict=True):
        yield {i for i in needed if what.writes or not memory.accesses[i].writes}


_dependences = partition.dependences


def _slices_are_dead(memory: MemorySSA, store: int) -> bool:
    target = memory.program.values[memory.accesses[store].writes[0]]
    return _is_dead(memory, store) or bool(target.offset)


def _stale_stores(program: Program) -> Program:
    """Of two stores to one value, the second stores what the first did."""
    lowered, calls = _out_of_place(program), list[Call]()
    first: dict[tuple[int, ...], Arg] = {}
    for call in lowered.calls:
        if call.op == "aten.copy_.default":
            stale = first.setdefault(call.results, call.args[1])
            calls.append(msgspec.structs.replace(call, args=(call.args[0], stale)))
        else:
            calls.append(call)
    return msgspec.structs.replace(lowered, calls=tuple(calls))


def _views_as_copies(self: executable.Executable, inputs: Sequence[torch.Tensor]) -> Any:
    out = _run(self, inputs)
    given = {id(tensor) for tensor in inputs}
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t if id(t) in given else t.clone(), out)


def _guard_without_aliases(args: tuple[Any, ...], kwargs: Any) -> tuple[Any, list[torch.Tensor]]:
    key, tensors = _guard(args, kwargs)
    assert isinstance(key, tuple)
    return tuple(part[2:4] + part[5:] if isinstance(part, tuple) and len(part) == 9 else part for part in key), tensors


FAULTS: dict[str, Patches] = {
    "storage offset ignored": _everywhere(lambda found: replace(found, offset=0)),
    "strides ignored": _everywhere(lambda found: replace(found, strides=contiguous_strides(found.shape))),
    "partial overlap taken for none": ((memory_ssa, "overlap", _without_partial),),
    "disjoint taken for identical": ((State, "reaching", _same_shape_is_identical),),
    "a reaching write missed": ((State, "reaching", _newest_missed),),
    "forwarding without the cast": ((Builder, "cast", lambda _self, value, *_: value), (MemorySSA, "stored", _fixed)),
    "barrier dropped": ((partition, "dependences", _no_hazards), (pipeline, "verify", lambda *_: None)),
    "write-back forgotten": ((writeback, "_is_dead", _slices_are_dead),),
    "write-back of a stale value": ((pipeline, "out_of_place", _stale_stores),),
    "alias returned as a copy": ((executable.Executable, "run", _views_as_copies),),
    "cache key without the alias pattern": ((executor.jit, "guard", _guard_without_aliases),),
    "dtype size ignored": ((Footprint, "bounds", property(lambda f: (f.start // f.itemsize, f.stop // f.itemsize))),),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Switches a fault on."""
    with ExitStack() as stack:
        for owner, attribute, wrong in FAULTS[name]:
            stack.enter_context(patch.object(owner, attribute, wrong))
        memory_ssa._last = None
        yield
    memory_ssa._last = None


class Faulty(Target):
    """Our pipeline, or a stage of it, with one fault."""

    needs_source = False

    def __init__(self, fault: str, sound: Target | None = None) -> None:
        aliases: Aliases = "barrier" if fault == "barrier dropped" else "auto"
        self.fault, self.sound = fault, sound or Pipeline(f"pipeline with: {fault}", "weak_memory", aliases)
        self.name, self.limits, self.fine_stages = self.sound.name, self.sound.limits, self.sound.fine_stages
        self.stages = {
            stage: self if part is self.sound else Faulty(fault, part) for stage, part in self.sound.stages.items()
        }

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        """See `Target.compile`."""
        compiled = self.sound.compile(fn, example_args)

        def run(*args: Any, **kwargs: Any) -> Any:
            with planted(self.fault):
                return compiled(*args, **kwargs)

        return run


def hunt(name: str, seconds: float, shrink: float, seed: int = 0) -> tuple[Batch, float, float]:
    """The batch that found the fault (or the last one), seconds until then, and seconds of shrinking."""
    target = Faulty(name)
    strategy = programs(target.limits)
    start, number, found_at = time.monotonic(), 0, 0.0

    def judged(program: Program) -> Any:
        nonlocal found_at
        result = judge(target, own)(program)
        if not result.ok and not found_at:
            found_at = time.monotonic()
        return result

    while True:
        own = batch_seed(seed, target.name, 0, number)
        batch = Batch(judged, start + seconds, shrink, target=target)
        batch.run(strategy, own)
        number += 1
        if batch.smallest is not None or time.monotonic() > start + seconds:
            return batch, (found_at or time.monotonic()) - start, time.monotonic() - (found_at or time.monotonic())


def statements(program: Program) -> int:
    """Statements of the printed function, its return aside."""
    return len(function(program).splitlines()) - 2


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", default=list(FAULTS), metavar="FAULT")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--shrink", type=float, default=40.0)
    options = parser.parse_args()
    missed = 0
    print(f"{'fault':36} {'found after s':>13} {'statements':>10} {'inputs':>6} {'shrunk in s':>11}  symptom")
    for name in options.faults:
        batch, found, shrunk = hunt(name, options.seconds, options.shrink)
        small = batch.smallest
        missed += small is None or statements(small) > 4
        if small is None or batch.verdict is None:
            print(f"{name:36} {'not found':>13}")
            continue
        row = f"{name:36} {found:13.1f} {statements(small):10} {len(small.params):6} {shrunk:11.1f}"
        print(f"{row}  {', '.join(batch.verdict.symptoms)}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
