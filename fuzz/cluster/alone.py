"""One batch of a campaign run again, without Ray, as any run: journal, summary, findings in this machine's corpus."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from corpus.flags import read as read_flags
from corpus.store import Store, findings_folder
from fuzz import record
from fuzz.campaign import batch_seed
from fuzz.cluster.bench import Bench
from fuzz.cluster.messages import Setup
from fuzz.cluster.rerun import Address, command
from fuzz.ending import keep
from fuzz.journal import Journal
from fuzz.keeper import Keeper
from fuzz.known import known_signatures
from fuzz.muting import Muting
from fuzz.options import Options
from fuzz.summary import closing_lines, summarize


def run_batch(options: Options, batch: Address) -> tuple[list[str], int]:
    """Runs a batch again on the first target of these options: the lines to print, and the exit code.

    The programs are the same; failures that the campaign passed over, since others had shrunk their like, are shrunk here.
    Raises what `Bench.shard` does.
    """
    name, options = options.targets[0], replace(options, shards=(batch.worker,), shard_count=batch.worker + 1)
    record.begin(options)
    options.begin()
    journal = Journal(Path(options.folder, f"{name.replace(':', '-')}-{batch.worker}.jsonl"))
    setup = Setup(options, batch.worker + 1, ((name, batch.profile),))
    store = Store(options.corpus or findings_folder())
    known = known_signatures(store)
    bench = Bench(
        setup, batch.worker, Path(options.folder), journal.write,
        lambda compiler, events: Keeper(compiler, store, known, events),
    )  # fmt: skip
    flags = read_flags(Path(options.flags)) if options.flags else ()
    try:
        shard = bench.shard(0, flags, Muting(), time.monotonic() + options.budget)
        shard.batch(batch_seed(options.seed, name, batch.worker, batch.batch))
        shard.end()
        journal.write("done", target=name, shard=batch.worker)
    finally:
        bench.close()
    summary = summarize(options)
    kept, whole = keep(record.record(options, summary, summary.exit_code, "finished"), Path(options.folder))
    lines = [*closing_lines(options, summary, lambda options, name, worker: command(options, name, batch)), *kept]
    return lines, summary.exit_code if whole else 3
