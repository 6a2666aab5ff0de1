"""What the strategies reach of what torch has, and of what a program may be like.

    python -m benchmarks.coverage [--programs 100000] [--seed 0]

Draws so many programs and runs none. Lists what torch's own schemas say that there is: operators that view, that write in
place, that write lists, and that change metadata in place; then `out=` overloads, dtypes, ranks and sizes, how inputs lie,
dependences, patterns and shapes of use. Of each: what was reached how often, and what never. Left out are operators that the
rules of `Left` exclude, and those that LIMITATIONS.md names under "Operators that are not drawn". Exits with 1 if anything
else was never reached.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.forms import FORMS
from executor.program import Program
from executor.schema import resolve
from executor.schema_fixes import SET_DATA
from fuzz.coverage import APART, OVERLAPPING, lie
from fuzz.hazards import KINDS, RELATIONS, hazards
from strategies import patterns, usage
from strategies.dtypes import KNOWN
from strategies.programs import drawn

LIMITATIONS = Path(__file__).resolve().parents[1] / "LIMITATIONS.md"
_HEADING = "## Operators that are not drawn"
_DENSE = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")


class Left:
    """Which operators are left out, and why."""

    def __init__(self) -> None:
        section = LIMITATIONS.read_text(encoding="utf-8").split(_HEADING)[1].split("\n## ")[0]
        self.named = frozenset(re.findall(r"`([\w.]+)`", section))

    def why(self, op: str, table: str) -> str:
        """The reason in a few words; empty if there is none."""
        packet, overload = op.removeprefix("aten.").rsplit(".", 1)
        if not any(_has_kernel(packet, overload, key) for key in _DENSE):
            return "no kernel for dense tensors on a CPU"
        if torch.Tag.nondeterministic_seeded in resolve(op).tags:
            return "random"
        if packet.startswith("_") and not packet.startswith(("__", "_foreach_")):
            return "internal"
        if table == "in place" and _has_kernel(packet, overload, "CompositeImplicitAutograd"):
            return "made of others, into which torch takes it apart"
        return "named in LIMITATIONS.md" if not self.named.isdisjoint((packet, f"{packet}.{overload}")) else ""


def _has_kernel(packet: str, overload: str, key: str) -> bool:
    name = f"aten::{packet}" + ("" if overload == "default" else f".{overload}")
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))
    except RuntimeError:  # TorchScript's own
        return False


def existing() -> dict[str, list[str]]:
    """Torch's ATen overloads by what their schemas say that they do to tensors."""
    found: dict[str, set[str]] = {name: set() for name in ("views", "in place", "lists", "metadata", "out=")}
    for schema in torch._C._jit_get_all_schemas():
        op = f"{schema.name.replace('::', '.', 1)}.{schema.overload_name or 'default'}"
        if schema.name.startswith("aten::") and (table := _table(schema, op)):
            found[table].add(op)
    found["metadata"].add(SET_DATA)
    return {name: sorted(ops) for name, ops in found.items()}


def _table(schema: Any, op: str) -> str:
    packet, overload = op.removeprefix("aten.").rsplit(".", 1)
    if not hasattr(torch.ops.aten, packet) or overload not in getattr(torch.ops.aten, packet).overloads():
        return ""
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if any(a.is_out for a in written):
        return "out="
    if written:
        metadata = torch.Tag.inplace_view in resolve(op).tags
        return "metadata" if metadata else "lists" if packet.startswith("_foreach_") else "in place"
    tensors = "Tensor" in "".join(str(a.type) for a in schema.arguments)
    return "views" if tensors and any(r.alias_info is not None for r in schema.returns) else ""


class Reached:
    """What the programs so far were like, counted by table."""

    def __init__(self) -> None:
        self.programs = 0
        self.operators = Counter[str]()
        self.tables: dict[str, Counter[str]] = {name: Counter() for name in _EXPECTED}

    def see(self, program: Program, *, closely: bool) -> None:
        """Counts a program; `closely`, also how its accesses depend on each other."""
        self.programs += 1
        self.operators.update({call.op for call in program.calls})
        inputs = [program.values[i] for i in program.inputs]
        tables = self.tables
        tables["dtypes"].update({value.dtype for value in program.values})
        tables["ranks of inputs"].update({str(len(value.shape)) for value in inputs})
        tables["ranks"].update({str(len(value.shape)) for value in program.values})
        tables["sizes of dimensions"].update({_size(n) for value in inputs for n in value.shape})
        tables["inputs"].update({lie(a, b) for a, b in combinations(inputs, 2)})
        tables["forms"].update({name for name, holds in FORMS.items() if holds(program)})
        if closely:
            tables["dependences"].update({f"{found.kind}, {found.relation}" for found in hazards(program)})


def _size(n: int) -> str:
    return str(n) if n <= 6 else "about 40" if n in (37, 40) else "larger"


_EXPECTED: dict[str, tuple[str, ...]] = {
    "dtypes": tuple(KNOWN.values()),
    "ranks of inputs": tuple(map(str, range(6))),
    "ranks": tuple(map(str, range(6))),
    "sizes of dimensions": (*map(str, range(7)), "about 40", "larger"),
    "inputs": (APART, "disjoint", *OVERLAPPING),
    "dependences": tuple(f"{kind}, {how}" for kind, how in product(KINDS[1:], RELATIONS[1:])),
    "forms": tuple(FORMS),
    "patterns": tuple(one.__name__.strip("_") for one in patterns.PATTERNS),
    "shapes of use": tuple(one.__name__.strip("_") for one in usage.USES),
}
_CLOSELY = 10  # the accesses of one program in so many are looked at


def _counted(table: Sequence[Callable[..., None]], counts: Counter[str]) -> tuple[Callable[..., None], ...]:
    """The statements of a table, each use of them counted."""

    def watched(fn: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any) -> None:
            counts[fn.__name__.strip("_")] += 1
            fn(*args)

        return run

    return tuple(map(watched, table))


def reach(programs: int, seed: int) -> Reached:
    """What so many programs from one seed reach; three in four of them exact, one in sixteen with gradients."""
    reached, source = Reached(), random.Random(seed)
    tables = reached.tables
    with (
        patch.object(patterns, "PATTERNS", _counted(patterns.PATTERNS, tables["patterns"])),
        patch.object(usage, "USES", _counted(usage.USES, tables["shapes of use"])),
    ):
        for number in range(programs):
            program = drawn(source, exact=number % 4 != 3, gradients=number % 16 == 0)
            reached.see(program, closely=number % _CLOSELY == 0)
    return reached


def lines(reached: Reached, left: Left) -> Iterator[tuple[str, list[str]]]:
    """For each table its text, and what was never reached for no reason."""
    for table, ops in existing().items():
        whys = {op: left.why(op, table) for op in ops if not reached.operators[op]}
        missing = [op for op, why in whys.items() if not why] if table != "out=" else []
        apart = ", ".join(f"{count} {why}" for why, count in Counter(filter(None, whys.values())).most_common())
        done = {op: reached.operators[op] for op in ops if reached.operators[op]}
        head = f"{table}: {len(ops)} in torch's schemas, {len(done)} reached" + (f"; not: {apart}" if apart else "")
        yield "\n".join([head, *_wrapped(done)]), missing
    for table, names in _EXPECTED.items():
        counts = reached.tables[table]
        yield (
            "\n".join([f"{table}:", *_wrapped({name: counts[name] for name in (*names, *counts)})]),
            [name for name in names if not counts[name]],
        )


def _wrapped(counts: Mapping[str, int]) -> Iterable[str]:
    return (f"  {name.removeprefix('aten.')} {count}" for name, count in counts.items())


def main() -> int:
    """Prints all tables, and then what was never reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    reached = reach(given.programs, given.seed)
    seconds = time.process_time() - start
    never = []
    for text, missing in lines(reached, Left()):
        print(text)
        never += missing
    print(f"{reached.programs} programs in {seconds:.0f} s of the process")
    print("\n".join(["never reached:", *map("  {}".format, never)]) if never else "nothing was left unreached")
    return 1 if never else 0


if __name__ == "__main__":
    sys.exit(main())
