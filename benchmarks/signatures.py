"""How well signatures tell bugs apart: every fault that is planted in the pipeline, found and shrunk from several seeds.

    python -m benchmarks.signatures [--seeds 10] [--seconds 20] [--shrink 20] [FAULT]...

Prints the signatures of each fault with how many seeds led to them, then two shares: of the pairs of two seeds of one
fault, those with one signature; of the pairs of two faults, those that share a signature, weighted by how often. Exits
with 1 if the first is below 90 % or the second above 2 %.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import combinations

import msgspec

from benchmarks.planted_faults import FAULTS, Faulty, hunt
from corpus.signature import Signature
from fuzz.blame import blamed

SAME, SHARED = 0.9, 0.02


def signature(fault: str, seed: int, seconds: float, shrink: float) -> Signature | None:
    """The signature of a fault as this seed finds it, the target's name aside; None if it was not found."""
    verdict = hunt(fault, seconds, shrink, seed)[0].verdict
    if verdict is None:
        return None
    found = blamed(verdict, Faulty(fault)).signature
    return msgspec.structs.replace(found, target="pipeline") if found is not None else None


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


def main() -> int:
    """Prints the signatures and the two shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", default=list(FAULTS), metavar="FAULT")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--shrink", type=float, default=20.0)
    options = parser.parse_args()
    found: dict[str, Counter[Signature]] = {}
    for fault in options.faults:
        signatures = [signature(fault, seed, options.seconds, options.shrink) for seed in range(options.seeds)]
        found[fault] = Counter(one for one in signatures if one is not None)
        print(f"{fault}: {found[fault].total()} of {options.seeds} found")
        for one, count in found[fault].most_common():
            print(f"  {count:3} {one}", flush=True)
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
