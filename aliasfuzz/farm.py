"""`aliasfuzz run` on Ray: a campaign on many machines, one that goes on, or one batch of it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from aliasfuzz.report import find_run
from fuzz.cluster.alone import run_batch
from fuzz.cluster.driver import campaign
from fuzz.cluster.rerun import address
from fuzz.cluster.start import Cluster, resumed
from fuzz.options import Options, UsageError, options, seconds


def run(asked: Mapping[str, Any], *, budget_given: bool) -> int:
    """Does what the options of the command ask for, prints how it goes and ends, and returns the exit code.

    Raises `AliasfuzzError` for what cannot be.
    """
    json_file = str(asked["json_file"].resolve()) if asked["json_file"] else ""
    if asked["batch"]:
        if not asked["seed"]:
            raise UsageError("--batch needs the campaign's --seed, as the command that was printed has it")
        lines, code = run_batch(_options(asked), address(asked["batch"]))
    else:
        if asked["resume"]:
            more = seconds(asked["budget"]) if budget_given else 0.0
            chosen, cluster = resumed(find_run(asked["resume"]), asked["ray"] or "", _workers(asked), more)
        else:
            chosen, cluster = _options(asked), Cluster(
                address=asked["ray"], workers=_workers(asked), gpus=asked["gpus_per_worker"],
                state=asked["state"] or "", redis=asked["redis"] or "",
            )  # fmt: skip
        lines, code = campaign(chosen, cluster, click.echo, resume=bool(asked["resume"]), json_file=json_file)
    click.echo("\n".join(lines))
    return code


def _workers(asked: Mapping[str, Any]) -> int:
    """How many workers; 0 for as many as there is room for."""
    return 0 if asked["workers"] == "auto" else int(asked["workers"])


def _options(asked: Mapping[str, Any]) -> Options:
    return options(
        names=list(asked["names"]),
        budget=asked["budget"],
        profile="dev",
        seed=asked["seed"],
        only=None,
        workers=1,
        batches=0,
        run=None,
        corpus="",
        root=Path.cwd(),
        shrink=asked["shrink_budget"],
        flags=asked["flags"],
        exact=not asked["inexact"],
        against=asked["against"] or "",
        relations=asked["relations"],
        gradients=asked["gradients"],
    )
