"""A campaign's state as the summary and the record of a run, for all that prints, keeps and shows these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from fuzz import record
from fuzz.accounts import FAILURES
from fuzz.cluster.rerun import Address, command
from fuzz.cluster.state import Finding, State
from fuzz.options import Options
from fuzz.record import ArmRecord, ClusterRecord, Record
from fuzz.summary import Summary, TargetSummary


def summary(state: State, paths: Mapping[str, str]) -> Summary:
    """The summary. `paths` says, by the digest of a case, in which file it was saved."""
    killed = [
        {"event": "killed", "target": found.case.target, "shard": worker, "path": paths.get(found.case.digest, "")}
        for worker, found in state.killed
    ]
    missing = [
        (state.setup.arms[seat.arm][0], number)
        for number, seat in enumerate(state.seats[: state.setup.workers])
        if not seat.ended
    ]
    return Summary({name: _target(state, name, paths) for name in state.targets}, missing, killed, _last(state))


def _target(state: State, name: str, paths: Mapping[str, str]) -> TargetSummary:
    merged = state.targets[name]
    tally, width = merged.tally, state.width
    return TargetSummary(
        programs=tally.programs + sum(found.case.target == name for _, found in state.killed),
        failures=sum(tally.outcomes.get(outcome, 0) for outcome in FAILURES),
        counts=Counter(tally.outcomes),
        seconds=state.used,
        findings={
            digest: _event(finding, paths)
            for digest, finding in state.findings.items()
            if finding.found.case.target == name
        },
        stale=merged.stale,
        limits=merged.begin.limits if merged.begin is not None else None,
        versions=merged.begin.versions if merged.begin is not None else {},
        coverage=tally.coverage,
        phases={phase: milliseconds / 1000 for phase, milliseconds in tally.phases.items()},
        intervals=[
            (state.begun + part * width, state.begun + (part + 1) * width, programs)
            for part, programs in sorted(merged.throughput.items())
        ],
    )


def _event(finding: Finding, paths: Mapping[str, str]) -> dict[str, Any]:
    """A finding as the event of a journal."""
    found = finding.found
    return {
        "event": "finding",
        "time": finding.time,
        "target": found.case.target,
        "signature": found.signature,
        "known": finding.known,
        "state": found.case.state,
        "path": paths.get(found.case.digest, ""),
        "text": found.text,
        "program": found.listing,
        "rerun": found.rerun,
        "times": finding.times,
    }


def _last(state: State) -> float:
    return max((seat.heard for seat in state.seats), default=0.0)


def again(options: Options, target: str, worker: int) -> str:
    """The command that runs a worker's first batch on a target again."""
    return command(options, target, Address(worker, 0))


def recorded(state: State, address: str, found: Summary, exit_code: int, how: record.State) -> Record:
    """The record of a campaign at an address of Ray, from its state and summary."""
    options = state.setup.options
    made = record.record(options, found, exit_code, how)
    arms = [
        ArmRecord(target=target, profile=profile, turns=arm.turns, yields=arm.yields)
        for (target, profile), arm in zip(state.setup.arms, state.arms, strict=True)
    ]
    seats = state.seats[: state.setup.workers]
    cluster = ClusterRecord(
        address=address,
        nodes=dict(Counter(seat.node for seat in seats if seat.node)),
        restarts=sum(max(seat.holders - 1, 0) for seat in seats),
        coordinator_restarts=state.restarts,
        arms=arms,
        notes={str(number): seat.note for number, seat in enumerate(seats) if seat.note},
        lost=state.lost,
    )
    commands = [again(options, name, number) for name in options.targets for number in options.shards[:_SHOWN]]
    return msgspec.structs.replace(made, cluster=cluster, rerun=commands)


_SHOWN = 8  # workers whose commands are in the record
