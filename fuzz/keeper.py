"""Saves failures as cases: each signature once in a shard, and only after a look whether the failure repeats."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from corpus.case import Case, CorpusError
from corpus.signature import Signature
from corpus.store import Store
from executor import printing, targets
from executor.program import Program
from executor.targets import Target
from fuzz.check import Verdict
from fuzz.journal import Journal

REPEATS = 3  # runs of a failure before it is saved, to see whether it fails each time


@dataclass(frozen=True)
class Finding:
    """A shrunk failure: its case file, and whether its signature was in the corpus before this run."""

    path: Path
    case: Case
    verdict: Verdict
    known: bool


@dataclass
class Keeper:
    """Saves the failures of one shard in `store`, and notes them in `journal`; `known` are the corpus's signatures."""

    compiler: Target
    store: Store
    known: frozenset[Signature]
    journal: Journal
    findings: list[Finding] = field(default_factory=list)
    _seen: set[Signature] = field(default_factory=set)

    def keep(self, verdict: Verdict, judge: Callable[[Program], Verdict], repeats: int = REPEATS) -> None:
        """Saves a failure, if its signature is new to this shard. One that does not fail in each of the repeats is flaky.

        Raises `CorpusError` if it cannot be saved; the message then holds the program.
        """
        signature, program = verdict.signature, verdict.program
        assert signature is not None, "only failures come here"
        assert program is not None, "only failures of programs come here"
        if signature in self._seen:
            return
        self._seen.add(signature)
        failed = sum(not judge(program).ok for _ in range(repeats))
        case = case_of(verdict, targets.versions(self.compiler))
        if failed < repeats:
            note = f"Run {repeats} times more when it was found, it failed {failed} times."
            case = msgspec.structs.replace(case, state="flaky", note=note)
        listing = printing.listing(program)
        try:
            path = self.store.save(case)
        except CorpusError as error:
            raise CorpusError(f"{error}\n{verdict}\n{listing}") from error
        self.findings.append(Finding(path, case, verdict, signature in self.known))
        self.journal.write(
            "finding",
            target=verdict.target,
            path=str(path),
            signature=signature.digest,
            known=signature in self.known,
            state=case.state,
            text=str(verdict),
            program=listing,
        )


def case_of(verdict: Verdict, versions: dict[str, str]) -> Case:
    """A failure of a program as an open case, found today."""
    assert verdict.program is not None, "only failures of programs become cases"
    return Case(
        program=verdict.program.without_sources(),
        target=verdict.target,
        versions=versions,
        signature=verdict.signature,
        state="open",
        calls=verdict.calls if verdict.call else (),
        exact=verdict.exact,
        relation=verdict.relation,
        found=time.strftime("%Y-%m-%d"),
    )
