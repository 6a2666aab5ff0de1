"""How well signatures tell bugs apart: twelve faults that are planted in the pipeline, found and shrunk from several seeds.

    python -m benchmarks.signatures [--seeds 10] [--seconds 20] [--shrink 20] [--jobs 2] [FAULT]...

Prints the signatures of each fault with how many seeds led to them, and a program for each; then two shares: of the pairs
of two seeds of one fault, those with one signature; of the pairs of two faults, those that share a signature, weighted by
how often. Exits with 1 if the first is below 90 % or the second above 2 %.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import combinations
from multiprocessing import get_context

import msgspec
import torch

from benchmarks.faults import TWELVE
from benchmarks.planted_faults import Faulty, hunt
from corpus.signature import Signature
from executor.printing import function
from fuzz.blame import blamed

SAME, SHARED = 0.9, 0.02

Found = tuple[Signature, str]


def signature(fault: str, seed: int, seconds: float, shrink: float) -> Found | None:
    """The signature of a fault as this seed finds it, the target's name aside, and the program; None if it was not found."""
    verdict = hunt(fault, seconds, shrink, seed)[0].verdict
    if verdict is None or verdict.program is None:
        return None
    found = blamed(verdict, Faulty(fault)).signature
    return (msgspec.structs.replace(found, target="pipeline"), function(verdict.program)) if found is not None else None


def signatures(fault: str, seeds: int, seconds: float, shrink: float) -> list[Found]:
    """What the seeds found of one fault."""
    torch.set_num_threads(1)
    found = (signature(fault, seed, seconds, shrink) for seed in range(seeds))
    return [one for one in found if one is not None]


def same(found: Counter[Signature]) -> tuple[int, int]:
    """How many pairs of one fault's signatures are equal, and how many there are."""
    count = found.total()
    return sum(n * (n - 1) // 2 for n in found.values()), count * (count - 1) // 2


def shared(one: Counter[Signature], other: Counter[Signature]) -> tuple[int, int]:
    """How many pairs of two faults' signatures are equal, and how many there are."""
    return sum(n * other[found] for found, n in one.items()), one.total() * other.total()


def share(pairs: list[tuple[int, int]]) -> float:
    """The share of equal pairs."""
    return sum(equal for equal, _ in pairs) / max(sum(count for _, count in pairs), 1)


def lines(found: list[Found]) -> Iterator[str]:
    """Each signature with how often it was found, and the first program of it."""
    for one, count in Counter(signature for signature, _ in found).most_common():
        yield f"  {count:3} {one}"
        program = next(text for signature, text in found if signature == one)
        yield from (f"          {line}" for line in program.splitlines())


def main() -> int:
    """Prints the signatures and the two shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", default=list(TWELVE), metavar="FAULT")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--shrink", type=float, default=20.0)
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a fault at a time")
    options = parser.parse_args()
    found: dict[str, Counter[Signature]] = {}
    work = partial(signatures, seeds=options.seeds, seconds=options.seconds, shrink=options.shrink)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for fault, results in zip(options.faults, pool.map(work, options.faults), strict=True):
            found[fault] = Counter(one for one, _ in results)
            print(f"{fault}: {len(results)} of {options.seeds} found")
            print("\n".join(lines(results)), flush=True)
    alike = share([same(counter) for counter in found.values()])
    confused = {pair: shared(found[pair[0]], found[pair[1]]) for pair in combinations(found, 2)}
    for (fault, another), pairs in confused.items():
        if pairs[0]:
            print(f"shared: {fault} and {another}, {share([pairs]):.0%} of their pairs")
    print(f"pairs of one fault with one signature: {alike:.1%} (at least {SAME:.0%})")
    print(f"pairs of two faults with one signature: {share([*confused.values()]):.1%} (at most {SHARED:.0%})")
    return int(alike < SAME or share([*confused.values()]) > SHARED)


if __name__ == "__main__":
    sys.exit(main())
