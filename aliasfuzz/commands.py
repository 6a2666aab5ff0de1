"""The commands of `aliasfuzz`: run, report, replay, reduce, show, script, targets, doctor."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Column, Table

import fuzz
from aliasfuzz import __version__, doctor, reducing, showing
from aliasfuzz.pictures import Terminal
from corpus.case import Case, CorpusError
from corpus.store import SHIPPED, Store, find, findings_folder, read
from executor import printing, targets
from executor.errors import TargetError
from fuzz.isolation import contained
from fuzz.options import GRADIENTS, seconds
from fuzz.pursuit import shrink
from fuzz.replay import observed
from fuzz.replay import replay as replay_case
from fuzz.script import check_script
from fuzz.script import script as script_of

# A pipe has no width: there the names of cases are written whole, to be copied and searched for.
_PIPE = "COLUMNS" not in os.environ and not (sys.stdout is not None and sys.stdout.isatty())
console = Console(highlight=False, soft_wrap=True, width=240 if _PIPE else None)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aliasfuzz")
def cli() -> None:
    """Finds bugs of tensor compilers on programs whose tensors share memory.

    \b
    Examples:
      aliasfuzz run --target thunder --budget 60s     find bugs in Lightning Thunder
      aliasfuzz report last                           a page about the last run
      aliasfuzz replay                                run all saved cases again
      aliasfuzz reduce model.py:step --target thunder shrink a function of one's own
      aliasfuzz script thunder-value-3f2a             a stand-alone file that shows one bug

    Exit codes of run and replay: 0 nothing new, 1 a new bug or a changed case, 2 bad usage, 3 the harness failed.
    """


@cli.command()
@click.option("--target", "names", multiple=True, metavar="T", help="Compiler under test; may repeat. Default: ours.")
@click.option("--against", metavar="T", help="Report only what this other target, or TARGET@PYTHON, does not share.")
@click.option("--budget", default="60s", show_default=True, metavar="TIME", help="Time for the whole run: 60s, 5m, 1h.")
@click.option(
    "--workers", default="auto", show_default=True, metavar="N", help="Worker processes, or auto: one a core."
)
@click.option("--seed", metavar="N", help="Run the programs of an earlier run again.")
@click.option("--flags", metavar="FILE", help="Known bugs to pass over, or none. Default: those shipped.")
@click.option("--float", "inexact", is_flag=True, help="Draw inexact operators too, judged against float64.")
@click.option("--relations", metavar="R", help="Rewrite programs too: all, none, all/8 (of one in 8), or names.")
@click.option("--gradients", type=click.Choice(GRADIENTS), default=GRADIENTS[0], show_default=True,
              help="Programs whose inputs require grad, where the target takes them.")  # fmt: skip
@click.option("--shrink-budget", metavar="TIME", help="Time to shrink one failure. Default: 40s.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the summary there.")  # fmt: skip
@click.option("--ray", metavar="ADDRESS", help="Run on a Ray cluster, or on one that is started here: local.")
@click.option("--gpus-per-worker", default=0.0, metavar="G", type=click.FloatRange(min=0), help="On Ray: GPUs of each.")
@click.option("--state", metavar="URL", help="On Ray: where the campaign's state is. Default: the run's folder.")
@click.option("--redis", metavar="URL", help="On Ray: a Redis server by which campaigns share what is interesting.")
@click.option("--resume", metavar="RUN", help="Go on with a campaign on Ray that was stopped.")
@click.option("--batch", metavar="W/B", help="Run one batch of a campaign on Ray again, here and alone.")
def run(  # noqa: PLR0913 - one parameter an option
    *,
    names: tuple[str, ...],
    against: str | None,
    budget: str,
    workers: str,
    seed: str | None,
    flags: str | None,
    inexact: bool,
    relations: str | None,
    gradients: str,
    shrink_budget: str | None,
    json_file: Path | None,
    ray: str | None,
    resume: str | None,
    batch: str | None,
    **on_ray: object,
) -> None:
    """Generate programs, run them on compilers, save what differs from eager.

    \b
    Examples:
      aliasfuzz run
      aliasfuzz run --target thunder --target aot_eager --budget 5m
      aliasfuzz run --target thunder --workers 1 --json summary.json
      aliasfuzz run --relations all                                 each program, and a rewriting of it that means the same
      aliasfuzz run --target inductor --against aot_eager           what Inductor alone gets wrong
      aliasfuzz run --target thunder --against thunder@old/bin/python    what the version here gets wrong, and that one not
      aliasfuzz run --ray auto --budget 2h                          on all machines of a Ray cluster
      aliasfuzz run --resume last --budget 1h
    """
    if re.fullmatch(r"auto|0*[1-9][0-9]*", workers) is None:
        raise click.BadParameter(f"a positive number, or auto, not {workers!r}", param_hint="--workers")
    if ray or resume or batch:
        from aliasfuzz import farm

        context = click.get_current_context()
        given = context.get_parameter_source("budget") is not click.core.ParameterSource.DEFAULT
        sys.exit(farm.run(context.params, budget_given=given))
    if any(on_ray.values()):
        raise click.UsageError("--gpus-per-worker, --state and --redis are for campaigns on Ray: add --ray")
    folder = Path(fuzz.__file__).parent
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(folder),
        "-q",
        "--tb=short",
        "-rN",
        "-p",
        "no:cacheprovider",
        "--fuzz-budget",
        budget,
    ]
    command += [part for name in names for part in ("--fuzz-target", name)]
    command += ["-n", workers] if workers != "1" else []
    command += ["--fuzz-seed", seed] if seed else []
    command += ["--fuzz-flags", flags] if flags else []
    command += ["--fuzz-against", against] if against else []
    command += ["--fuzz-float"] if inexact else []
    command += ["--fuzz-relations", relations] if relations else []
    command += ["--fuzz-gradients", gradients] if gradients != GRADIENTS[0] else []
    command += ["--fuzz-shrink-budget", shrink_budget] if shrink_budget else []
    command += ["--fuzz-json", str(json_file.resolve())] if json_file else []
    sys.exit(_exit_code(_call(command)))


def _call(command: list[str]) -> int:
    """Runs a command to its end. Ctrl-C reaches it too, and it is given the time to keep what it found."""
    process = subprocess.Popen(command)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def _exit_code(pytest_code: int) -> int:
    """Ours for pytest's: it ends with the summary's own code, 4 for bad usage, and 2, or by the signal, when interrupted."""
    return {0: 0, 1: 1, 2: 130, 4: 2, -signal.SIGINT: 130}.get(pytest_code, 3)


@cli.command(name="report")
@click.argument("run_", metavar="RUN")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Where to write the page. Default: report.html in the run's folder.")  # fmt: skip
def report_(run_: str, *, output: Path | None) -> None:
    """Make a page about a run: totals, throughput, findings with pictures, coverage, versions.

    RUN is the run's folder, the beginning of its name in .aliasfuzz/runs, or "last". The page is one HTML file that needs
    nothing else. Runs that were interrupted or killed have one too. Findings are run again, to be drawn.

    \b
    Examples:
      aliasfuzz report last
      aliasfuzz report 20260131-120000 -o report.html
    """
    from aliasfuzz import report

    folder = report.find_run(run_)
    file = output or folder / "report.html"
    report.write(folder, file)
    console.print(f"wrote {file}", markup=False)


@cli.command()
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option("--target", metavar="T", help="Another compiler than the one each case was found on.")
@click.option("--update", is_flag=True, help="Write the states that are seen now to the case files.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def replay(cases: tuple[str, ...], target: str | None, *, update: bool, as_json: bool) -> None:
    """Run saved cases again: all shipped and found ones, or those named.

    CASE is a file, or a name or digest, or the beginning of one. A case is open (it fails as recorded), fixed, changed
    (it fails in another way) or flaky (it fails in some of its runs).

    --update keeps what a case did before in its history, prints only what changed, and exits with 0; a file that cannot
    be read stays as it is.

    \b
    Examples:
      aliasfuzz replay
      aliasfuzz replay thunder-value-3f2a
      aliasfuzz replay --target pipeline:eager
      aliasfuzz replay --update
    """
    if target is not None:
        targets.get(target)
        if update:
            raise click.UsageError("--update is about what a case does on its own target: leave out --target")
    rows: list[tuple[str, ...]] = []
    worst = 0
    for path, case in _chosen(cases):
        if isinstance(case, CorpusError):
            rows.append((path.name, "", "", "unreadable", str(case)))
            worst = max(worst, 2)
            continue
        outcome = replay_case(case, target)
        what = outcome.text.splitlines()[0]
        if update:
            now = observed(case, outcome)
            if now == case:
                continue
            if (refusal := _updated(path, now)) is not None:
                rows.append((path.name, case.target, case.state, "not saved", refusal))
                worst = 2
                continue
        elif outcome.state in ("open", "changed") and case.state not in (outcome.state, "flaky"):
            worst = max(worst, 1)
        rows.append((path.name, target or case.target, case.state, outcome.state, what))
    _print_rows(("case", "target", "recorded", "now", "what"), rows, as_json=as_json, nothing="no case changed")
    sys.exit(worst)


def _print_rows(names: tuple[str, ...], rows: Sequence[tuple[Any, ...]], *, as_json: bool, nothing: str = "") -> None:
    """Prints rows as a table, or as a list of JSON objects."""
    if as_json:
        click.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
        return
    table = Table(*(Column(name, overflow="fold") for name in names), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(escape(cell) if isinstance(cell, str) else ("yes" if cell else "no") for cell in row))
    console.print(table if rows else nothing)


def _updated(path: Path, case: Case) -> str | None:
    """Writes a case to its file; what is in the way, in words. The file is as it was then."""
    try:
        Store(path.parent).update(path, case)
    except CorpusError as error:
        return str(error)
    return None


def _chosen(names: tuple[str, ...]) -> list[tuple[Path, Case | CorpusError]]:
    if names:
        return [(path, _read(path)) for path in map(find, names)]
    return [entry for folder in (SHIPPED, findings_folder()) for entry in Store(folder).cases()]


def _read(path: Path) -> Case | CorpusError:
    """The case, or why there is none: one bad file does not keep the others from being replayed."""
    try:
        return read(path)
    except CorpusError as error:
        return error


@cli.command()
@click.argument("subject", metavar="CASE | MODULE:FUNCTION")
@click.option("--target", metavar="T", help="Compiler under test. Default: the case's own, or ours for a function.")
@click.option("--args", metavar="NAME", help="Function beside FUNCTION that makes its arguments.")
@click.option("--shrink-budget", default="60s", show_default=True, metavar="TIME", help="Time for it: 30s, 5m.")
@click.option("--steps", default=0, metavar="N", type=click.IntRange(min=0), help="Programs to try. Default: no limit.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def reduce(
    *, subject: str, target: str | None, args: str | None, shrink_budget: str, steps: int, as_json: bool
) -> None:
    """Shrink a failing program to the least that still shows the same bug, and save it as a case.

    It is a saved case (a file, a name, a digest, or the beginning of one), or a Python function over tensors, as
    MODULE:FUNCTION or FILE.py:FUNCTION. The function's arguments are what FUNCTION_args() beside it returns, or else args().
    They may share memory; what they hold is read once.

    Ctrl-C ends it early; the smallest program so far is kept. Other bugs that are met on the way are saved too.

    \b
    Examples:
      aliasfuzz reduce thunder-value-3f2a
      aliasfuzz reduce train.py:step --target thunder --shrink-budget 5m
      aliasfuzz reduce mypackage.model:forward --args example_inputs
    """
    begun, limit = reducing.start(subject, args, target), seconds(shrink_budget)
    with contained(targets.get(begun.target)) as compiler:
        first = reducing.failure(begun, compiler)
        with reducing.watched(Console(stderr=True, highlight=False) if as_json else console) as watch:
            pursuit, why = shrink(
                first, compiler, reducing.judge(begun, compiler), seconds=limit, steps=steps, watch=watch
            )
        kept = reducing.keep(pursuit, subject)
    if as_json:
        click.echo(json.dumps(reducing.as_data(kept, why), indent=2))
        return
    for line in reducing.lines(kept, why):
        console.print(line)


@cli.command()
@click.argument("case")
@click.option("--svg", "svg_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the memory map there too, for light and dark.")  # fmt: skip
@click.option("--kernels", is_flag=True, help="Show what nvFuser makes of the program, on a GPU.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def show(case: str, *, svg_file: Path | None, kernels: bool, as_json: bool) -> None:
    """Print a case: its program, its inputs, what went wrong, and a map of its memory.

    The map is of a new run, in eager and on the case's compiler: each storage as a row of cells, each tensor as a band
    over the cells that it touches, statement by statement, and the first wrong cell.

    \b
    Examples:
      aliasfuzz show thunder-value-3f2a
      aliasfuzz show thunder-value-3f2a --svg bug.svg
    """
    path = find(case)
    found = read(path)
    picture = showing.picture(found)
    if svg_file is not None:
        showing.write_svg(picture, svg_file, path.stem)
    if as_json:
        click.echo(json.dumps(showing.as_data(found, picture, path.name), indent=2))
        return
    console.print(f"[bold]{escape(path.name)}[/]")
    for name, value in showing.facts(found).items():
        console.print(f"  {name}: {escape(str(value))}")
    console.print(Syntax(printing.listing(found.program), "python", background_color="default"))
    console.print(Terminal(picture))
    if kernels:
        from aliasfuzz import kernels as generated

        console.print(generated.kernels(found.program), markup=False, highlight=False)


@cli.command()
@click.argument("case")
@click.option("--unchecked", is_flag=True, help="Do not run the script before printing it.")
def script(case: str, *, unchecked: bool) -> None:
    """Print a Python file that shows a case without aliasfuzz.

    It imports only torch and the compiler, and was run once in a clean process before it is printed.

    \b
    Example:
      aliasfuzz script thunder-value-3f2a > bug.py && python bug.py
    """
    found = read(find(case))
    text = script_of(found)
    if not unchecked:
        outcome = check_script(text)
        note = "shows the difference" if outcome.reproduces else "shows no difference"
        click.echo(f"# Run in a clean process: it {note} (exit code {outcome.code}).", err=True)
    click.echo(text, nl=False)


@cli.command(name="targets")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def targets_(*, as_json: bool) -> None:
    """List the compilers that can be tested, and whether they are installed.

    \b
    Example:
      aliasfuzz targets
    """
    rows = [(name, *_availability(name)) for name in targets.names()]
    _print_rows(
        ("target", "available", "about") if not as_json else ("name", "available", "about"), rows, as_json=as_json
    )


@cli.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def doctor_(*, as_json: bool) -> None:
    """Say what is found on this machine, and what to install for what is not.

    Exits with 0 if the default target can run, else with 3.

    \b
    Example:
      aliasfuzz doctor
    """
    found = doctor.checks()
    rows = [(check.name, check.found, check.what, check.remedy) for check in found]
    _print_rows(("name", "found", "what", "remedy"), rows, as_json=as_json)
    sys.exit(0 if next(check.found for check in found if check.name == doctor.DEFAULT_TARGET) else 3)


def _availability(name: str) -> tuple[bool, str]:
    try:
        target = targets.get(name)
    except TargetError as error:
        return False, str(error)
    return True, target.about or (type(target).__doc__ or name).strip().splitlines()[0]
