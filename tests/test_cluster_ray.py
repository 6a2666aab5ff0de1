"""A campaign on a Ray cluster of two nodes: workers, a node and the coordinator are killed, and every program is accounted for."""

from __future__ import annotations

import contextlib
import os
import signal
import site
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from corpus.flags import SHIPPED
from executor import targets
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
from ray._private.node import Node
from ray.cluster_utils import Cluster as Nodes

WORKERS, ROUNDS = 2, 2
AT_WORK = 300  # programs; one worker alone would be done with more
# A batch takes seconds on any machine, and little of its processors: there is time to kill what is at work.
SLOW = """
import time

from executor.targets.null import Null


class Slow(Null):
    name = "slow"

    def compile(self, fn, example_args):
        time.sleep(0.02)
        return fn
"""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a target that takes its time, which nodes that begin from now on have, too."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "slow.py").write_text(SLOW)
    about = folder / "slow-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{targets.GROUP}]\nslow = slow:Slow\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield "slow"


@pytest.fixture(scope="module")
def nodes(slow: str) -> Iterator[Nodes]:
    """A head node, and another one; each has a place for a worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        found = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        found.add_node(num_cpus=1)
        yield found
        found.shutdown()


@contextmanager
def connected(nodes: Nodes, *, local: bool) -> Iterator[None]:
    """Ray, connected to these nodes, where our packages are or not."""
    ray.init(address=nodes.address, runtime_env=environment(local=local), log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


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


def process(name: str, node: Node) -> int:
    """The process of a node that Ray gave a title that begins so; other clusters on this machine may have such, too."""
    daemon = node.all_processes["raylet"][0].process.pid
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == daemon and (folder / "cmdline").read_bytes().startswith(name.encode()):
                return int(folder.name)
    pytest.fail(f"there is no {name}")


def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> list[int]:
    """How many programs the seats' batches hold, up to `ROUNDS` and with one more."""
    judged, found = Judged(), []
    with monkeypatch.context() as patch:
        patch.setattr("fuzz.campaign.check", judged.check)
        center = Center(setup(tmp_path, target, workers=WORKERS), str(tmp_path / "alone"))
        for rounds in (ROUNDS, ROUNDS + 1):
            center.coordinator.state.setup = setup(tmp_path, target, workers=WORKERS, rounds=rounds)
            for number in range(WORKERS):
                Worker(number, LocalLink(center), tmp_path / "scratch").run()
            found.append(len(judged))
    return found


def accounted(record: Record) -> int:
    """How many programs a record knows of: judged, or in flight when their worker was killed."""
    return record.targets["slow"].outcomes["ok"] + len(record.killed)


@pytest.mark.slow  # a minute where processors are busy: processes begin, and take the place of others, a dozen times
def test_every_program_is_accounted_for_whatever_is_killed_and_after_going_on(
    nodes: Nodes, slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.cluster.start.fitting", lambda limits: ("whole",))
    monkeypatch.setattr("fuzz.cluster.start.interval", lambda workers, budget: 1.0)
    chosen = replace(options(tmp_path, slow), batches=ROUNDS)
    with connected(nodes, local=True), ThreadPoolExecutor(1) as thread:
        future = thread.submit(campaign, chosen, Cluster(address="given", workers=WORKERS))
        before = running(chosen, lambda progress: progress.programs > 20 and len(progress.silent) == WORKERS)
        head, other = nodes.head_node, next(iter(nodes.worker_nodes))
        for name in ("ray::WorkerShell.run", "ray::CoordinatorShell"):
            os.kill(process(name, head), signal.SIGKILL)
        after = running(chosen, lambda progress: progress.restarts == 1 and progress.programs > before.programs)
        nodes.remove_node(other, allow_graceful=False)
        nodes.add_node(num_cpus=1)
        at_first, at_last = expected(tmp_path, monkeypatch, slow)
        ended = future.result(100)
    record = load(Path(chosen.folder))
    assert ended.code == 0, ended.lines
    assert accounted(record) == at_first
    assert (record.state, record.missing) == ("finished", [])
    assert record.cluster is not None
    assert record.cluster.coordinator_restarts == 1
    assert sum(record.cluster.nodes.values()) == WORKERS
    lost = [name for name in record.cluster.nodes if name.endswith(other.node_id[:8])]
    assert not lost or after.programs > AT_WORK, "its worker began anew on another node, if it was at work"

    again, cluster = resumed(Path(chosen.folder), "", 0, 60.0)
    with connected(nodes, local=True):
        ended = campaign(replace(again, batches=ROUNDS + 1), cluster, resume=True)
    record = load(Path(chosen.folder))
    assert ended.code == 0, ended.lines
    assert accounted(record) == at_last


@pytest.fixture
def elsewhere(nodes: Nodes, tmp_path: Path) -> Iterator[None]:
    """A node with a GPU, which is declared only, whose Python has all packages but ours."""
    python = tmp_path / "bare" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    packages = next((tmp_path / "bare" / "lib").glob("python*")) / "site-packages"
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))  # without the .pth files that are there
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ours = subprocess.run([python, "-c", "import fuzz"], cwd=tmp_path, env=clean, capture_output=True, check=False)
    if ours.returncode == 0:
        pytest.skip("aliasfuzz is installed among the other packages, not as an editable one")
    start = [str(python), "-m", "ray.scripts.scripts", "start", f"--address={nodes.address}", "--num-cpus=1"]
    start += ["--num-gpus=1", "--block"]
    with subprocess.Popen(start, cwd=tmp_path, env=clean, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as node:
        yield
        node.terminate()


def test_code_reaches_a_node_that_has_none(
    nodes: Nodes, elsewhere: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.cluster.start.fitting", lambda limits: ("whole",))
    monkeypatch.chdir(tmp_path)  # or Ray would have workers look for packages in the checkout
    chosen = replace(options(tmp_path, "functionalize"), batches=1, flags=str(SHIPPED))
    with connected(nodes, local=False):
        ended = campaign(chosen, Cluster(address="given", workers=1, gpus=1.0))
    record = load(Path(chosen.folder))
    assert ended.code in (0, 1), ended.lines
    assert record.targets["functionalize"].programs > 10
    assert record.missing == []
