"""`pytest fuzz/`: options, shards spread over xdist's workers, how it goes, and the summary at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corpus.store import Store, findings_folder
from executor.errors import AliasfuzzError
from fuzz import record
from fuzz.ending import keep
from fuzz.journal import JournalError
from fuzz.options import GRADIENTS, PROFILES, Options, options
from fuzz.recovery import recover
from fuzz.screen import Screen
from fuzz.summary import closing_lines, summarize

OPTIONS = pytest.StashKey[Options]()
RECOVERED = pytest.StashKey[list[str]]()
ENDING = pytest.StashKey[list[str]]()
SCREEN = pytest.StashKey[Screen]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("aliasfuzz", "aliasfuzz: the main job")
    group.addoption("--fuzz-target", action="append", default=[], metavar="T", help="compiler under test; may repeat")
    group.addoption("--fuzz-budget", metavar="TIME", help="time for the whole run: 60s (default), 5m, 1h")
    group.addoption("--fuzz-shrink-budget", metavar="TIME", help="time to shrink one failure (40s)")
    group.addoption("--fuzz-profile", default="dev", metavar="P", help=f"one of {', '.join(PROFILES)} (dev)")
    group.addoption("--fuzz-seed", metavar="N", help="run the programs of an earlier run with this seed")
    group.addoption("--fuzz-shard", metavar="I/N", help="run only shard I of N, as the summary's last line says")
    group.addoption("--fuzz-batches", type=int, default=0, metavar="N", help="end each shard after N batches")
    group.addoption("--fuzz-run", metavar="DIR", help="folder for the journals (.aliasfuzz/runs/...)")
    group.addoption("--fuzz-json", default="", metavar="FILE", help="write the summary there")
    group.addoption("--fuzz-flags", metavar="FILE", help="known bugs to pass over (those shipped), or none")
    group.addoption("--fuzz-float", action="store_true", help="inexact operators too, judged against float64")
    group.addoption(
        "--fuzz-against", default="", metavar="T", help="pass over what this target, or TARGET@PYTHON, shares"
    )
    group.addoption(
        "--fuzz-relations", metavar="R", help="rewrite programs too: all, none, all/8 (of one in 8), or names"
    )
    group.addoption(
        "--fuzz-gradients",
        default=GRADIENTS[0],
        metavar="G",
        help="programs with gradients: some (default), all or none",
    )
    group.addoption("--fuzz-corpus", default="", metavar="DIR", help="folder for new cases")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Shards of one worker stay on it: groups are the only distribution of xdist that promises that."""
    if getattr(config.option, "numprocesses", None):
        config.option.dist = "loadgroup"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group(name): as in xdist, which may be absent")
    given = getattr(config, "workerinput", None)
    if given is not None:
        config.stash[OPTIONS] = msgspec.convert(given["fuzz"], Options)
        return
    get = config.getoption
    try:
        config.stash[OPTIONS] = options(
            names=get("--fuzz-target"),
            budget=get("--fuzz-budget"),
            shrink=get("--fuzz-shrink-budget"),
            flags=get("--fuzz-flags"),
            exact=not get("--fuzz-float"),
            against=get("--fuzz-against"),
            relations=get("--fuzz-relations"),
            gradients=get("--fuzz-gradients"),
            profile=get("--fuzz-profile"),
            seed=get("--fuzz-seed"),
            only=get("--fuzz-shard"),
            workers=_workers(config),
            batches=get("--fuzz-batches"),
            run=get("--fuzz-run"),
            corpus=get("--fuzz-corpus"),
            root=config.invocation_params.dir,  # where new cases go, too
            summary=get("--fuzz-json"),
        )
    except AliasfuzzError as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(_Away(config), "aliasfuzz-screen")


def _workers(config: pytest.Config) -> int:
    processes = getattr(config.option, "numprocesses", None)
    return len(config.option.tx) if processes and config.option.tx else int(processes or 1)


@pytest.hookimpl(optionalhook=True)  # pytest may run without xdist
def pytest_configure_node(node: pytest.Item) -> None:  # called by xdist on the controller, once a worker
    node.workerinput["fuzz"] = msgspec.to_builtins(node.config.stash[OPTIONS])  # type: ignore[attr-defined]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"fuzz_target", "fuzz_shard"} <= set(metafunc.fixturenames):
        chosen = metafunc.config.stash[OPTIONS]
        metafunc.parametrize(
            "fuzz_target,fuzz_shard",
            [
                pytest.param(name, number, id=f"{name}-{number}", marks=pytest.mark.xdist_group(f"shard{number}"))
                for name in chosen.targets
                for number in chosen.shards
            ],
        )


@pytest.fixture
def fuzz_options(request: pytest.FixtureRequest) -> Options:
    """The campaign that this test is a shard of."""
    return request.config.stash[OPTIONS]


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    if _is_worker(session.config) or session.config.option.collectonly:
        return (yield)
    writer = session.config.get_terminal_writer()
    writer.flush()
    screen = session.config.stash[SCREEN] = Screen(
        session.config.stash[OPTIONS], lambda: int(writer.width_of_current_line)
    )
    screen.start()
    try:
        return (yield)
    finally:
        screen.stop()
        del session.config.stash[SCREEN]


class _Away:
    """Takes the table away while pytest reports on something."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def _write(self) -> Iterator[Any]:
        screen = self.config.stash.get(SCREEN, None)
        if screen is None:
            return (yield)
        with screen.away():
            try:
                return (yield)
            finally:
                self.config.get_terminal_writer().flush()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logstart(self) -> Iterator[Any]:
        return (yield from self._write())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self) -> Iterator[Any]:
        return (yield from self._write())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logfinish(self) -> Iterator[Any]:
        return (yield from self._write())

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_testnodedown(self) -> Iterator[Any]:  # xdist's
        return (yield from self._write())


def pytest_sessionstart(session: pytest.Session) -> None:
    """Saves what earlier runs in the same place were judging when they were killed."""
    if _is_worker(session.config) or session.config.option.collectonly:
        return
    try:
        record.begin(session.config.stash[OPTIONS])
    except JournalError as error:
        raise pytest.UsageError(str(error)) from None
    runs = sorted(Path(session.config.stash[OPTIONS].folder).parent.glob("*/"))
    session.config.stash[RECOVERED] = [str(left) for run in runs for left in recover(run, _store(session.config))]


def _store(config: pytest.Config) -> Store:
    return Store(config.stash[OPTIONS].corpus or findings_folder())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    chosen = config.stash[OPTIONS]
    if _is_worker(config) or not Path(chosen.folder).exists():
        return
    terminalreporter.section("aliasfuzz")
    for line in (
        *config.stash.get(RECOVERED, []),
        *closing_lines(chosen, summarize(chosen)),
        *config.stash.get(ENDING, []),
    ):
        terminalreporter.line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Ends with 1 for a new bug and with 3 where the harness itself failed, whatever pytest calls the outcome."""
    config = session.config
    if _is_worker(config) or config.option.collectonly or exitstatus not in (0, 1, 2):
        return
    folder = Path(config.stash[OPTIONS].folder)
    recover(folder, _store(config))  # a worker of this run may have been killed
    summary = summarize(config.stash[OPTIONS])
    code = summary.exit_code
    if exitstatus != 2:  # interrupted
        session.exitstatus = 3 if exitstatus == 1 and code == 0 else code
    found = record.record(
        config.stash[OPTIONS], summary, int(session.exitstatus), "finished" if exitstatus != 2 else "interrupted"
    )
    config.stash[ENDING], kept = keep(found, folder, config.getoption("--fuzz-json"))
    if not kept:
        session.exitstatus = 3
