"""The main job: each shard of the campaign is one test, which fails if it found a bug that the corpus does not have."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from corpus.case import CorpusError
from corpus.flags import read
from corpus.store import Store, findings_folder
from fuzz.campaign import Plan, run_shard
from fuzz.isolation import IsolationError
from fuzz.journal import Journal, JournalError
from fuzz.known import Known, known_signatures
from fuzz.options import Options
from fuzz.relations import chosen


def test_shard(fuzz_target: str, fuzz_shard: int, fuzz_options: Options) -> None:
    """Runs one shard of one target until its deadline."""
    left = fuzz_options.left(fuzz_target)
    plan = Plan(
        fuzz_target,
        fuzz_shard,
        fuzz_options.seed,
        time.monotonic() + left,
        fuzz_options.shrink,
        fuzz_options.batches,
        shards=fuzz_options.shard_count,
        exact=fuzz_options.exact,
        against=fuzz_options.against,
        relations=chosen(fuzz_options.relations),
        gradients=fuzz_options.gradients,
        flags=Known.of(read(Path(fuzz_options.flags)), fuzz_target) if fuzz_options.flags else Known(),
    )
    store = Store(fuzz_options.corpus or findings_folder())
    journal = Journal(Path(fuzz_options.folder) / f"{fuzz_target.replace(':', '-')}-{fuzz_shard}.jsonl")
    try:
        totals = run_shard(plan, store, known_signatures(store), journal)
    except (CorpusError, IsolationError, JournalError) as error:
        pytest.fail(str(error), pytrace=False)
    assert totals.programs, f"the budget of {fuzz_options.budget:g} s ended before the first program"
    fresh = [finding.verdict.signature for finding in totals.findings if not finding.known]
    if fresh:
        pytest.fail("\n".join([f"{len(fresh)} new, see the summary below:", *map(str, fresh)]), pytrace=False)
