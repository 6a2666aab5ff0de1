"""How precise the verifier is: of what it rejects, how much goes wrong under some schedule.

    python -m benchmarks.precision [--programs 2000] [--seed 0] [--show KIND]

Random programs go through the passes in each mode. For each, partitions are proposed in which data flows upwards but
that know nothing of memory, and write-backs are proposed to be early; what the verifier rejects runs on tagged elements
under many schedules. A rejection counts as right if one of them goes wrong. It does not count where the elements in
question are dead, that is where what one sees stays the same whatever they are. What is left is listed by kind.
What the verifier accepts runs too: exits with 1 if any of it goes wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import hypothesis
import msgspec
import numpy as np

from executor.args import Const, List
from executor.backends.schedules import drawn, under
from executor.backends.tagged import Interner, Machine, in_program_order
from executor.cost import CostModel
from executor.memory_ssa import MemorySSA, footprint
from executor.partition import Partition, partition
from executor.pipeline import Aliases, Chooser, passes
from executor.program import Call
from executor.targets.pipeline import Pipeline
from executor.verify import early_refusal, races
from strategies.programs import programs

if TYPE_CHECKING:
    from executor.backends.tagged import Observation
    from executor.program import Program
    from executor.verify import Race

MODES: tuple[Aliases, ...] = ("barrier", "blend", "auto")
SCHEDULES = 48
_BATCH = 200
_POISON = 1 << 60  # a tag that no expression has


@dataclass
class Tally:
    """What became of the proposals. `harmless`: rejected on live elements without a schedule that goes wrong."""

    accepted: int = 0
    accepted_wrong: int = 0
    rejected: int = 0
    wrong: int = 0
    dead: int = 0
    harmless: Counter[str] = field(default_factory=Counter)

    @property
    def precision(self) -> float:
        """Of the rejections on live elements, the share that goes wrong."""
        return self.wrong / max(self.rejected - self.dead, 1)


class Subject:
    """One compiled program, what it means, and what is proposed for it."""

    def __init__(self, program: Program, mode: Aliases, seed: int) -> None:
        for _, run in passes(Chooser(mode, CostModel())):
            program = run(program)
        self.program, self.memory, self.ids = program, MemorySSA(program), Interner()
        self.best = partition(program, lambda _: True, self.memory)
        self.random = random.Random(seed)

    def wanted(self) -> Observation:
        """What the program means."""
        return in_program_order(self.program, self.ids)

    def partitions(self) -> Iterator[Partition]:
        """Partitions in which data flows upwards: the best one with two neighbouring regions joined, and random ones."""
        levels = [level for level in self.best.levels if level is not None]
        proposed = {
            tuple(None if level is None else level - (level > joint) for level in self.best.levels)
            for joint in range(max(levels, default=0))
        }
        proposed.update(self._upwards(share) for share in (0.0, 0.1, 0.2, 0.4))
        yield from (self.best._replace(levels=levels) for levels in sorted(proposed, key=repr))

    def _upwards(self, share: float) -> tuple[int | None, ...]:
        """Each call as low as its data allows, or, for a share of the calls, one level higher."""
        memory, fused = self.memory, self.best.fused
        levels: list[int | None] = []
        for i, call in enumerate(self.program.calls):
            if memory.accesses[i].address:
                levels.append(None)
                continue
            level = 0 if fused[i] else -1
            for v in call.operands:
                owner = memory.owner.get(self.program.values[v].storage)
                before = levels[owner] if owner is not None and owner < i else None
                if owner is not None and before is not None:
                    level = max(level, before + (fused[i] and not fused[owner]))
            levels.append(level + (self.random.random() < share))
        return tuple(levels)

    def early(self) -> Iterator[Partition]:
        """The best partition with one write-back early, of a value that a call of its region makes."""
        for i in range(len(self.program.calls)):
            value = self.memory.stored(i)
            if value is None:
                continue
            maker = self.memory.maker.get(value)
            if maker is not None and self.best.fused[maker] and self.best.levels[maker] == self.best.levels[i]:
                yield self.best._replace(early=frozenset({i}))


def goes_wrong(subject: Subject, found: Partition, wanted: Observation) -> bool:
    """Whether some schedule shows something else; without early write-backs there is only one."""
    count = SCHEDULES if found.early else 1
    return any(under(found, subject.ids, drawn(seed, 2 + seed % 2)) != wanted for seed in range(count))


def is_dead(subject: Subject, race: Race, wanted: Observation) -> bool:
    """Whether nothing that one sees depends on the elements at which the race's accesses meet."""
    program, memory = subject.program, subject.memory
    a, b = (program.values[v] for v in race.values)
    if a.storage != b.storage or race.first == race.second:
        return False
    common = np.intersect1d(footprint(a).byte_set(), footprint(b).byte_set())
    reader = next((i for i in (race.second, race.first) if not memory.accesses[i].writes), None)
    machine = Machine(program, subject.ids)
    for i, call in enumerate(program.calls):
        if memory.accesses[i].address:
            continue
        if i == reader:
            poisoned = {a.storage: machine.bytes_of(a.storage).copy()}
            poisoned[a.storage][common] = _POISON
            machine.step(call, poisoned)
        else:
            machine.step(call)
        if reader is None and i == race.second:
            machine.bytes_of(a.storage)[common] = _POISON
    return machine.observe() == wanted


def without_dead_calls(subject: Subject, wanted: Observation) -> Program:
    """The program with calls whose results nothing depends on made constants."""
    program, calls = subject.program, list(subject.program.calls)
    for i, call in enumerate(program.calls):
        what = subject.memory.accesses[i]
        if what.address or what.writes or len(call.results) != 1:
            continue
        value = program.values[call.results[0]]
        shape = List(value.shape)
        constant = Call("aten.full.default", (shape, 7), (("dtype", Const(value.dtype)),), call.results)
        changed = msgspec.structs.replace(program, calls=(*calls[:i], constant, *calls[i + 1 :]))
        if in_program_order(changed, subject.ids) == wanted:
            calls[i] = constant
    return msgspec.structs.replace(program, calls=tuple(calls))


def judge_partition(subject: Subject, found: Partition, wanted: Observation, tally: Tally) -> str | None:
    """Adds a proposed partition to the tally. Returns its kind if it is rejected though harmless."""
    rejected = list(races(found, subject.memory))
    if not rejected:
        tally.accepted += 1
        tally.accepted_wrong += goes_wrong(subject, found, wanted)
        return None
    tally.rejected += 1
    if goes_wrong(subject, found, wanted):
        tally.wrong += 1
        return None
    live = [race for race in rejected if not is_dead(subject, race, wanted)]
    if not live:
        tally.dead += 1
        return None
    tally.harmless[live[0].wrong] += 1
    return live[0].wrong


def judge_early(subject: Subject, found: Partition, wanted: Observation, tally: Tally) -> str | None:
    """Adds a proposed early write-back to the tally. Returns its kind if it is rejected though harmless."""
    (store,) = found.early
    refusal = early_refusal(found, subject.memory, store)
    if refusal is None:
        tally.accepted += 1
        tally.accepted_wrong += goes_wrong(subject, found, wanted)
        return None
    tally.rejected += 1
    if goes_wrong(subject, found, wanted):
        tally.wrong += 1
        return None
    slim = without_dead_calls(subject, wanted)
    if slim != subject.program and early_refusal(found._replace(program=slim), MemorySSA(slim), store) is None:
        tally.dead += 1
        return None
    tally.harmless[refusal] += 1
    return refusal


def measure(count: int, seed: int, show: str | None = None) -> tuple[Tally, Tally]:
    """The tallies of partitions and of early write-backs over so many programs."""
    tallies = Tally(), Tally()

    def look(program: Program, mode: Aliases, number: int) -> None:
        subject = Subject(program, mode, number)
        wanted = subject.wanted()
        proposals = ((subject.partitions(), judge_partition), (subject.early(), judge_early))
        for tally, (proposed, judge) in zip(tallies, proposals, strict=True):
            for found in proposed:
                kind = judge(subject, found, wanted, tally)
                if kind is not None and show is not None and show in kind:
                    print(f"# {kind}; levels {found.levels}, early {set(found.early)}\n{subject.program}\n", flush=True)

    for batch in range(0, count, _BATCH):
        _draw(
            partial(look, mode=MODES[batch // _BATCH % 3], number=seed + batch),
            seed + batch,
            min(_BATCH, count - batch),
        )
    return tallies


def _draw(look: partial[None], seed: int, examples: int) -> None:
    """Calls a function with so many random programs."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate,),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(programs(Pipeline.limits))
    def each(program: Program) -> None:
        if program.raises is None:
            look(program)

    each()


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", help="print the programs of this kind")
    options = parser.parse_args()
    tallies = measure(options.programs, options.seed, options.show)
    for name, tally in zip(("partitions", "early write-backs"), tallies, strict=True):
        print(
            f"{name}: {tally.accepted} accepted, {tally.accepted_wrong} of them wrong; {tally.rejected} rejected, "
            f"{tally.wrong} of them wrong, {tally.dead} on dead elements: precision {tally.precision:.1%} on live ones"
        )
        for kind, number in tally.harmless.most_common():
            print(f"    {number / max(tally.rejected - tally.dead, 1):6.2%}  {kind}")
    return 1 if any(tally.accepted_wrong for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
