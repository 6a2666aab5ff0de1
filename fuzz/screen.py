"""How a run goes, while it goes: a table that is drawn anew below pytest's own output, or a line now and then.

The table lies under the line on which pytest writes, and the cursor goes back to where pytest left it, so that neither knows of
the other. It is gone before pytest writes several lines, and at the end.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO

from rich.console import Console, RenderableType

from fuzz.options import Options
from fuzz.status import Status, table
from fuzz.summary import progress, summarize

STDOUT = 1
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_TABLES = 1.0
_BELOW = "\x1b[J"  # erases all from the cursor on


class Screen(threading.Thread):
    """Shows the run until it is told to stop.

    `column` says where pytest's cursor stands, from 0. Writes to where the standard output leads when this is made: while
    a test runs in this process, pytest leads it elsewhere.
    """

    def __init__(self, options: Options, column: Callable[[], int]) -> None:
        super().__init__(daemon=True, name="aliasfuzz-progress")
        self._options, self._column = options, column
        self._out = os.dup(STDOUT)
        self._console = Console(file=StringIO(), force_terminal=True) if is_terminal() else None
        self._status = Status(options)
        self._stopped, self._lock = threading.Event(), threading.Lock()

    def run(self) -> None:
        """The thread's work."""
        pause = _SECONDS_BETWEEN_LINES if self._console is None else _SECONDS_BETWEEN_TABLES
        while not self._stopped.wait(pause):
            if self._console is None:
                self._write(f"\n{progress(self._options, summarize(self._options), time.time())}\n")
            else:
                with self._lock:
                    self._draw(self._console)

    def stop(self) -> None:
        """Ends the thread, and leaves nothing of the table."""
        self._stopped.set()
        self.join()
        with self.away():
            pass
        os.close(self._out)

    @contextmanager
    def away(self) -> Iterator[None]:
        """The table is not there during the block, for pytest to write."""
        with self._lock:
            if self._console is not None:
                self._write(_BELOW)
            yield

    def _draw(self, console: Console) -> None:
        width, height = _size(self._out)
        shown = self._status.rows(time.time())
        lines = _lines(console, table(self._options, shown, time.time(), height - 2), width)[: height - 1]
        below = "".join(f"\r\n{line}\x1b[K" for line in lines)
        self._write(f"{_BELOW}{below}\x1b[{len(lines)}A\x1b[{self._column() + 1}G")

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._out, data) :]


def _lines(console: Console, shown: RenderableType, width: int) -> list[str]:
    with console.capture() as captured:
        console.print(shown, width=width - 1, no_wrap=True, overflow="ellipsis", crop=True)
    return captured.get().splitlines()


def _size(terminal: int) -> tuple[int, int]:
    try:
        size = os.get_terminal_size(terminal)
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24


def is_terminal() -> bool:
    """Whether the standard output is a terminal on which the cursor can be moved."""
    return os.isatty(STDOUT) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
