"""A campaign on one machine and in one process: workers as threads or one after the other, and all that can go wrong between."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from corpus.flags import Flag
from fuzz.cluster.coordinator import Coordinator
from fuzz.cluster.messages import Ask, Hello, Report, Setup, packed, unpacked
from fuzz.cluster.snapshots import Snapshots
from fuzz.options import Options


class AtOnce(Executor):
    """Does what it is given before it returns; `broken` is what it raises instead, if anything."""

    broken: Exception | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.broken is not None:
            future.set_exception(self.broken)
        else:
            future.set_result(fn(*args, **kwargs))
        return future


class Clock:
    """Time that stands still until somebody moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def options(folder: Path, *names: str, budget: float = 600.0, seed: int = 7) -> Options:
    """A campaign without flags."""
    return Options(
        names or ("null",), seed, (0,), 1, budget, 0, str(folder / "run"), str(folder / "corpus"), "dev", 3.0, flags=""
    )


def setup(folder: Path, *names: str, workers: int = 2, rounds: int = 0, **more: Any) -> Setup:
    """The same, with one arm a target unless there are `arms`."""
    chosen = options(folder, *names, **{k: more.pop(k) for k in ("budget", "seed") if k in more})
    arms = more.pop("arms", tuple((name, "whole") for name in chosen.targets))
    return Setup(chosen, workers, arms, rounds=rounds, **more)


class Center:
    """A coordinator that can be killed: the next one begins from what was saved."""

    def __init__(
        self, given: Setup, url: str, *, flags: tuple[Flag, ...] = (), now: Callable[[], float] | None = None
    ) -> None:
        self._given, self._url, self._flags = given, url, flags
        self._now = now
        self.disk = AtOnce()
        self.lock = threading.RLock()
        self.bytes_in = self.bytes_out = self.messages = 0
        self.start()

    def start(self) -> None:
        """A new coordinator, from the last snapshot."""
        with self.lock:
            snapshots = Snapshots(self._url, self.disk)
            clock = {} if self._now is None else {"now": self._now}
            self.coordinator = Coordinator.begin(self._given, self._flags, snapshots, **clock)


class LocalLink:
    """A link to a center, which loses what `lost` says: it is given the name of the message and what is lost of it."""

    def __init__(self, center: Center, lost: Callable[[str, str], bool] = lambda name, what: False) -> None:
        self._center, self._lost = center, lost
        self._answer: bytes | None = None

    def hello(self, data: bytes) -> bytes:
        with self._center.lock:
            return packed(self._center.coordinator.hello(unpacked(data, Hello)))

    def post(self, data: bytes) -> None:
        if self._lost("report", "request"):
            return
        with self._center.lock:
            self._center.messages += 1
            self._center.bytes_in += len(data)
            answer = packed(self._center.coordinator.report(unpacked(data, Report)))
            self._center.bytes_out += len(answer)
        if not self._lost("report", "reply"):
            self._answer = answer

    @property
    def busy(self) -> bool:
        return self._answer is not None

    def answer(self, seconds: float = 0.0) -> bytes | None:
        answer, self._answer = self._answer, None
        return answer

    def ask(self, data: bytes) -> bool | None:
        if self._lost("ask", "request"):
            return None
        with self._center.lock:
            return self._center.coordinator.lease(unpacked(data, Ask))


def losing(share: float, seed: int) -> Callable[[str, str], bool]:
    """Loses so much of what is sent."""
    chance = random.Random(seed)
    return lambda name, what: chance.random() < share
