"""What a worker did, a line of JSON an event, written at once: a worker that dies leaves all it knew."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """An append-only file of events."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, event: str, **fields: Any) -> None:
        """Appends an event with the time in seconds since the epoch. One `write` call a line, so lines stay whole."""
        line = json.dumps({"event": event, "time": round(time.time(), 3), **fields})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of all journals in a folder; a last line cut short by a killed worker is passed over."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue
