"""`aliasfuzz report`: one page about a run, whatever the run was like."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from click.testing import CliRunner

from aliasfuzz.commands import cli
from aliasfuzz.report import ReportError, find_run, write
from aliasfuzz.report.chart import chart, clock
from aliasfuzz.report.page import html
from corpus.store import SHIPPED, find
from executor import targets
from executor.tracing import trace
from fuzz import record
from fuzz.coverage import Counts
from fuzz.journal import Journal, JournalError
from fuzz.options import Options
from fuzz.record import RunError
from fuzz.summary import summarize
from tests.planted import Severed

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """A page as text, with the attributes and text of its elements. Fails for tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self.ids.update(value for name, value in attrs if name == "id" and value)
        self.links += [
            value or "" for name, value in attrs if name in ("href", "src", "srcset", "action", "data", "xlink:href")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str, **attributes: str) -> int:
        """How many elements have the tag and these attributes, "class" as `class_`."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return sum(t == tag and wanted.items() <= found.items() for t, found in self.tags)

    @property
    def text(self) -> str:
        """All text."""
        return "".join(self.texts)


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(targets, "_BUILT_IN", {**targets._BUILT_IN, "severed": f"tests.planted:{Severed.__name__}"})
    monkeypatch.setenv("ALIASFUZZ_CORPUS", str(tmp_path / "corpus"))


def finding(signature: str, **more: Any) -> dict[str, Any]:
    return {"target": "null", "path": "/nowhere/gone.json", "signature": signature, "known": False, "state": "open",
            "text": f"null differs from eager:\n  value: output\n  signature: {signature} null: value",
            "program": "def program(a):\n    return a", **more}  # fmt: skip


def made(folder: Path, *findings: dict[str, Any], names: tuple[str, ...] = ("null",), done: bool = True) -> Options:
    """A run's folder with these findings; unless `done`, the run was killed."""
    chosen = Options(names, 0xAB, (0,), 1, 60.0, 0, str(folder), "", "dev")
    record.begin(chosen)
    begun = chosen.begin()
    counts = Counts(every=1)
    x = torch.arange(6.0)
    counts.see(trace(lambda a, b: (a[1:].add_(1), a * 2, b.sum())[1:], x, x[:4]))
    lines: list[dict[str, Any]] = [
        {"event": "begin", "time": begun, "limits": {}, "versions": {"torch": "2.99"}},
        {"event": "phase", "time": begun, "phase": "generate"},
        {"event": "coverage", "time": begun + 30, "counts": msgspec.to_builtins(counts.take())},
        {"event": "batch", "time": begun + 30, "counts": {"ok": 3000, "failed": 12}, "batches": 9, "seconds": 30},
        {"event": "batch", "time": begun + 60, "counts": {"ok": 9000, "failed": 20}, "batches": 9, "seconds": 60},
        *([{"event": "done", "time": begun + 60}] if done else []),
    ]  # fmt: skip
    for name in names:
        text = "".join(json.dumps({**line, "target": name, "shard": 0}) + "\n" for line in lines)
        (folder / f"{name}-0.jsonl").write_text(text)
    for event in findings:
        Journal(folder / f"{event['target']}-0.jsonl").write("finding", **event)
    if done:
        summary = summarize(chosen)
        found = record.record(chosen, summary, summary.exit_code, "finished")
        found.ended = begun + 60
        record.save(found, folder / "summary.json")
    return chosen


def page(folder: Path) -> Page:
    file = folder / "page.html"
    write(folder, file)
    return Page(file.read_text())


def test_a_page_has_all_parts_and_needs_nothing_else(tmp_path: Path) -> None:
    made(tmp_path / "run", finding("s1"), finding("s2", known=True), finding("s3", state="flaky"))
    found = page(tmp_path / "run")
    assert {"totals", "throughput", "findings", "coverage", "never", "versions", "again", "verdict"} <= found.ids
    assert all(link.startswith("#") and link[1:] in found.ids for link in found.links)
    assert found.count("script") == 0
    assert not re.search(r"url\(|@import|https?:", (tmp_path / "run" / "page.html").read_text())
    policy = {"http-equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'"}
    assert ("meta", policy) in found.tags
    assert found.count("details", class_="finding") == 3
    for text in ("2 new findings", "9,020", "9,000 ok, 20 failed", "torch 2.99", "read-after-write", "operators: views",
                 "aliasfuzz run --target null --seed 0xab --budget 60s --workers 1", "1:00 generate"):  # fmt: skip
        assert text in found.text, text
    assert found.count("polyline") == 1
    assert found.count("circle", class_="mark f0") == 3


def test_everything_is_escaped(tmp_path: Path) -> None:
    evil = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\x00\"'&"
    made(tmp_path / "run", finding("s1", text=f"a\n  {evil}", program=evil, path=f"/x/{evil}.json", state=evil))
    found = page(tmp_path / "run")
    assert found.count("script") == found.count("img") == 0
    assert found.text.count("<script>alert(1)</script>") >= 3


CASE = "functionalize-write-through-windows"


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page on which a finding has a picture: its case was run again for it."""
    folder = tmp_path_factory.mktemp("pictured")
    made(folder, finding("s1", target="functionalize", path=str(find(CASE, SHIPPED))), names=("functionalize",))
    write(folder, folder / "page.html")
    return folder / "page.html"


def test_findings_are_shown_with_picture_and_script(pictured: Path) -> None:
    found = Page(pictured.read_text())
    assert found.count("svg", class_="memory-map") == 1
    assert "expected 2.0, got 0.0" in found.text
    assert found.count("pre", class_="script") == 1
    assert f"aliasfuzz show {CASE}" in found.text


def test_cases_that_are_gone_or_broken_keep_nothing_else_from_being_shown(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    made(tmp_path / "run", finding("s1"), finding("s2", path=str(broken)))
    found = page(tmp_path / "run")
    assert found.count("details", class_="finding") == 2
    assert found.count("svg", class_="memory-map") == 0
    assert len(re.findall("no picture and no script: ", found.text)) == 2


def test_hundreds_of_findings_are_all_listed(tmp_path: Path) -> None:
    made(tmp_path / "run", *(finding(f"s{k}", known=k % 2 == 0) for k in range(200)))
    found = page(tmp_path / "run")
    assert found.count("details", class_="finding") == 200
    assert "100 new findings" in found.text
    assert sum(tag == "details" and "open" in more and more.get("class") == "finding" for tag, more in found.tags) == 3


def test_a_run_without_findings(tmp_path: Path) -> None:
    made(tmp_path / "run")
    found = page(tmp_path / "run")
    assert "nothing new" in found.text
    assert "No failure was found." in found.text


def test_a_run_that_was_killed(tmp_path: Path) -> None:
    made(tmp_path / "run", finding("s1"), done=False)
    found = page(tmp_path / "run")
    assert "This run has not ended." in found.text
    assert "null: shard 0 did not end." in found.text
    assert "9,020" in found.text


def test_a_run_without_a_program(tmp_path: Path) -> None:
    record.begin(Options(("null",), 1, (0,), 1, 60.0, 0, str(tmp_path / "run"), "", "dev"))
    found = page(tmp_path / "run")
    assert "no program was judged" in found.text
    assert "Nothing was counted." in found.text
    assert found.count("polyline") == 0


def test_several_targets_each_have_a_line_and_tables(tmp_path: Path) -> None:
    made(tmp_path / "run", names=("null", "pipeline"))
    found = page(tmp_path / "run")
    assert found.count("polyline") == 2
    assert found.count("details", class_="coverage") == 2


def test_the_command_that_repeats_the_run_has_all_its_options(tmp_path: Path) -> None:
    made(tmp_path)
    found = record.load(tmp_path)
    assert found.options is not None
    found.options = replace(
        found.options, targets=("null", "thunder"), shards=(0, 1, 2), shard_count=3, shrink=5.0, exact=False, flags="",
        against="aot_eager", relations="all/8",
    )  # fmt: skip
    command = html(found, "run", []).replace("&#39;", "'")
    assert (
        "aliasfuzz run --target null --target thunder --seed 0xab --budget 60s --workers 3 --shrink-budget 5s --float "
        "--flags none --against aot_eager --relations all/8\n"
    ) in re.sub(r"</pre>", "\n", command)
    options = {option for parameter in cli.commands["run"].params for option in parameter.opts}
    assert {"--target", "--seed", "--budget", "--workers", "--shrink-budget", "--float", "--flags", "--against",
            "--relations"} <= options  # fmt: skip
    found.options = replace(found.options, shards=(1,))
    assert "aliasfuzz run" not in html(found, "run", []), "a single shard is repeated by pytest alone"


def test_what_is_no_run_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"empty holds no run: it has no summary\.json, and no run\.json"):
        write(tmp_path / "empty", tmp_path / "page.html")
    made(tmp_path / "run")
    with pytest.raises(JournalError, match=r"cannot be written: .* name another file by -o"):
        write(tmp_path / "run", tmp_path / "nowhere" / "page.html")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ReportError, match=re.escape("pip install 'aliasfuzz[report]'")):
        write(tmp_path / "run", tmp_path / "page.html")


def test_runs_are_found_by_name(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(ReportError, match=r"last is no folder, and there is no run in .*runs"):
        find_run("last", runs)
    for name in ("2026-a", "2026-b", "2027-c"):
        made(runs / name)
    (runs / "2028-no-run").mkdir()
    assert find_run("last", runs) == runs / "2027-c"
    assert find_run("2026-b", runs) == runs / "2026-b"
    assert find_run(str(runs / "2026-a"), tmp_path) == runs / "2026-a"
    with pytest.raises(ReportError, match="2 runs begin with 2026: 2026-a, 2026-b"):
        find_run("2026", runs)
    with pytest.raises(ReportError, match=r"no run in .* begins with x; the last one is 2027-c"):
        find_run("x", runs)


def test_the_command_writes_the_page_into_the_run(tmp_path: Path) -> None:
    made(tmp_path / "run")
    done = CliRunner().invoke(cli, ["report", str(tmp_path / "run")], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.output.strip() == f"wrote {tmp_path / 'run' / 'report.html'}"
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize("rate", [0.01, 0.3, 7.0, 149.9, 123456.0])
@pytest.mark.parametrize("longest", [2.0, 61.0, 1800.0, 1e6])
def test_a_chart_lies_within_its_axes(tmp_path: Path, rate: float, longest: float) -> None:
    made(tmp_path)
    found = record.load(tmp_path)
    found.targets["null"].throughput = [(longest / 2, rate), (longest, rate / 3)]
    drawn = chart(found)
    assert drawn is not None
    points = [tuple(map(float, point.split(","))) for point in drawn.lines[0].points.split()]
    assert all(drawn.left <= x <= drawn.right and drawn.top <= y <= drawn.bottom for x, y in points)
    assert 2 <= len(drawn.across) <= 10
    assert 2 <= len(drawn.upwards) <= 7


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def browse(profile: Path, *arguments: str) -> str:
    assert BROWSER is not None
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}", *arguments],
        capture_output=True, text=True, timeout=120, check=True)  # fmt: skip
    return done.stdout


COUNT = """%s<p></p><script>
onload = () => {
  const found = [...document.images].map(image => {
    const canvas = document.createElement("canvas"), counted = new Map();
    canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const pixels = new DataView(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    for (let k = 0; k < pixels.byteLength; k += 4) {
      const colour = pixels.getUint32(k) >>> 8;
      counted.set(colour, (counted.get(colour) || 0) + 1);
    }
    return Object.fromEntries([...counted].filter(([_, n]) => n > 60).map(([c, n]) => [c.toString(16).padStart(6, "0"), n]));
  });
  document.querySelector("p").textContent = JSON.stringify(found);
};</script>"""


def colours(folder: Path, *pictures: Path) -> list[dict[str, int]]:
    """For each picture how many pixels have each colour that more than sixty have, counted by the browser."""
    images = [f'<img src="data:image/png;base64,{base64.b64encode(p.read_bytes()).decode()}">' for p in pictures]
    (folder / "count.html").write_text(COUNT % "".join(images))
    dom = browse(folder / "profile", "--dump-dom", (folder / "count.html").as_uri())
    text = re.search(r"<p>(.+?)</p>", dom)
    assert text is not None, dom[-500:]
    found: list[dict[str, int]] = json.loads(text[1])
    return found


@pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium")
def test_screenshots_show_the_main_parts_in_light_and_dark_and_narrow(tmp_path: Path, pictured: Path) -> None:
    shots = {"light": ("1100,3000",), "dark": ("1100,3000", "--force-dark-mode"), "narrow": ("500,3000",)}
    for name, (size, *more) in shots.items():
        browse(
            tmp_path / "profile",
            f"--window-size={size}",
            f"--screenshot={tmp_path / name}.png",
            *more,
            pictured.as_uri(),
        )
    light, dark, narrow = colours(tmp_path, *(tmp_path / f"{name}.png" for name in shots))
    # Paper, the chart's line, the badge and the wrong cell, a written tensor's band, a histogram's bars, what was missed.
    for paper in (light, narrow):
        assert {"ffffff", "0969da", "c81e2b", "b6d4f7", "fff3d6"} <= paper.keys()
    assert {"0d1117", "58a6ff", "ff7b72", "1f4a7d", "3a2c0a"} <= dark.keys()
    assert "ffffff" not in dark
    assert light["ffffff"] > 0.5 * sum(light.values())
    assert dark["0d1117"] > 0.5 * sum(dark.values())
