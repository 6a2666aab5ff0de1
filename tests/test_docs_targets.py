"""`docs/targets.md`: the example is run as it is written, and the table names what the protocol has."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import torch

from aliasfuzz import check
from executor.targets.base import Target
from tests.documents import blocks

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "targets.md"


def _block(language: str) -> str:
    (text,) = [block.text for block in blocks(PAGE) if block.language == language]
    return text


def test_the_example_is_a_target_of_at_most_twenty_lines() -> None:
    text = _block("python")
    assert len(text.splitlines()) <= 20
    names: dict[str, object] = {}
    exec(text, names)  # noqa: S102 - the text of the document
    verdict = check(lambda a, b: a.add_(1) * b, [torch.ones(3), torch.ones(3)], target=names["FX"]())  # type: ignore[operator]
    assert verdict.ok
    refused = check(lambda a: a + 1 if a.sum() > 0 else a, [torch.ones(3)], target=names["FX"]())  # type: ignore[operator]
    assert refused.refused is not None
    assert "control flow" in refused.refused


def test_registered_as_the_document_says_it_takes_part_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "fx_target.py").write_text(_block("python"), encoding="utf-8")
    points = tomllib.loads(_block("toml"))["project"]["entry-points"]["aliasfuzz.targets"]
    info = tmp_path / "fx-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fx\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[aliasfuzz.targets]", *lines]), encoding="utf-8")
    command = [sys.executable, "-m", "aliasfuzz", "run", "--target", "fx", "--budget", "4s", "--workers", "1"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^fx: \d+ programs, .* 0 failures", done.stdout, re.MULTILINE)


def test_the_table_names_all_that_a_target_may_have() -> None:
    rows = set(re.findall(r"^\| `(\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    members = {name for name in (*vars(Target), *Target.__annotations__) if not name.startswith("_")}
    assert rows == members
