"""What became of every program that a run began: the sums, and the one that nothing is known of if a shard was killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fuzz import flight, journal
from fuzz.check import Verdict

OUTCOMES = ("ok", "refused", "unstable", "known", "failed", "crashed", "timed out")  # known: by a flag
FAILURES = OUTCOMES[4:]
NOTABLE = ("refused", "unstable", "known", "crashed", "timed out")  # that no other number tells of
_BY_SYMPTOM = {"crash": "crashed", "memory-limit": "crashed", "timeout": "timed out"}


def outcome(verdict: Verdict) -> str:
    """What became of a program, one of `OUTCOMES`."""
    if not verdict.ok:
        return _BY_SYMPTOM.get(verdict.mismatches[0].symptom, "failed")
    return "unstable" if verdict.unstable is not None else "refused" if verdict.refused is not None else "ok"


@dataclass
class Account:
    """A shard's programs by outcome; `in_flight` are the digests of more, whose outcome nobody has written down.

    There is one for each time that the shard was killed.
    """

    counts: Counter[str] = field(default_factory=Counter)
    in_flight: tuple[str, ...] = ()

    @property
    def started(self) -> int:
        """How many programs the shard began to judge."""
        return self.counts.total() + len(self.in_flight)

    def then(self, counts: Mapping[str, int], in_flight: tuple[str, ...] = ()) -> Account:
        """This account with what was done after it."""
        return Account(self.counts + Counter(counts), self.in_flight + in_flight)


def accounts(folder: Path) -> dict[tuple[str, int], Account]:
    """The account of each (target, shard) of a run, whether it ended, still runs, or was killed and begun again."""
    found: dict[tuple[str, int], Account] = {}
    for path in sorted(folder.glob("*.jsonl")):
        before: dict[tuple[str, int], Account] = {}  # what killed processes did, none of which is repeated later
        for event in journal.events(path):
            if event["event"] in ("batch", "killed"):
                shard = event["target"], event["shard"]
                in_flight = (event["digest"],) if event["event"] == "killed" else ()
                found[shard] = before.get(shard, Account()).then(event["counts"], in_flight)
                if in_flight:
                    before[shard] = found[shard]
        if (last := flight.read(path)) is not None:
            shard = last.target, last.shard
            found[shard] = before.get(shard, Account()).then(last.counts, (last.program.digest,))
    return found
