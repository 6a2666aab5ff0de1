"""What tells one bug from another: a few facts about a shrunk failure, with a stable digest."""

from __future__ import annotations

import hashlib

import msgspec


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """The identity of a bug.

    `symptom` is the first thing that differs from eager ("value", "memory", "exception", ...), `detail` refines it (the
    exception's type and what it is about). `stage` is the compiler's stage that goes wrong first ("forward", "aot"), if that is known.
    Where stages are single steps, they tell more than that: the symptom is "wrong" or "mislaid" then, without detail.
    `accesses` are those whose order or overlap broke, the earlier first, by the class of what makes them ("in-place",
    "reduction", "output"), and `relation` is how they lie ("overlapping"). Operators have no place here: they depend on the
    seed that found the bug.
    """

    target: str
    symptom: str
    detail: str = ""
    stage: str = ""
    accesses: tuple[str, ...] = ()
    relation: str = "none"

    @property
    def digest(self) -> str:
        """Twelve hex digits that depend on the fields alone."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.astuple(self))).hexdigest()[:12]

    def fits(self, other: Signature) -> bool:
        """Whether both may be of one bug: they agree wherever both say something, stage and accesses included."""
        pair, others = (self.accesses, self.relation), (other.accesses, other.relation)
        return (
            (self.target, self.symptom) == (other.target, other.symptom)
            and (
                self.detail == other.detail or self.detail in _type(other.detail) or other.detail in _type(self.detail)
            )
            and (not self.stage or not other.stage or self.stage == other.stage)
            and (not self.accesses or not other.accesses or pair == others)
        )

    def __str__(self) -> str:
        what = f"{self.symptom} ({self.detail})" if self.detail else self.symptom
        where = f" in {self.stage}" if self.stage else ""
        pair = f", {' then '.join(self.accesses)} over {self.relation}" if self.accesses else ""
        return f"{self.digest} {self.target}: {what}{where}{pair}"


def _type(detail: str) -> tuple[str, ...]:
    """The exception's type alone, which older signatures have; nothing if there is no more in `detail`."""
    name, more, _ = detail.partition(":")
    return (name,) if more else ()
