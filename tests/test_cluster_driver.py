"""What a campaign on many machines leaves on the machine where its command runs: summary, report, last lines, exit codes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner

from aliasfuzz import commands, report
from corpus.flags import SHIPPED
from executor import targets
from executor.limits import Limits
from fuzz.cluster.actors import begun
from fuzz.cluster.driver import campaign, line, shares
from fuzz.cluster.merged import again, recorded, summary
from fuzz.cluster.messages import Begin, Hello, Left, Place, packed, unpacked
from fuzz.cluster.profiles import PROFILES, WHOLE, fitting
from fuzz.cluster.rerun import rerun
from fuzz.cluster.snapshots import Snapshots
from fuzz.cluster.start import Cluster, RayError, environment, interval, lacking, place, prepare, resumed
from fuzz.cluster.state import State
from fuzz.coverage import Coverage
from fuzz.options import UsageError
from fuzz.record import Record, load, save
from fuzz.summary import closing_lines
from tests.cluster import Center, options, setup
from tests.test_cluster_coordinator import Hand, found


@pytest.fixture
def center(tmp_path: Path) -> Center:
    """Two workers on nodes of their own; one of them was killed and began anew, one has ended."""
    arms = (("null", "whole"), ("null", "floats"))
    made = Center(setup(tmp_path, workers=2, arms=arms), str(tmp_path / "state"))
    one, other = Hand(made, 0), Hand(made, 1)
    one.outbox.begin({"dtypes": ["float32"]}, {"torch": "2.13"})
    one.outbox.cover(Coverage(programs=20, operators={"aten.add.Tensor": 3}))
    one.outbox.spend("generate", 2.5)
    one.work(20)
    one.send(ended=True)
    other.work(5)
    other.send()
    made.coordinator.hello(Hello(1, "another node", (Left(1, Place(0, 6), found("in flight", 3)),)))
    return made


def record(center: Center, **paths: str) -> Record:
    state = center.coordinator.state
    made = summary(state, paths)
    return recorded(state, "local", made, made.exit_code, "finished")


def test_a_record_merges_all_workers(center: Center) -> None:
    made = record(center)
    target = made.targets["null"]
    assert target.programs == 26, "one was in flight"
    assert target.outcomes == {"ok 0": 20, "ok 1": 5}
    assert target.coverage.operators == {"aten.add.Tensor": 3}
    assert target.phases == {"generate": 2.5}
    assert target.versions == {"torch": "2.13"}
    assert "aten.add.Tensor" not in target.never_reached["operators"]
    assert [finding.times for finding in target.findings] == [1, 1]
    assert made.missing == [("null", 1)]
    assert [(one.target, one.shard) for one in made.killed] == [("null", 1)]
    assert made.exit_code == 1
    assert made.cluster is not None
    assert made.cluster.nodes == {"node": 1, "another node": 1}
    assert made.cluster.restarts == 1
    assert [arm.profile for arm in made.cluster.arms] == ["whole", "floats"]
    assert made.rerun[0] == "aliasfuzz run --target null --seed 0x7 --batch 0/0 --flags none"


def test_a_state_crosses_as_it_is(center: Center) -> None:
    state = center.coordinator.state
    assert unpacked(packed(state), State) == state
    assert isinstance(state.targets["null"].begin, Begin)


def test_the_page_tells_of_machines_and_shares(center: Center, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    folder = tmp_path / "run"
    folder.mkdir()
    save(record(center), folder / "summary.json")
    assert load(folder).cluster == record(center).cluster
    report.write(folder, folder / "report.html")
    text = (folder / "report.html").read_text(encoding="utf-8")
    for part in ("another node", "workers began anew 1 times", "<td>floats</td>", "--ray local", "--batch 0/0"):
        assert part in text


def test_the_last_lines_say_how_a_batch_runs_again(center: Center, tmp_path: Path) -> None:
    lines = [*closing_lines(options(tmp_path), summary(center.coordinator.state, {}), again)]
    assert any(line == "  found by aliasfuzz run --batch 0/0" for line in lines)
    assert any("shard 1 did not end; run it again with: aliasfuzz run --target null" in line for line in lines)
    assert not any("--fuzz-" in line for line in lines)


def test_lines_say_how_it_goes(center: Center, tmp_path: Path) -> None:
    state = center.coordinator.state
    state.seats[1].note = "JournalError: no space left"
    state.arms[1].turns, state.arms[1].yields = 3, 2
    said = line(options(tmp_path), center.coordinator.progress())
    assert "26 programs" in said
    assert "2 distinct failures, 1 workers" in said
    assert "1 cannot work" in said
    assert shares(record(center)) == ["null, floats: 3 of 3 turns, 2 with something new"]


def test_reports_are_fewer_where_workers_are_many() -> None:
    assert interval(2, 7200) == interval(250, 7200) == 10
    assert interval(1000, 7200) == 40
    assert interval(2, 30) == 3


def test_profiles_are_within_what_a_target_takes() -> None:
    assert fitting(Limits()) == tuple(PROFILES)
    assert fitting(Limits(dtypes=frozenset({"float32"}))) == ("whole", "apart", "plain", "still")
    for name in ("null", "pipeline", "aot_eager", "functionalize"):
        assert fitting(targets.get(name).limits)[0] == WHOLE


def test_code_reaches_other_nodes_and_is_here_already() -> None:
    far = environment(local=False)
    assert all((Path(folder) / "__init__.py").exists() for folder in far["py_modules"])
    assert "py_modules" not in environment(local=True)
    assert far["env_vars"]["OMP_NUM_THREADS"]


def test_commands_that_nodes_print_name_no_file_of_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our packages lie elsewhere on a node, and with them the flags."""
    shipped = replace(options(tmp_path), flags=str(SHIPPED))
    made = prepare(shipped, Cluster(address="local", workers=1), resume=False).setup
    monkeypatch.setattr("fuzz.cluster.rerun.SHIPPED", tmp_path / "node" / "flags.toml")
    assert rerun(made, 0, 0, 3) == "aliasfuzz run --target null --seed 0x7 --batch 0/3"
    own = msgspec.structs.replace(made, shipped=False)
    assert rerun(own, 0, 0, 3).endswith(f"--flags {SHIPPED}")


def test_without_ray_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayError, match=r"pip install 'aliasfuzz\[ray\]'"):
        campaign(options(tmp_path), Cluster(address="local"))


def test_a_state_that_is_not_the_campaigns_is_refused(tmp_path: Path) -> None:
    chosen, cluster = options(tmp_path), Cluster(address="local", workers=2)
    with pytest.raises(UsageError, match="no campaign to go on with"):
        prepare(chosen, cluster, resume=True)
    state = prepare(chosen, cluster, resume=False)
    assert {target for target, _ in state.setup.arms} == {"null"}
    with pytest.raises(UsageError, match="no campaign"):
        resumed(Path(chosen.folder), "", 0, 0.0)
    Center(state.setup, place(chosen, cluster)).coordinator.close()
    with pytest.raises(UsageError, match="another campaign's state"):
        prepare(chosen, cluster, resume=False)
    with pytest.raises(UsageError, match="cannot hold the campaign's state"):
        prepare(chosen, Cluster(address="local", workers=2, state="nowhere://x"), resume=False)
    again_options, again_cluster = resumed(Path(chosen.folder), "auto", 3, 100.0)
    assert (again_options.budget, again_cluster.workers, again_cluster.address) == (100.0, 3, "auto")
    again_state = prepare(again_options, again_cluster, resume=True)
    assert len(again_state.seats) == again_state.setup.workers == 3
    with pytest.raises(UsageError, match="no folder of a campaign on Ray"):
        resumed(tmp_path, "", 0, 0.0)


def test_a_coordinator_waits_for_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[float]()
    load = Snapshots.load

    def away(self: Snapshots) -> tuple[int, bytes] | None:
        if len(waited) < 3:
            raise ConnectionError("unreachable")
        return load(self)

    monkeypatch.setattr(Snapshots, "load", away)
    made = begun(setup(tmp_path), (), str(tmp_path / "state"), waited.append)
    assert len(waited) == 3
    assert made.state.seats


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "0/0"], "--batch needs the campaign's --seed"),
        (["--batch", "0", "--seed", "1"], "a batch is WORKER/BATCH"),
        (["--resume", "nothing"], "there is no run"),
        (["--state", "memory://x"], "add --ray"),
        (["--ray", "local", "--target", "nobody"], "nobody"),
    ],
)
def test_bad_usage_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(commands.cli, ["run", *arguments])
    assert result.exit_code != 0
    assert said in f"{result.output}{result.exception}"


def test_the_command_runs_one_batch_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(commands.cli, ["run", "--target", "null", "--seed", "0x7", "--batch", "2/1/floats"])
    assert result.exit_code == 0, result.output
    assert "null: 200 programs" in result.output
    assert "--batch 2/1/floats" in result.output


def test_gpus_that_no_node_has_are_told() -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 4.0}},
        {"Alive": True, "Resources": {"CPU": 4.0, "GPU": 2.0}},
        {"Alive": False, "Resources": {"CPU": 4.0, "GPU": 8.0}},
    ]
    ray = SimpleNamespace(nodes=lambda: nodes)
    assert [lacking(ray, gpus) for gpus in (0.0, 0.25, 2.0)] == ["", "", ""]
    assert lacking(ray, 4.0).startswith("no node has 4 GPUs for a worker, the most that one has is 2: ")
    assert lacking(SimpleNamespace(nodes=list), 0.5).startswith("no node has 0.5 GPUs")
