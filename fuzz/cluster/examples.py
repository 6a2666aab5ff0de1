"""Interesting programs that campaigns share: failures, in a database of Hypothesis's that all of them can reach."""

from __future__ import annotations

import time
from collections.abc import Callable

from hypothesis.database import ExampleDatabase

from corpus.case import Case, CorpusError
from executor.errors import AliasfuzzError

PAUSE = 60.0  # seconds for which a database that does not answer is left alone


class Examples:
    """Cases by target. A database that is away costs nothing but what it would have shared."""

    def __init__(self, database: ExampleDatabase, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._away_until = -PAUSE
        self._seen: set[str] = set()

    def add(self, case: Case) -> None:
        """Shares a case. It is not given back here."""
        self._seen.add(case.digest)
        self._tried(lambda: self._database.save(_key(case.target), case.to_json()))

    def new(self, target: str, share: tuple[int, int] = (0, 1)) -> list[Case]:
        """The cases of a target that were not given before, or those that fall to number `share[0]` of `share[1]` workers."""
        found: list[Case] = []

        def fetch() -> None:
            for data in self._database.fetch(_key(target)):
                try:
                    case = Case.from_json(data, "a shared example")
                except CorpusError:  # of another version of this project
                    continue
                if case.target == target and case.digest not in self._seen:
                    self._seen.add(case.digest)
                    found.append(case)

        self._tried(fetch)
        return sorted((case for case in found if int(case.digest, 16) % share[1] == share[0]), key=lambda c: c.digest)

    def _tried(self, do: Callable[[], None]) -> None:
        if self._clock() < self._away_until:
            return
        try:
            do()
        except Exception:  # noqa: BLE001 - a client's own errors; the campaign does not depend on the database
            self._away_until = self._clock() + PAUSE


def connect(url: str) -> Examples | None:
    """The examples at a Redis server, such as "redis://host:6379/0"; None for no URL. Raises `ExamplesError`."""
    if not url:
        return None
    try:
        from hypothesis.extra.redis import RedisExampleDatabase
        from redis import Redis
    except ImportError:
        raise ExamplesError("shared examples need the client of Redis: pip install 'aliasfuzz[redis]'") from None
    try:
        client = Redis.from_url(url, socket_timeout=5.0, socket_connect_timeout=5.0)
    except ValueError as error:
        raise ExamplesError(f"{url!r} is no address of a Redis server such as redis://host:6379/0: {error}") from error
    return Examples(RedisExampleDatabase(client, key_prefix=b"aliasfuzz:"))


class ExamplesError(AliasfuzzError):
    """Shared examples cannot be used; the message says what is missing."""


def _key(target: str) -> bytes:
    return f"example:{target}".encode()
