"""A campaign on a Ray cluster of two nodes: workers, a node and the coordinator are killed, and every program is accounted for."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.cluster import actors
from fuzz.cluster.coordinator import Progress
from fuzz.cluster.driver import campaign
from fuzz.cluster.messages import unpacked
from fuzz.cluster.start import Cluster, environment, resumed
from fuzz.cluster.worker import Worker
from fuzz.options import Options
from fuzz.record import Record, load
from tests.cluster import Center, LocalLink, options, setup
from tests.test_cluster_worker import Judged

pytest.importorskip("ray", reason="no Ray: install the extra `ray`")
import ray
from ray.cluster_utils import Cluster as Nodes

pytestmark = pytest.mark.slow
WORKERS, ROUNDS = 2, 8


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A head node, and another one; each has a place for a worker."""
    found = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.add_node(num_cpus=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        ray.init(address=found.address, runtime_env=environment(local=True), log_to_driver=False, logging_level="ERROR")
        yield found
        ray.shutdown()
        found.shutdown()


def running(chosen: Options, enough: Callable[[Progress], bool]) -> Progress:
    """How a campaign goes, once that is enough."""
    until = time.monotonic() + 100
    while time.monotonic() < until:
        with contextlib.suppress(ValueError, ray.exceptions.RayError):
            central = ray.get_actor(actors.called(Path(chosen.folder).name))
            progress = unpacked(ray.get(central.progress.remote(), timeout=5), Progress)
            if enough(progress):
                return progress
        time.sleep(0.1)
    pytest.fail("the campaign never came to that")


def processes(name: str) -> list[int]:
    """The processes that Ray gave a title that begins so."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(name.encode()):
            found.append(int(folder.name))
    return found


def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many programs the seats' batches hold, up to `ROUNDS` and with one more."""
    judged, found = Judged(), []
    with monkeypatch.context() as patch:
        patch.setattr("fuzz.campaign.check", judged.check)
        center = Center(setup(tmp_path, workers=WORKERS), str(tmp_path / "alone"))
        for rounds in (ROUNDS, ROUNDS + 1):
            center.coordinator.state.setup = setup(tmp_path, workers=WORKERS, rounds=rounds)
            for number in range(WORKERS):
                Worker(number, LocalLink(center), tmp_path / "scratch").run()
            found.append(len(judged))
    return found


def accounted(record: Record) -> int:
    """How many programs a record knows of: judged, or in flight when their worker was killed."""
    return record.targets["null"].outcomes["ok"] + len(record.killed)


def test_every_program_is_accounted_for_whatever_is_killed_and_after_going_on(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.cluster.start.fitting", lambda limits: ("whole",))
    at_first, at_last = expected(tmp_path, monkeypatch)
    chosen = replace(options(tmp_path), batches=ROUNDS)
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(campaign, chosen, Cluster(address="given", workers=WORKERS))
        before = running(chosen, lambda progress: progress.programs > 100)
        os.kill(processes("ray::WorkerShell.run")[0], signal.SIGKILL)
        os.kill(processes("ray::CoordinatorShell")[0], signal.SIGKILL)
        running(chosen, lambda progress: progress.restarts == 1 and progress.programs > before.programs)
        nodes.remove_node(nodes.worker_nodes.copy().pop(), allow_graceful=False)
        nodes.add_node(num_cpus=1)
        ended = future.result(100)
    record = load(Path(chosen.folder))
    assert ended.code == 0, ended.lines
    assert accounted(record) == at_first
    assert (record.state, record.missing) == ("finished", [])
    assert record.cluster is not None
    assert record.cluster.coordinator_restarts == 1
    assert record.cluster.restarts >= 1
    assert sum(record.cluster.nodes.values()) == WORKERS

    again, cluster = resumed(Path(chosen.folder), "", 0, 60.0)
    ended = campaign(replace(again, batches=ROUNDS + 1), cluster, resume=True)
    record = load(Path(chosen.folder))
    assert ended.code == 0, ended.lines
    assert accounted(record) == at_last
