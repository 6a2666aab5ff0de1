"""Coordinator and worker as Ray actors: thin shells, which Ray places, restarts where they die, and gives their GPUs.

The classes here are plain; `coordinator` and `worker` make actors of them. Ray is imported where it is used.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from corpus.flags import Flag
from fuzz.cluster.coordinator import Coordinator
from fuzz.cluster.examples import connect
from fuzz.cluster.killed import clear
from fuzz.cluster.messages import Ask, Hello, Report, Setup, packed, unpacked
from fuzz.cluster.snapshots import Snapshots
from fuzz.cluster.worker import Worker

PATIENCE = 5.0  # seconds for which a worker waits for a lease
_TRIES, _BETWEEN_TRIES = 120, 5.0  # to read the store of the state; seconds
_MORE = {"max_restarts": -1, "max_task_retries": -1}


class CoordinatorShell:
    """A coordinator, whose messages are bytes. After a restart it is the one that was saved last."""

    def __init__(self, setup: bytes, flags: bytes, url: str) -> None:
        self._inner = begun(unpacked(setup, Setup), unpacked(flags, tuple[Flag, ...]), url)

    def hello(self, data: bytes) -> bytes:
        """See `Coordinator.hello`."""
        return packed(self._inner.hello(unpacked(data, Hello)))

    def report(self, data: bytes) -> bytes:
        """See `Coordinator.report`."""
        return packed(self._inner.report(unpacked(data, Report)))

    def lease(self, data: bytes) -> bool:
        """See `Coordinator.lease`."""
        return self._inner.lease(unpacked(data, Ask))

    def use(self, flags: bytes) -> None:
        """See `Coordinator.use`."""
        self._inner.use(unpacked(flags, tuple[Flag, ...]))

    def stop(self) -> None:
        """See `Coordinator.stop`."""
        self._inner.stop()

    def progress(self) -> bytes:
        """See `Coordinator.progress`."""
        return packed(self._inner.progress())

    def state(self) -> bytes:
        """All that the coordinator knows."""
        return msgspec.msgpack.encode(self._inner.state)

    def close(self) -> str:
        """See `Coordinator.close`."""
        return self._inner.close()

    def cost(self) -> tuple[int, float]:
        """The process that this is, and the seconds of processor time that it has taken."""
        return os.getpid(), sum(os.times()[:2])


def begun(setup: Setup, flags: tuple[Flag, ...], url: str, sleep: Callable[[float], None] = time.sleep) -> Coordinator:
    """A coordinator, once its store can be read: Ray gives up an actor that cannot be made. Raises `OSError` if that takes too long."""
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            return Coordinator.begin(setup, flags, Snapshots(url))
        sleep(_BETWEEN_TRIES)
    return Coordinator.begin(setup, flags, Snapshots(url))


class RayLink:
    """A link to the coordinator's actor."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._pending: Any = None

    def hello(self, data: bytes) -> bytes:
        """See `Link`."""
        import ray

        while True:
            try:
                answer: bytes = ray.get(self._coordinator.hello.remote(data))
            except ray.exceptions.ActorUnavailableError:  # it begins anew
                time.sleep(1.0)
            else:
                return answer

    def post(self, data: bytes) -> None:
        """See `Link`."""
        self._pending = self._coordinator.report.remote(data)

    @property
    def busy(self) -> bool:
        """See `Link`."""
        return self._pending is not None

    def answer(self, seconds: float = 0.0) -> bytes | None:
        """See `Link`."""
        import ray

        if self._pending is None:
            return None
        try:
            answer: bytes = ray.get(self._pending, timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            return None
        except ray.exceptions.RayError:
            answer = b""
        self._pending = None
        return answer or None

    def ask(self, data: bytes) -> bool | None:
        """See `Link`."""
        import ray

        try:
            given: bool = ray.get(self._coordinator.lease.remote(data), timeout=PATIENCE)
        except ray.exceptions.RayError:
            return None
        return given


class WorkerShell:
    """A worker. `run` goes on where its seat is, so Ray may call it again in a new process."""

    def __init__(self, number: int, campaign: str) -> None:
        self._number, self._campaign = number, campaign

    def run(self) -> None:
        """See `Worker.run`."""
        import ray

        node = f"{os.uname().nodename} {ray.get_runtime_context().get_node_id()[:8]}"
        link = RayLink(ray.get_actor(called(self._campaign)))
        folder = scratch(self._campaign)
        while Worker(self._number, link, folder, node, examples=connect).run():
            pass
        clear(folder, self._number)

    def process(self) -> int:
        """The process that this is."""
        return os.getpid()


def scratch(campaign: str) -> Path:
    """The folder of a campaign on a node's own disk."""
    return Path(tempfile.gettempdir(), f"aliasfuzz-{campaign}")


def called(campaign: str) -> str:
    """What a campaign's coordinator is called; a handle that was given to workers might be lost when they begin anew."""
    return f"aliasfuzz-{campaign}"


def vacant(campaign: str, seconds: float = 30.0) -> bool:
    """Whether no coordinator of this campaign is at work; one that ends just now may take so many seconds for it."""
    import ray

    until = time.monotonic() + seconds
    while True:
        try:
            ray.get_actor(called(campaign))
        except ValueError:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(0.1)


def coordinator(campaign: str, setup: Setup, flags: tuple[Flag, ...], url: str, node: str = "") -> Any:
    """The actor of a coordinator whose state is at this URL; on a node if its ID is given, which a path on its disk needs."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)} if node else {}
    actor = ray.remote(num_cpus=0, name=called(campaign), **_MORE, **where)(CoordinatorShell)
    return actor.remote(packed(setup), packed(flags), url)


def worker(number: int, campaign: str, gpus: float = 0.0) -> Any:
    """The actor of a campaign's worker with this number; `run` begins its work."""
    import ray

    return ray.remote(num_cpus=1, num_gpus=gpus, **_MORE)(WorkerShell).remote(number, campaign)
