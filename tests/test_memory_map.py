"""Memory maps: which cells are in which band, which cell is wrong, and what the terminal and the SVG file hold of it."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from rich.console import Console

from aliasfuzz import commands, showing
from aliasfuzz.pictures import Picture, Terminal, draw, svg
from aliasfuzz.pictures.columns import READABLE, columns
from aliasfuzz.pictures.model import Band, Row, Step
from aliasfuzz.pictures.story import story
from corpus.case import Case
from corpus.signature import Signature
from corpus.store import Store
from executor import targets
from executor.args import Ref
from executor.memory import describe
from executor.program import Call, Inputs, Program
from executor.targets.base import Target
from executor.tracing import trace
from fuzz.check import check
from fuzz.subjects import of_function
from strategies.programs import programs
from tests.planted import Crashing, Severed


class Shifted(Target):
    """Returns views of arguments one element further to the left than they lie."""

    name = "shifted"
    needs_source = False

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        def compiled(*args: torch.Tensor) -> Any:
            out = fn(*args)
            return out.as_strided(out.shape, out.stride(), out.storage_offset() - 1)

        return compiled


class Talkative(Target):
    """Returns one thing more than it was asked for."""

    name = "talkative"
    needs_source = False

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        return lambda *args: (fn(*args), torch.zeros(3))


class Forgetful(Target):
    """From its second call on, writes nothing."""

    name = "forgetful"
    needs_source = False

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        called: list[int] = []

        def compiled(*args: torch.Tensor) -> Any:
            called.append(1)
            return fn(*args) if len(called) == 1 else fn(*(arg.clone() for arg in args))

        return compiled


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted targets by their names."""
    known = {t.name: f"{t.__module__}:{t.__name__}" for t in (Severed, Crashing, Shifted, Forgetful, Talkative)}
    monkeypatch.setattr(targets, "_BUILT_IN", {**targets._BUILT_IN, **known})


def case_of(
    fn: Callable[..., Any], *args: Any, target: str = "null", calls: Sequence[Inputs] = (), exact: bool = True
) -> Case:
    program = trace(fn, *args).without_sources()
    return Case(program=program, target=target, state="fixed", calls=tuple(calls), exact=exact)


def drawn(fn: Callable[..., Any], *args: Any, target: str = "null", calls: Sequence[Inputs] = ()) -> Picture:
    case = case_of(fn, *args, target=target, calls=calls)
    verdict = check(case.program, target=target, calls=case.calls)
    return draw(case, verdict, str(verdict))


def cells(row: Row, band: Band) -> list[int]:
    """The cells under a band; a folded column counts as its first one."""
    return [column.start for column, mark in zip(row.columns, band.marks, strict=True) if mark is not None]


def band(step: Step, name: str) -> Band:
    return next(band for row in step.rows for band in row.bands if band.name == name)


def under(step: Step, name: str) -> list[int]:
    """The cells that a step's band of this name touches."""
    return next(cells(row, band) for row in step.rows for band in row.bands if band.name == name)


def row(step: Step, storage: str, side: str = "") -> Row:
    return next(row for row in step.rows if (row.storage, row.side) == (storage, side))


def texts(row: Row) -> list[str]:
    return [column.text for column in row.columns]


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - we wrote it


def printed(picture: Picture, width: int = 72, **options: Any) -> str:
    file = io.StringIO()
    Console(file=file, width=width, **options).print(Terminal(picture))
    return file.getvalue()


def shift(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return b * 2


def windows() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(6.0)
    return x[:3], x[2:5]


def test_a_band_lies_over_the_cells_that_its_tensor_touches() -> None:
    x = torch.arange(12.0).view(3, 4)
    first = drawn(lambda column, whole: column.add_(whole.sum()), x[:, 1], x).steps[0]
    assert under(first, "column") == [1, 5, 9]
    assert under(first, "whole") == list(range(12))
    assert [mark for mark in band(first, "column").marks if mark] == ["0", "1", "2"]


def test_the_marks_are_positions_in_row_major_order() -> None:
    first = drawn(lambda t: t.add_(1), torch.arange(6.0).view(2, 3).t()).steps[0]
    assert band(first, "t").marks == ("0", "2", "4", "1", "3", "5")


@pytest.mark.parametrize(("copies", "mark"), [(2, "0,1"), (5, "5x")])
def test_elements_that_lie_in_one_cell_are_counted_where_they_are_many(copies: int, mark: str) -> None:
    first = drawn(lambda x: x + 1, torch.arange(2.0)[:1].expand(copies)).steps[0]
    assert band(first, "x").marks == (mark, None)


def test_an_element_of_a_wider_dtype_lies_over_several_cells() -> None:
    x = torch.arange(4.0)
    first = drawn(lambda flat, pairs: (flat.add_(1), pairs + 1)[1], x, torch.view_as_complex(x.view(2, 2))[1:]).steps[0]
    assert band(first, "pairs").marks == (None, None, "0", "0")
    assert first.rows[0].about == "float32[4], by 4 bytes"
    assert band(first, "pairs").note == "(1,) complex64"


def test_each_statement_has_its_source_text_and_what_it_does_to_its_tensors() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.copy_(b)
        c = b.t()
        c.add_(1)
        return c * 2

    steps = drawn(fn, torch.zeros(2, 2), torch.ones(2, 2)).steps
    assert [step.text for step in steps] == ["inputs", "a.copy_(b)", "c = b.t()", "c.add_(1)", "d = c * 2", "return d"]
    access = [{band.name: band.access for row in step.rows for band in row.bands} for step in steps]
    assert access[1:5] == [
        {"a": "writes", "b": "reads"}, {"c": "views"}, {"c": "updates"}, {"c": "reads", "d": "writes"},
    ]  # fmt: skip


def test_a_storage_is_drawn_from_the_statement_on_that_allocates_it() -> None:
    inputs, made, added, _ = drawn(lambda a: a.clone().add_(1), torch.zeros(2)).steps
    assert [row.storage for row in inputs.rows] == ["s0"]
    assert [(row.storage, row.about) for row in made.rows] == [("s0", "float32[2]"), ("s1", "float32[2], new")]
    assert [(row.storage, row.about) for row in added.rows] == [("s1", "float32[2]")]


def test_what_a_statement_changes_is_marked() -> None:
    step = drawn(lambda a: a[::2].add_(1), torch.arange(4.0)).steps[-2]
    assert texts(step.rows[0]) == ["1", "1", "3", "3"]
    assert [column.state for column in step.rows[0].columns] == ["changed", "plain", "changed", "plain"]


def test_views_that_only_lead_to_others_in_one_line_have_no_band() -> None:
    step = drawn(lambda a: a[1][0].add_(1), torch.zeros(2, 2)).steps[1]
    assert step.text == "b = a[1, 0]"
    assert [band.name for band in step.rows[0].bands] == ["b"]


def test_a_statement_that_does_nothing_has_a_step() -> None:
    program = trace(lambda a: a.add_(1), torch.zeros(2))
    nothing = Call("aten.contiguous.default", (Ref(0),), (), (0,))
    program = msgspec.structs.replace(program, calls=(nothing, *program.calls)).without_sources()
    steps = draw(Case(program=program, target="null", state="fixed"), None, "").steps
    assert [step.text for step in steps] == ["inputs", "b = a.contiguous()", "b.add_(1)", "return b"]
    assert steps[1].rows == ()


@settings(max_examples=20, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_any_program_can_be_drawn_and_ends_as_in_eager(program: Program) -> None:
    case = Case(program=program.without_sources(), target="severed", state="fixed")
    verdict = check(case.program, target="severed")
    told = story(case, verdict)
    for number, data in told.moments[-1].items():
        if told.names[number] in told.shared:
            assert np.array_equal(data, told.eager.contents[told.names[number]])
    picture = draw(case, verdict, str(verdict))
    assert (picture.wrong is not None) == (verdict.symptom in ("value", "memory"))
    assert picture.steps[-1].text in printed(picture)
    assert parsed(svg(picture)).tag.endswith("svg")


def test_results_in_lists_parameters_in_lists_and_constants_go_by_their_names() -> None:
    def fn(xs: list[torch.Tensor]) -> torch.Tensor:
        one, other = xs[0].unbind()
        one.add_(other)
        return xs[1] + torch.tensor([1.0, 2.0])

    steps = drawn(fn, [torch.zeros(2, 2), torch.ones(2)]).steps
    assert [band.name for row in steps[0].rows for band in row.bands][:2] == ["xs0", "xs1"]
    unbound = next(step for step in steps if step.text.endswith(" = tuple(xs0)"))
    assert [band.access for band in unbound.rows[0].bands] == ["views", "views"]
    assert unbound.text.startswith(", ".join(band.name for band in unbound.rows[0].bands) + " = ")
    added = steps[-2]
    assert [(band.name in added.text, band.access) for row in added.rows for band in row.bands] == [
        (True, "reads"), (True, "reads"), (True, "writes"),
    ]  # fmt: skip


def test_what_eager_refuses_says_so() -> None:
    x = torch.arange(4.0)
    program = of_function(lambda a, b: a.copy_(b), [x[1:], x[:-1]]).program
    assert program is not None
    case = Case(program=program.without_sources(), target="null", state="fixed")
    steps = draw(case, check(case.program, target="null"), "").steps
    assert [step.notes for step in steps] == [(), ("eager refuses it: RuntimeError",), ()]
    assert texts(row(steps[1], "s0")) == ["0", "1", "2", "3"]


def test_without_a_verdict_eager_is_drawn_alone() -> None:
    picture = draw(case_of(shift, *windows()), None, "no target")
    assert {row.side for row in picture.steps[-1].rows} == {"eager"}
    assert (picture.verdict, picture.wrong) == ("no target", None)


def test_the_first_wrong_cell_with_both_values_and_who_wrote_it() -> None:
    picture = drawn(shift, *windows(), target="severed")
    assert picture.wrong is not None
    assert str(picture.wrong) == "s1[0], output: expected 6, got 4; last written by c = b * 2"
    assert [step.faults for step in picture.steps] == [(), (), ("writes s1[0] last",), ()]
    last = picture.steps[-1]
    assert texts(row(last, "s1", "eager")) == ["6", "6", "8"]
    assert texts(row(last, "s1", "severed")) == ["4", "6", "8"]
    assert [column.state for column in row(last, "s1", "severed").columns] == ["wrong", "plain", "plain"]
    pointer = row(last, "s1", "severed").pointer
    assert pointer is not None
    assert (pointer.column, pointer.text) == (0, "expected 6, got 4")


def test_memory_that_is_wrong_is_marked_on_both_sides() -> None:
    last = drawn(shift, *windows(), target="severed").steps[-1]
    states = [[column.state for column in row(last, "s0", side).columns] for side in ("eager", "severed")]
    assert states == [["plain"] * 2 + ["right"] + ["plain"] * 3, ["plain"] * 2 + ["wrong"] + ["plain"] * 3]


def test_an_output_that_lies_elsewhere_is_astray_and_its_cells_are_not_wrong() -> None:
    picture = drawn(lambda x: x[2:4], torch.arange(6.0), target="shifted")
    eager, there = picture.steps[-1].rows
    assert [cells(side, side.bands[0]) for side in (eager, there)] == [[2, 3], [1, 2]]
    assert [side.bands[0].astray for side in (eager, there)] == [False, True]
    assert {column.state for column in there.columns} == {"plain"}
    assert there.pointer is not None
    assert (there.pointer.column, there.pointer.text) == (1, "expected 2, got 1; no statement writes it")
    assert [fault.split(":")[0] for fault in picture.steps[-1].faults] == ["alias"]


def test_a_later_call_is_drawn_with_what_the_calls_before_were_given() -> None:
    x, y = torch.arange(4.0), torch.arange(4.0)
    later = describe([x[:2], y[2:]])
    picture = drawn(shift, *windows(), target="forgetful", calls=[later])
    texts_of = [step.text for step in picture.steps]
    assert texts_of == ["call 1 was given", "call 2 is given", "a.add_(1)", "c = b * 2", "return c"]
    assert [row.storage for row in picture.steps[0].rows] == ["s0"]
    assert [row.storage for row in picture.steps[1].rows] == ["s0", "s1"]
    assert str(picture.wrong) == "s0[0], memory: expected 1, got 0; last written by a.add_(1)"


def test_a_target_that_raises_leaves_eager_alone_and_its_exception() -> None:
    last = drawn(lambda x: x.t(), torch.zeros(2, 3), target="crashing").steps[-1]
    assert {row.side for row in last.rows} == {"eager"}
    assert last.faults == ("exception: KeyError: 'transposed'",)


def test_more_outputs_than_eager_has_are_told_and_not_drawn() -> None:
    last = drawn(lambda a: a + 1, torch.zeros(2), target="talkative").steps[-1]
    assert [(row.storage, row.side) for row in last.rows] == [("s1", "eager"), ("s1", "talkative")]
    assert last.faults[0].startswith("structure: expected")


def test_small_storages_have_a_column_for_each_cell() -> None:
    assert columns(READABLE, [], 0) == [(i, i + 1) for i in range(READABLE)]


@pytest.mark.parametrize("focus", [0, 500, 999])
@pytest.mark.parametrize("step", [1, 2, 100])
def test_large_storages_are_folded_to_ranges_that_leave_out_nothing(focus: int, step: int) -> None:
    found = columns(1000, [np.arange(0, 1000, step)], focus)
    assert len(found) <= READABLE
    assert [start for start, _ in found] == [0, *(stop for _, stop in found[:-1])]
    assert found[-1][1] == 1000
    assert (focus, focus + 1) in found


def test_a_folded_range_says_how_much_of_it_is_touched() -> None:
    x = torch.arange(200.0)
    first = drawn(lambda a, b: a.add_(1), x, x[::2]).steps[0]
    last = first.rows[0].columns[-1]
    assert (last.place, last.text) == ("24..199", "…")
    assert (band(first, "a").marks[-1], band(first, "b").marks[-1]) == ("all", "88 of 176")


def test_empty_tensors_are_named() -> None:
    picture = drawn(lambda a, b: b.add_(1), torch.zeros(0, 3), torch.zeros(2))
    assert row(picture.steps[0], "s0").columns == ()
    assert "a (0, 3)" in printed(picture)
    assert "a (0, 3)" in svg(picture)


EXPECTED = """\
┌ inputs
│                       0   1   2   3   4   5
│ s0 float32[6]         0   1   2   3   4   5
│   a (3,)             ·0· ·1· ·2·
│   b (3,)                     ·0· ·1· ·2·
├ a.add_(1)
│                       0   1   2   3   4   5
│ s0 float32[6]         *1  *2  *3  3   4   5
│   a read, written    {0} {1} {2}
├ c = b * 2   ✗ writes s1[0] last
│                       0   1   2   3   4   5
│ s0 float32[6]         1   2   3   3   4   5
│   b read                     (0) (1) (2)
│                       0   1   2
│ s1 float32[3], new    6   6   8
│   c written          [0] [1] [2]
└ return c
                        0   1   2   3   4   5
  s0 eager              1   2   ✓3  3   4   5
                        0   1   2   3   4   5
  s0 severed            1   2   ✗2  3   4   5
                        0   1   2
  s1 eager              ✓6  6   8
    c (3,)             ·0· ·1· ·2·
                        0   1   2
  s1 severed            ✗4  6   8
    c (3,)             ·0· ·1· ·2·
                        ▲ expected 6, got 4
·0· lies there  (0) read  [0] written  {0} read, then
written
the number is the element's position in its tensor, in
row-major order
* changed by the statement   ✓ what eager leaves   ✗ what is
wrong
 ✗ s1[0], output: expected 6, got 4; last written by c = b *
2
it is wrong
"""


def test_the_text_of_the_terminal() -> None:
    case = case_of(shift, *windows(), target="severed")
    picture = draw(case, check(case.program, target="severed"), "it is wrong")
    assert "".join(f"{line.rstrip()}\n" for line in printed(picture, 60).splitlines()) == EXPECTED


@pytest.mark.parametrize("width", [50, 72, 110])
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_left_out(width: int) -> None:
    x = torch.arange(100.0, 164.0)
    lines = printed(drawn(lambda a, b: a.add_(b), x, x.flip(0)), width).splitlines()
    assert max(map(len, lines)) <= width
    shown = " ".join(lines).split()
    assert {str(i) for i in range(100, 164)} <= set(shown)


def test_accesses_differ_without_colours() -> None:
    text = printed(drawn(lambda a, b: a.copy_(b), torch.zeros(1), torch.ones(1)))
    assert "a written     [0]" in text
    assert "b read        (0)" in text


def test_the_file_has_both_schemes_and_nothing_from_elsewhere() -> None:
    text = svg(drawn(shift, *windows(), target="severed"), "two-windows")
    root = parsed(text)
    assert root.attrib["class"] == "memory-map"
    style = next(element.text or "" for element in root if element.tag.endswith("style"))
    light, _, dark = style.partition("@media (prefers-color-scheme:dark)")
    for scheme in (light, dark):
        assert ".memory-map .paper{fill:" in scheme
    assert ".memory-map .paper{fill:#ffffff}" in light
    assert ".memory-map .paper{fill:#ffffff}" not in dark
    assert text.count("http") == 1
    assert "url(" not in text


def test_the_file_marks_the_wrong_cells_and_the_first_of_them() -> None:
    root = parsed(svg(drawn(shift, *windows(), target="severed")))
    classes = [element.attrib.get("class", "").split() for element in root.iter() if element.tag.endswith("rect")]
    assert [sum(name in found for found in classes) for name in ("right", "wrong", "first")] == [2, 2, 1]
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "▲ expected 6, got 4" in words
    assert "✗ writes s1[0] last" in words


def test_what_lies_in_the_file_is_escaped() -> None:
    case = case_of(lambda a: a + 1, torch.zeros(1))
    text = svg(draw(case, None, "a < b & c"), "<title>")
    assert "a < b & c" in [element.text for element in parsed(text).iter()]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A case on which `severed` fails."""
    monkeypatch.setenv("ALIASFUZZ_CORPUS", str(tmp_path))
    program = trace(shift, *windows()).without_sources()
    signature = check(program, target="severed").signature
    return Store(tmp_path).save(Case(program=program, target="severed", state="open", signature=signature), "shift")


def run(*args: str) -> Any:
    return CliRunner().invoke(commands.cli, args, catch_exceptions=False)


def test_show_prints_the_map(saved: Path) -> None:
    output = run("show", saved.stem).output
    assert "├ a.add_(1)" in output
    assert "s1[0], output: expected 6, got 4; last written by c = b * 2" in output
    assert "severed differs from eager:" in output


def test_show_writes_the_map_to_a_file(saved: Path, tmp_path: Path) -> None:
    run("show", saved.stem, "--svg", str(tmp_path / "map.svg"))
    assert parsed((tmp_path / "map.svg").read_text(encoding="utf-8")).tag.endswith("svg")


def test_show_says_where_it_cannot_write(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(showing.ShowError, match="in a folder that exists"):
        run("show", saved.stem, "--svg", str(tmp_path / "none" / "map.svg"))


def test_show_for_machines(saved: Path) -> None:
    data = json.loads(run("show", saved.stem, "--json").output)
    assert (data["case"], data["target"], data["state"]) == (saved.name, "severed", "open")
    assert data["map"]["wrong"]["expected"] == "6"
    assert [step["text"] for step in data["map"]["steps"]] == ["inputs", "a.add_(1)", "c = b * 2", "return c"]


def test_show_without_the_target_draws_eager(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(targets._BUILT_IN, "severed")
    targets.get.cache_clear()
    output = run("show", saved.stem).output
    assert "there is no target 'severed'" in output
    assert "The map shows eager alone." in output
    assert "s1 eager" in output


def test_show_of_what_is_fixed_says_so(saved: Path) -> None:
    case = Store(saved.parent).load(saved)
    fixed = Case(program=case.program, target="null", state="fixed", signature=Signature("null", "value"))
    assert "null: ok. It does not fail as recorded." in run("show", Store(saved.parent).save(fixed, "ok").stem).output


@pytest.mark.parametrize("variable", ["NO_COLOR", ""])
def test_colours_are_off_where_nobody_wants_them(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable or "UNUSED", "1")
    text = printed(drawn(shift, *windows(), target="severed"), force_terminal=True, color_system="standard")
    coloured = re.search(r"\x1b\[[0-9;]*(3[0-7]|4[0-7]|10[0-7])m", text) is not None
    assert coloured == (not variable)
