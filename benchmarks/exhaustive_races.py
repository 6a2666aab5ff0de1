"""The verifier against every small program: what it accepts equals eager under every schedule, exhaustively.

    python -m benchmarks.exhaustive_races [--step N [--first K]]

Programs of 2 calls over 2 storages of 4 elements and of 3 calls over 1 storage of 3, on all 1-D views; for each all
partitions into up to two regions with every set of early write-backs, and for each of those all two-round schedules.
Elements are tagged, so no coincidence hides a difference. `--step` looks at every Nth program only, from the Kth on, so
that N processes share the work. Exits with 1 if a partition that the verifier accepts goes wrong; also prints how many
of those that it rejects do.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from executor.args import Ref
from executor.backends.schedules import every_schedule, under
from executor.backends.tagged import Interner, in_program_order
from executor.memory_ssa import MemorySSA
from executor.partition import Partition
from executor.program import Call, Iota, Param, Program, Storage, Value, contiguous_strides
from executor.verify import races

View = tuple[int, int, int]


def views(size: int) -> list[View]:
    """All 1-D views of a storage of so many elements: length, step, start."""
    return [
        (n, step, at)
        for n in range(1, size + 1)
        for step in range(1, size)
        for at in range(size)
        if at + (n - 1) * step < size and (n > 1 or step == 1)
    ]


def small_programs(size: int, storages: int, calls: int) -> Iterator[Program]:
    """Every program of so many calls `target.copy_(-source)` on 1-D views, target and source of one length.

    The first target lies on the first storage: the others are the same with storages renamed.
    """
    values = [Value(s, "float32", (n,), (step,), at) for s in range(storages) for n, step, at in views(size)]
    pairs = [(t, s) for t, a in enumerate(values) for s, b in enumerate(values) if a.shape == b.shape]
    for chosen in itertools.product(pairs, repeat=calls):
        if values[chosen[0][0]].storage == 0:
            yield _program(values, chosen, storages, size)


def _program(values: list[Value], chosen: tuple[tuple[int, int], ...], storages: int, size: int) -> Program:
    used = sorted({v for pair in chosen for v in pair})
    place = {v: i for i, v in enumerate(used)}
    own = [values[v] for v in used]
    allocations = [Storage(4 * size, Iota("float32")) for _ in range(storages)]
    body: list[Call] = []
    for target, source in chosen:
        own.append(Value(len(allocations), "float32", values[source].shape, contiguous_strides(values[source].shape)))
        allocations.append(Storage(own[-1].end))
        body.append(Call("aten.neg.default", (Ref(place[source]),), (), (len(own) - 1,)))
        body.append(Call("aten.copy_.default", (Ref(place[target]), Ref(len(own) - 1)), (), (place[target],)))
    params = tuple(Param(f"x{i}", Ref(i)) for i in range(len(used)))
    return Program(tuple(allocations), tuple(own), params, tuple(body), None)


def partitions(program: Program) -> Iterator[Partition]:
    """Every partition into up to two regions in which data flows upwards, each with every set of early write-backs."""
    count = len(program.calls)
    for levels in itertools.product((0, 1), repeat=count):
        if min(levels) == 1 or any(levels[i + 1] < levels[i] for i in range(0, count, 2)):
            continue
        stores = [i for i in range(1, count, 2) if levels[i] == levels[i - 1]]
        for size in range(len(stores) + 1):
            for early in itertools.combinations(stores, size):
                yield Partition(program, levels, (True, False) * (count // 2), frozenset(early))


class Outcome(NamedTuple):
    """How many partitions were accepted, rejected, and how many of each went wrong."""

    accepted: int = 0
    accepted_wrong: int = 0
    rejected: int = 0
    rejected_wrong: int = 0


def judge(programs: Iterable[Program], *, precision: bool = True) -> Outcome:
    """Runs all partitions of the programs under all schedules; the rejected ones only for `precision`."""
    counts = [0, 0, 0, 0]
    for program in programs:
        memory, ids = MemorySSA(program), Interner()
        wanted = in_program_order(program, ids)
        for found in partitions(program):
            rejected = next(races(found, memory), None) is not None
            counts[2 * rejected] += 1
            if not rejected or precision:
                counts[2 * rejected + 1] += any(under(found, ids, how) != wanted for how in every_schedule(found))
    return Outcome(*counts)


def main() -> int:
    """Prints a row for each family of programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--precision", action="store_true", help="run the rejected partitions too")
    options = parser.parse_args()
    failed = 0
    for size, storages, calls in ((3, 1, 3), (4, 2, 2)):
        start = time.monotonic()
        found = judge(
            itertools.islice(small_programs(size, storages, calls), options.first, None, options.step),
            precision=options.precision,
        )
        failed += found.accepted_wrong
        print(
            f"{calls} calls over {storages} storages of {size}: {found} in {time.monotonic() - start:.0f} s", flush=True
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
