"""What `faulthandler` wrote about a worker that died or hung, in short."""

from __future__ import annotations

import os
import re
from pathlib import Path

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_FRAMES = 4
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep


def innermost(file: Path) -> str:
    """The target's innermost Python frames, "compiler.py:12 in fuse < ..."; empty if none are known."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    starts = [k for k, line in enumerate(lines) if line.endswith("(most recent call first):")]
    current = [k for k in starts if lines[k].startswith("Current thread")] or starts[-1:]
    frames = []
    for line in lines[current[-1] + 1 :] if current else []:
        if (found := _FRAME.fullmatch(line)) is None or found[1].startswith(_OURS):
            break
        frames.append(f"{Path(found[1]).name}:{found[2]} in {found[3]}")
    return " < ".join(frames[:_FRAMES])
