"""What became of every program that a run began: the sums, and the one that nothing is known of if a shard was killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """A shard's programs by outcome; `in_flight` is the digest of one more, whose outcome nobody has written down."""

    counts: Counter[str] = field(default_factory=Counter)
    in_flight: str | None = None

    @property
    def started(self) -> int:
        """How many programs the shard began to judge."""
        return self.counts.total() + (self.in_flight is not None)


def accounts(folder: Path) -> dict[tuple[str, int], Account]:
    """The account of each (target, shard) of a run, whether it ended, still runs, or was killed."""
    found: dict[tuple[str, int], Account] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for event in journal.events(path):
            if event["event"] in ("batch", "killed"):
                found[event["target"], event["shard"]] = _account(event)
        if (last := flight.read(path)) is not None:
            found[last.target, last.shard] = Account(Counter(last.counts), last.program.digest)
    return found


def _account(event: Mapping[str, Any]) -> Account:
    return Account(Counter(event.get("counts", {})), event.get("digest"))
