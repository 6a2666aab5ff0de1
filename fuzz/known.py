"""The failures that are known: signatures of the open cases, shipped and found before."""

from __future__ import annotations

from corpus.case import Case
from corpus.signature import Signature
from corpus.store import SHIPPED, Store


def known_signatures(*stores: Store) -> frozenset[Signature]:
    """Signatures of the cases that fail and are expected to; unreadable files are passed over here, replay names them."""
    found = set()
    for store in (Store(SHIPPED), *stores):
        for _, case in store.cases():
            if isinstance(case, Case) and case.signature is not None and case.state in ("open", "flaky"):
                found.add(case.signature)
    return frozenset(found)
