"""How a worker reaches the coordinator: as bytes, in any way that may fail."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """One message at a time is on its way; what is lost, the worker says again."""

    def hello(self, data: bytes) -> bytes:
        """Delivers a `Hello`, however long that takes; the `Welcome`."""
        ...

    def post(self, data: bytes) -> None:
        """Sends a `Report`, and does not wait."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a report is on its way that has neither been answered nor given up."""
        ...

    def answer(self, seconds: float = 0.0) -> bytes | None:
        """The `Reply` to the last report, if it comes within so many seconds and was not fetched before."""
        ...

    def ask(self, data: bytes) -> bool | None:
        """Delivers an `Ask`; whether the lease is given, None if nobody answers for some seconds."""
        ...
