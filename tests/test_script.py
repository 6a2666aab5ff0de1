from __future__ import annotations

import ast
import contextlib
import io
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

from corpus.case import Case
from corpus.signature import Signature
from corpus.store import Store
from executor import targets
from executor.memory import describe
from executor.targets.base import Target
from executor.tracing import trace, trace_refused
from fuzz.script import check_script, script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class Planted(Target):
    """A compiler that is a piece of text."""

    name = "planted"

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        raise NotImplementedError(fn, example_args)

    def script(self) -> list[str]:
        return ["import torch", *self.lines]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these lines the compiler that every case is scripted for."""
    return lambda *lines: monkeypatch.setattr(targets, "get", lambda _: Planted(*lines))


def case(fn: Callable[..., Any], *args: Any, symptom: str = "value", **changes: Any) -> Case:
    program = trace(fn, *args).without_sources()
    made = Case(program=program, target="planted", state="open", signature=Signature("planted", symptom))
    return msgspec.structs.replace(made, **changes)


def run(text: str) -> tuple[int, str]:
    """What the script's `main` returns and prints, in this process."""
    namespace: dict[str, Any] = {"__name__": "some_script"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, "script.py", "exec"), namespace)  # noqa: S102 (the text under test)
        code = namespace["main"]()
    return code, printed.getvalue()


def pair() -> list[torch.Tensor]:
    base = torch.arange(1.0, 9.0).reshape(2, 4)
    return [base[0], base[1]]


def add(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a.add_(b), a + 0


WRONG = {
    "value": ("result[1]", "    return a.add_(b), a + (a[0] != 1)"),
    "memory": ("storage 0", "    return a.add_(b), (b.neg_(), a + 0)[1]"),
    "dtype": ("result[1].dtype", "    return a.add_(b), a.double()"),
    "shape": ("result[1].shape", "    return a.add_(b), a.view(1, 4) + 0"),
    "strides": ("result[1].stride()", "    return a.add_(b), torch.stack([a, a], 1)[:, 0]"),
    "structure": ("result", "    return [a.add_(b), a + 0]"),
    "exception": ("exception", "    raise NotImplementedError('no add_')"),
    "alias": ("result[1] lies in", "    return a.add_(b), a"),
    "identity": ("result[0] is the object", "    return a.add_(b)[:], a + 0"),
}


@pytest.mark.parametrize("symptom", WRONG)
def test_each_symptom_is_shown(symptom: str, plant: Callable[..., None]) -> None:
    where, body = WRONG[symptom]
    plant("def compiled(a, b):", body)
    code, printed = run(script(case(add, *pair(), symptom=symptom)))
    assert code == 1
    assert f"call 1, {where}:\n  expected " in printed
    assert "\n  actual   " in printed
    assert printed.splitlines()[-1].startswith("DIFFERS from eager: ")
    plant("compiled = program")
    assert run(script(case(add, *pair(), symptom=symptom))) == (0, "equal to eager\n")


def test_expected_and_actual_are_readable(plant: Callable[..., None]) -> None:
    plant("def compiled(a, b):", "    return a.mul_(b), a + 0")
    assert run(script(case(add, *pair())))[1] == (
        "call 1, storage 0:\n"
        "  expected tensor([ 6.,  8., 10., 12.,  5.,  6.,  7.,  8.])\n"
        "  actual   tensor([ 5., 12., 21., 32.,  5.,  6.,  7.,  8.])\n"
        "call 1, result[0]:\n  expected tensor([ 6.,  8., 10., 12.])\n  actual   tensor([ 5., 12., 21., 32.])\n"
        "call 1, result[1]:\n  expected tensor([ 6.,  8., 10., 12.])\n  actual   tensor([ 5., 12., 21., 32.])\n"
        "DIFFERS from eager: 3 observations\n"
    )


def test_sharing_of_memory_is_compared_only_where_it_is_the_symptom(plant: Callable[..., None]) -> None:
    plant("def compiled(a, b):", "    return a.add_(b)[:], a")
    assert run(script(case(add, *pair(), symptom="value")))[0] == 0
    assert run(script(case(add, *pair(), symptom="alias")))[0] == 1
    assert run(script(case(add, *pair(), signature=None, state="fixed")))[0] == 1


def test_later_calls_use_the_one_compiled_function(plant: Callable[..., None]) -> None:
    plant("def compiled(a, b, patterns=set()):", "    patterns.add(a is b)",
          "    return (b if True in patterns else a).add_(b), a + 0")  # fmt: skip
    twice = torch.ones(4)
    made = case(add, twice, twice, symptom="value in a later call")
    assert run(script(made))[0] == 0
    code, printed = run(script(msgspec.structs.replace(made, calls=(describe(pair()),))))
    assert code == 1
    assert "call 2, storage 0:" in printed
    assert "call 1" not in printed


def refuse(x: torch.Tensor) -> torch.Tensor:
    return x[1:].add_(x[:-1])


@pytest.mark.parametrize(("body", "code"), [
    ("    raise RuntimeError('other words')", 0), ("    raise ValueError from RuntimeError()", 0),
    ("    raise ValueError", 1), ("    return x", 1), ("    x.add_(1); raise RuntimeError", 1),
])  # fmt: skip
def test_what_eager_refuses_must_be_refused(body: str, code: int, plant: Callable[..., None]) -> None:
    plant("def compiled(x):", body)
    program = trace_refused(refuse, torch.arange(6.0)).without_sources()
    assert run(script(case(add, *pair(), program=program, symptom="no-exception")))[0] == code


def test_memory_is_undefined_where_a_refused_write_overlaps_itself(plant: Callable[..., None]) -> None:
    plant("def compiled(x):", "    x.add_(1)", "    raise RuntimeError")
    program = trace_refused(lambda x: x.expand(3, 4).add_(1), torch.ones(3, 1)).without_sources()
    assert run(script(case(add, *pair(), program=program)))[0] == 0


def test_inexact_cases_have_a_tolerance(plant: Callable[..., None]) -> None:
    plant("def compiled(x):", "    return torch.nextafter(x.exp(), torch.tensor(9.0))")
    made = case(torch.exp, torch.linspace(-1, 1, 5))
    assert run(script(made))[0] == 1
    assert run(script(msgspec.structs.replace(made, exact=False)))[0] == 0
    plant("def compiled(x):", "    return x.exp() * 1.001")
    assert run(script(msgspec.structs.replace(made, exact=False)))[0] == 1


def test_nan_equals_nan_and_bytes_are_compared_where_dtypes_mix(plant: Callable[..., None]) -> None:
    x = torch.tensor([torch.nan, 1.0])
    plant("def compiled(x):", "    return program(x)")
    assert run(script(case(torch.neg, x)))[0] == 0
    # Another NaN is the same float, yet other bits for those who see integers.
    plant("def compiled(x, y):", "    y[0] = 0x7fc00001", "    return y + 0")
    mixed = case(lambda _, y: y + 0, x, x.view(torch.int32))
    assert "call 1, storage 0:" in run(script(mixed))[1]


def test_parameters_may_be_trees_and_have_any_name(plant: Callable[..., None]) -> None:
    plant("compiled = program")

    def fn(s0: Any, torch: Any, **rest: Any) -> Any:
        return s0[0] + s0[1]["k"], torch, rest["class"] * rest["s"]

    x = torch.arange(4.0)
    program = trace(fn, [x, {"k": x[1:2]}, 2.5], x[2:], **{"class": x[:2], "s": x[:1]}).without_sources()
    text = script(case(add, *pair(), program=program))
    assert run(text) == (0, "equal to eager\n")


def test_notes_cannot_break_the_text(plant: Callable[..., None]) -> None:
    plant("compiled = program")
    text = script(case(add, *pair(), note='a """ quote, a \\ and a second\nline', versions={"torch": "2.13.0"}))
    assert run(text)[0] == 0
    documented = ast.get_docstring(ast.parse(text)) or ""
    assert "a ''' quote, a \\ and a second\nline" in documented
    assert "Seen with torch 2.13.0." in documented


@pytest.mark.parametrize("name", ["null", "aot_eager", "functionalize"])
def test_scripts_import_torch_and_nothing_of_ours(name: str) -> None:
    tree = ast.parse(script(case(add, *pair(), target=name)))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(node) for node in imports] == ["import torch"]


def test_scripts_for_our_compiler_import_it_alone() -> None:
    assert "\nfrom aliasfuzz import jit\n" in script(case(add, *pair(), target="pipeline:eager"))


@pytest.mark.parametrize("path", Store().files(), ids=lambda path: path.name)
def test_shipped_cases_have_scripts_that_find_eager_equal_to_itself(path: Path) -> None:
    made = msgspec.structs.replace(Store().load(path), target="null")
    assert run(script(made)) == (0, "equal to eager\n")


def test_a_script_runs_in_a_clean_process(plant: Callable[..., None]) -> None:
    plant("def compiled(a, b):", "    return a.mul_(b), a + 0")
    ran = check_script(script(case(add, *pair())))
    assert (ran.outcome, ran.code, ran.reproduces) == ("differs", 1, True)
    assert "  expected tensor([ 6.,  8., 10., 12.])" in ran.output


@pytest.mark.thunder
def test_a_bug_of_thunder_shows_in_a_clean_process() -> None:
    made = case(lambda a, b: a.add_(b), *pair(), target="thunder")
    ran = check_script(script(made))
    assert (ran.outcome, ran.reproduces) == ("differs", True), ran.output


@pytest.mark.parametrize(("text", "outcome", "code"), [
    ("print('equal to eager')", "equal", 0),
    ("print('DIFFERS from eager: 1'); raise SystemExit(1)", "differs", 1),
    ("print('no verdict')", "broken", 0),
    ("raise ImportError('no such compiler')", "broken", 1),
    ("import corpus", "broken", 1),
    ("from executor import jit", "broken", 1),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crash", -11),
    ("import os; os._exit(7)", "crash", 7),
    ("import os; assert os.listdir() != [] and 'PYTHONPATH' not in os.environ; print('equal to eager')", "equal", 0),
])  # fmt: skip
def test_outcomes(text: str, outcome: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    ran = check_script(text)
    assert (ran.outcome, ran.code) == (outcome, code), ran.output
    assert ran.reproduces == (outcome in {"differs", "crash"})


def test_a_script_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    left = tmp_path / "left"
    child = f"import time, pathlib; time.sleep(2); pathlib.Path({str(left)!r}).touch()"
    text = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {child!r}])\ntime.sleep(60)"
    ran = check_script(text, timeout=1)
    assert (ran.outcome, ran.code, ran.reproduces) == ("timeout", None, True)
    with pytest.raises(TimeoutError):
        _wait_for(left)


def _wait_for(path: Path) -> None:
    import time

    end = time.monotonic() + 2
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.1)
