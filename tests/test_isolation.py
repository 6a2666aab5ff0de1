"""Misbehaving compilers in a sandbox: each ends as a verdict, the next program is judged, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from executor import targets
from executor.errors import ArgumentError
from executor.program import Program
from executor.targets import Target
from executor.tracing import trace
from fuzz.check import check
from fuzz.isolation import Isolated, Sandbox, contained, sandbox
from tests import misbehaving

LIMIT = 1.0  # seconds
MEMORY = 256 << 20


def right() -> Program:
    return trace(lambda x: x.add_(1), torch.ones(3))


def wrong() -> Program:
    return trace(lambda x: x.mul_(2), torch.ones(3))


@pytest.fixture(scope="module", autouse=True)
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with misbehaving.known(tmp_path_factory.mktemp("known")):
        yield


@pytest.fixture(scope="module")
def box(known: None) -> Iterator[Sandbox]:
    """One sandbox for all targets, since each start imports torch; with the largest of them loaded."""
    with Sandbox("pipeline", seconds=LIMIT, memory=MEMORY) as made:
        compiler = isolated(misbehaving.Segfault, made)
        assert any(
            check(right(), target=compiler).ok for _ in range(20)
        )  # the first runs may take longer than the limit
        yield made


def isolated(target: type[misbehaving.Misbehaving], box: Sandbox) -> Isolated:
    return Isolated(targets.get(target.name), box)


OUTCOMES = [
    (misbehaving.Segfault, "crash", "SIGSEGV", "in misbehave"),
    (misbehaving.Abort, "crash", "SIGABRT", "std::bad_function_call"),
    (misbehaving.NativeHang, "timeout", "", "in misbehave"),
    (misbehaving.PythonHang, "timeout", "", "in misbehave"),
    (misbehaving.Hoard, "memory-limit", "", "MiB of memory, of 256 allowed"),
    (misbehaving.Exit, "crash", "exit code 3", ""),
    (misbehaving.Orphans, "crash", "exit code 4", ""),
    (misbehaving.Draws, "state", "torch's random numbers", ""),
    (misbehaving.DrawsInPython, "state", "Python's random numbers", ""),
    (misbehaving.DefaultDtype, "state", "default dtype", ""),
    (misbehaving.Threads, "state", "number of threads", ""),
    (misbehaving.GradMode, "state", "grad mode", ""),
    (misbehaving.Moves, "state", "current folder", ""),
    (misbehaving.Deletes, "state", "an input's layout", ""),
    (misbehaving.Resizes, "state", "an input's layout", ""),
    (misbehaving.Late, "state", "late ValueError", ""),
    (misbehaving.Endless, "exception", "Endless", "nested without end"),
    (misbehaving.Patches, "state", "TypeError", "oracle.py"),
    (misbehaving.Patricide, "crash", "SIGKILL", ""),
]


@pytest.mark.parametrize(
    ("target", "symptom", "detail", "text"), OUTCOMES, ids=lambda value: getattr(value, "name", "")
)
def test_a_misbehaving_target_ends_as_a_verdict(
    target: type[misbehaving.Misbehaving], symptom: str, detail: str, text: str, box: Sandbox
) -> None:
    compiler, begun = isolated(target, box), time.monotonic()
    assert check(right(), target=compiler).ok
    verdict = check(wrong(), target=compiler)
    first = verdict.mismatches[0]
    assert (verdict.symptom, first.detail.partition(":")[0]) == (symptom, detail)
    assert text in first.actual
    assert check(right(), target=compiler).ok
    assert time.monotonic() - begun < 30


def test_what_happens_once_happens_again(box: Sandbox) -> None:
    compiler = isolated(misbehaving.Segfault, box)
    verdicts = [check(wrong(), target=compiler) for _ in range(10)]
    assert {verdict.signature for verdict in verdicts} == {verdicts[0].signature}
    assert not verdicts[0].ok


def test_gigabytes_of_output_are_dropped(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "seconds", 60)
    monkeypatch.setattr(sandbox, "SHORT_LIMIT", 60)
    compiler = isolated(misbehaving.Chatter, box)
    assert check(wrong(), target=compiler).ok
    assert check(right(), target=compiler).ok


def test_a_crash_while_nothing_runs_is_the_last_programs(box: Sandbox) -> None:
    compiler, program = isolated(misbehaving.LateCrash, box), wrong()
    assert check(program, target=compiler).ok
    time.sleep(2)  # the worker crashes half a second later, or when a busy machine lets it
    assert check(right(), target=compiler).ok
    late = box.late.pop()
    assert late.program == program.without_sources()
    assert late.mismatches[0].detail == "SIGSEGV"


def test_every_misbehaviour_is_tested() -> None:
    assert {target for target, *_ in OUTCOMES} | {misbehaving.LateCrash} == set(misbehaving.WRONG)


def test_a_hang_costs_its_full_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "SHORT_LIMIT", 0.2)
    monkeypatch.setattr(sandbox, "TRUSTED", 2)
    with contained(targets.get("python-hang"), seconds=1.0) as compiler:
        for _ in range(4):
            assert check(right(), target=compiler).ok
        took = []
        for _ in range(2):
            begun = time.monotonic()
            assert check(wrong(), target=compiler).symptom == "timeout"
            took.append(time.monotonic() - begun)
    assert took[0] > 1.2
    assert took[1] < 0.9


def test_verdicts_and_wrong_requests_are_those_of_a_check_in_this_process(box: Sandbox) -> None:
    target = targets.get("functionalize")
    compiler = Isolated(target, box)
    for program in (right(), wrong(), trace(torch.linalg.cholesky, torch.eye(2))):
        assert check(program, target=compiler) == check(program.without_sources(), target=target)
    with pytest.raises(ArgumentError, match="the bound 'speed' is no metric of this target"):
        check(right(), target=Isolated(targets.get("pipeline"), box), bounds={"speed": 1})


def test_what_a_target_counts_in_its_workers_adds_up_until_it_is_asked_for(box: Sandbox) -> None:
    compiler = isolated(misbehaving.Segfault, box)
    compiler.tally()
    for program in (right(), wrong(), right()):  # the second ends its worker, which counts no more
        check(program, target=compiler)
    assert compiler.tally() == {"compiled": 2}
    assert compiler.tally() == {}


def test_a_safe_target_stays_here() -> None:
    null = targets.get("null")
    with contained(null) as compiler:
        assert compiler is null
    with contained(null, always=True) as compiler:
        assert isinstance(compiler, Isolated)


def test_stages_run_in_the_sandbox_too(box: Sandbox) -> None:
    target = targets.get("pipeline")
    compiler = Isolated(target, box)
    assert list(compiler.stages) == list(target.stages)
    for name, stage in compiler.stages.items():
        verdict = check(right(), target=stage)
        assert verdict.ok
        assert verdict.target == f"pipeline/{name}"


def processes(mark: str) -> list[int]:
    """The processes in whose environment this text stands."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_text(errors="replace"):
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return [pid for pid in found if pid != os.getpid()]


def wait_for(condition: object, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_no_process_outlives_its_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIASFUZZ_TEST_MARK", mark := f"closed-{os.getpid()}-{time.time()}")
    with contained(targets.get("orphans")) as compiler:
        assert not check(wrong(), target=compiler).ok
        assert check(right(), target=compiler).ok
        assert len(processes(mark)) == 2
    assert processes(mark) == []


KILLED = """
import sys
from executor import targets
from fuzz.check import check
from fuzz.isolation import contained
from tests.test_isolation import wrong

with contained(targets.get("native-hang"), seconds=1000) as compiler:
    print("ready", flush=True)
    check(wrong(), target=compiler)
"""


def test_no_process_outlives_a_caller_that_is_killed() -> None:
    mark = f"killed-{os.getpid()}-{time.time()}"
    env = {**os.environ, "ALIASFUZZ_TEST_MARK": mark, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", KILLED], env=env, stdout=subprocess.PIPE) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"ready\n"
        assert wait_for(lambda: len(processes(mark)) == 3)
        caller.send_signal(signal.SIGKILL)
    assert wait_for(lambda: processes(mark) == [])


@pytest.mark.slow
def test_a_target_that_cannot_be_warmed_up_is_judged_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zz_doomed.py").write_text(
        "import os\nclass Doomed:\n    name, unsafe = 'doomed', True\n    def compile(self, fn, args): os.abort()\n"
    )
    info = tmp_path / "doomed-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: doomed\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[aliasfuzz.targets]\ndoomed = zz_doomed:Doomed\n")
    monkeypatch.syspath_prepend(tmp_path)
    target: Target = targets.get("doomed")
    with contained(target) as compiler:
        for _ in range(2):
            assert check(right(), target=compiler).symptom == "crash"
