"""What tells one bug from another: a few facts about a shrunk failure, with a stable digest."""

from __future__ import annotations

import hashlib

import msgspec


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """The identity of a bug.

    `symptom` is the first thing that differs from eager ("value", "memory", "exception", ...), `detail` refines it (the
    exception's type). `dependence` is the hazard between the two accesses to one storage whose order matters
    ("read-after-write"), `relation` how they lie ("partial"); `inputs` how the inputs alias. `ops` are the operators
    involved, sorted, without overloads.
    """

    target: str
    symptom: str
    detail: str = ""
    dependence: str = "none"
    relation: str = "none"
    inputs: str = "none"
    ops: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Twelve hex digits that depend on the fields alone."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.astuple(self))).hexdigest()[:12]

    def __str__(self) -> str:
        what = f"{self.symptom} ({self.detail})" if self.detail else self.symptom
        return (
            f"{self.digest} {self.target}: {what}, {self.dependence} over {self.relation}, "
            f"inputs {self.inputs}, {' '.join(self.ops)}"
        )
