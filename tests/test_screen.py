"""The live table: what it says, and that it leaves pytest's own output as it is, on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console

from fuzz.journal import Journal
from fuzz.options import Options
from fuzz.status import Status, Worker, table

ROOT = Path(__file__).parents[1]
WIDE, HIGH = 100, 24


class Terminal:
    """As much of a terminal as is needed: lines that scroll, and the sequences that move the cursor and erase."""

    def __init__(self) -> None:
        self.lines, self.row, self.column = [[" "] * WIDE for _ in range(HIGH)], 0, 0

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join("".join(line).rstrip() for line in self.lines)

    def feed(self, data: str) -> None:
        """Takes in what was written."""
        for sequence, plain in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z])|(.)", data, re.DOTALL):
            if sequence:
                self._move(sequence[-1], sequence[2:-1])
            else:
                self._put(plain)

    def _move(self, kind: str, number: str) -> None:
        if kind == "A":
            self.row = max(self.row - int(number), 0)
        elif kind == "G":
            self.column = int(number) - 1
        elif kind in "JK":
            self.lines[self.row][self.column :] = " " * (WIDE - self.column)
            for line in self.lines[self.row + 1 :] if kind == "J" else ():
                line[:] = " " * WIDE
        else:
            assert kind in "mlh", f"{kind} is not known here"

    def _put(self, char: str) -> None:
        if char == "\r":
            self.column = 0
        elif char == "\n" or self.column == WIDE:
            self.column = self.column if char == "\n" else 0
            self.row += 1
            if self.row == HIGH:
                self.lines, self.row = [*self.lines[1:], [" "] * WIDE], HIGH - 1
        if char not in "\r\n":
            self.lines[self.row][self.column] = char
            self.column += 1


def on_a_terminal(folder: Path, *args: str, **environment: str) -> tuple[str, list[str], str]:
    """Runs the main job on a pseudo-terminal: all that it wrote, the screens in between, and the last one."""
    controller, worker = pty.openpty()
    fcntl.ioctl(worker, termios.TIOCSWINSZ, struct.pack("HHHH", HIGH, WIDE, 0, 0))
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "NO_COLOR", "COLUMNS"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", str(ROOT / "fuzz"), "-q", "-p", "no:cacheprovider", "--fuzz-run", "run",
         "--fuzz-target", "null", *args],
        cwd=folder, stdin=worker, stdout=worker, stderr=worker,
        env={**plain, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "ALIASFUZZ_CORPUS": "corpus", **environment},
    )  # fmt: skip
    os.close(worker)
    terminal, written, screens = Terminal(), "", []
    while True:
        try:
            data = os.read(controller, 65536).decode()
        except OSError:  # the last of its writers has ended
            break
        written += data
        terminal.feed(data)
        screens.append(terminal.text)
    os.close(controller)
    assert process.wait(60) == 0, terminal.text
    return written, screens, terminal.text


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_table_is_shown_and_pytests_output_stays_whole(tmp_path: Path, workers: str) -> None:
    count = max(int(workers), 1)
    written, screens, last = on_a_terminal(tmp_path, "-n", workers, "--fuzz-budget", "6s", NO_COLOR="1")
    shown = [screen for screen in screens if "per second" in screen]
    assert shown, "the table was never there"
    assert any(re.search(r"^0 +null +generate +[1-9]", screen, re.MULTILINE) for screen in shown)
    assert any(re.search(rf"^all {count} +0:\d\d left +\d+ +\d+ +0$", screen, re.MULTILINE) for screen in shown)
    assert re.search(rf"^\.{{{count}}} +\[100%\]$", last, re.MULTILINE), last
    assert "per second  findings" not in last, "the table is gone"
    assert re.search(r"^null: \d+ programs", last, re.MULTILINE)
    assert re.search(rf"^{count} passed", last, re.MULTILINE)
    assert not re.search(r"\x1b\[(3[0-7]|9[0-7]|38)", written), "no colours"


def test_without_a_terminal_there_are_lines(tmp_path: Path) -> None:
    script = (
        "import sys, threading, fuzz.screen as s; from fuzz.options import Options; s._SECONDS_BETWEEN_LINES = 0.2\n"
        "o = Options(('null',), 1, (0,), 1, 9.0, 0, 'run', '', 'dev'); o.begin(); x = s.Screen(o, lambda: 0); x.start()\n"
        "threading.Event().wait(1); x.stop()"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120)  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line]
    assert lines
    assert all(re.fullmatch(r"aliasfuzz: \d of 9 s, 0 programs, 0/s, 0 distinct failures", line) for line in lines)
    assert "\x1b" not in done.stdout


def options(folder: Path, shards: int = 2) -> Options:
    return Options(("null", "thunder"), 1, tuple(range(shards)), shards, 60.0, 0, str(folder), "", "dev")


def test_each_worker_is_where_its_journals_say(tmp_path: Path) -> None:
    status = Status(options(tmp_path))
    assert [(worker.phase, worker.programs) for worker in status.rows(0)] == [("start", 0), ("start", 0)]
    null, thunder = Journal(tmp_path / "null-1.jsonl"), Journal(tmp_path / "thunder-1.jsonl")
    null.write("begin", target="null", shard=1)
    null.write("batch", target="null", shard=1, counts={"ok": 100})
    assert status.rows(1)[1] == Worker(1, "null", "generate", 100, 0, status.rows(1)[1].samples)
    null.write("batch", target="null", shard=1, counts={"ok": 140})
    null.write("done", target="null", shard=1)
    assert status.rows(5)[1].phase == "done"
    assert status.rows(5)[1].rate == pytest.approx(140 / 5)
    thunder.write("begin", target="thunder", shard=1)
    thunder.write("batch", target="thunder", shard=1, counts={"ok": 5, "failed": 1})
    thunder.write("phase", target="thunder", shard=1, phase="shrink")
    thunder.write("finding", target="thunder", signature="s")
    found = status.rows(9)[1]
    assert (found.target, found.phase, found.programs, found.findings) == ("thunder", "shrink", 146, 1)
    assert status.rows(9)[0].phase == "start"
    with (tmp_path / "thunder-1.jsonl").open("a") as file:
        file.write('{"event": "phase", "phase": "rep')
    assert status.rows(10)[1].phase == "shrink"
    with (tmp_path / "thunder-1.jsonl").open("a") as file:
        file.write('lay", "target": "thunder", "shard": 1}\n')
    assert status.rows(10)[1].phase == "replay"


def test_a_shard_that_begins_anew_goes_on_counting(tmp_path: Path) -> None:
    status, journal = Status(options(tmp_path)), Journal(tmp_path / "null-0.jsonl")
    for count in (50, 20):
        journal.write("begin", target="null", shard=0)
        journal.write("batch", target="null", shard=0, counts={"ok": count})
    assert status.rows(1)[0].programs == 70


def test_the_table_fits_into_a_low_terminal(tmp_path: Path) -> None:
    chosen = options(tmp_path, 100)
    (tmp_path / "begun").write_text(repr(time.time() - 10))
    console = Console(width=60, no_color=True)
    with console.capture() as captured:
        console.print(table(chosen, [Worker(k, "null", "generate", 10, 1) for k in range(100)], time.time(), 10))
    lines = captured.get().splitlines()
    assert len(lines) == 10
    assert lines[-2].split() == ["...", "93", "more"]
    assert lines[-1].split() == ["all", "100", "0:50", "left", "1,000", "0", "100"]
