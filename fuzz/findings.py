"""Failures on their way to becoming cases: what tells them apart while Hypothesis shrinks, and the smallest of each."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from executor.program import Program
from fuzz.check import Verdict
from fuzz.hazards import KINDS, RELATIONS, worst

# Wrong numbers, in memory or returned; and right numbers that do not lie where eager's do.
_ALIKE = {"memory": "value", "identity": "alias", "strides": "alias"}


class Kind(NamedTuple):
    """What two failures must share to be shrunk as one: less than a signature, since shrinking changes the operators."""

    target: str
    symptom: str
    detail: str
    dependence: str
    relation: str

    def may_become(self, other: Kind) -> bool:
        """Whether shrinking may go from a failure of this kind to one of the other: alike, on no harder a hazard."""
        return self.look == other.look and other.hardness <= self.hardness

    @property
    def look(self) -> tuple[str, str, str]:
        """How the failure looks; the symptoms that one bug shows by chance count as one."""
        # torch says either of what an operator does not do for a dtype.
        detail = self.detail.replace("NotImplementedError", "RuntimeError")
        symptom, space, later = self.symptom.partition(" ")
        return self.target, f"{_ALIKE.get(symptom, symptom)}{space}{later}", detail

    @property
    def hardness(self) -> tuple[int, int]:
        """The rank of the hazard: how accesses lie counts more than their order."""
        if self.relation in ("none", "same"):  # one tensor written and read: no compiler has to know of aliases
            return 0, 0
        return RELATIONS.index(self.relation), KINDS.index(self.dependence)


class TargetFailure(Exception):
    """A target differs from eager. Raised as a subclass per `Kind`, since Hypothesis tells failures apart by class."""


@lru_cache(maxsize=4096)
def failure_class(kind: Kind) -> type[TargetFailure]:
    """The exception class for failures of this kind; the same object each time."""
    name = "".join(part.title().replace("-", "").replace(" ", "") for part in kind[1:] if part)
    return type(f"{name}Failure", (TargetFailure,), {"kind": kind})


def kind_of(verdict: Verdict) -> Kind:
    """The kind of a failed verdict."""
    first = verdict.mismatches[0]
    found = worst(verdict.program) if verdict.program is not None else None
    dependence, relation = (found.kind, found.relation) if found is not None else ("none", "none")
    return Kind(verdict.target, verdict.symptom, first.detail, dependence, relation)


def size(program: Program) -> tuple[int, int, int, int, bytes]:
    """What shrinking minimises: statements, then inputs, then elements of storage, then text."""
    text = program.to_json()
    elements = sum(storage.nbytes for storage in program.entry.storages)
    return len(program.calls), len(program.inputs), elements, len(text), text
