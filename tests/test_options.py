"""Options of the main job: durations, shards, seeds, one clock for all workers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from executor.errors import TargetError
from fuzz.options import Options, UsageError, options, seconds, shard


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("60s", 60), ("2.5m", 150), (" 1h ", 3600)])
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "1d", "soon", "1m30s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match=r"such as 60s, 5m or 1h, not"):
        seconds(text)


def test_shards() -> None:
    assert shard("1/4") == (1, 4)
    for text in ("4/4", "1", "a/b", "1/0"):
        with pytest.raises(UsageError, match="such as 0/2"):
            shard(text)


def given(tmp_path: Path, **changes: Any) -> Options:
    defaults: dict[str, Any] = {
        "names": [], "budget": None, "profile": "dev", "seed": None, "only": None, "workers": 2, "batches": 0,
        "run": None, "corpus": "", "root": tmp_path}  # fmt: skip
    return options(**{**defaults, **changes})


def test_defaults_are_ours_for_a_minute_on_every_worker(tmp_path: Path) -> None:
    made = given(tmp_path)
    assert made.targets == ("pipeline",)
    assert (made.shards, made.shard_count, made.budget) == ((0, 1), 2, 60.0)
    assert made.folder.startswith(str(tmp_path / ".aliasfuzz" / "runs"))
    assert made.folder.endswith(f"-{os.getpid()}")


def test_seeds_differ_from_run_to_run_but_for_pull_requests(tmp_path: Path) -> None:
    assert given(tmp_path).seed != given(tmp_path).seed
    assert given(tmp_path, profile="pr").seed == given(tmp_path, profile="pr").seed
    assert given(tmp_path, seed="0x10").seed == 16


def test_one_shard_of_several(tmp_path: Path) -> None:
    made = given(tmp_path, only="2/3", workers=1)
    assert (made.shards, made.shard_count) == ((2,), 3)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a profile is one of pr, dev, nightly, not 'fast'"):
        given(tmp_path, profile="fast")
    with pytest.raises(TargetError, match="no target 'nul'"):
        given(tmp_path, names=["nul"])


def test_places_that_cannot_be_written_are_named_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file/new, the folder for the journals, .*/file is not a folder that can be"):
        given(tmp_path, run=str(tmp_path / "file" / "new"))
    with pytest.raises(UsageError, match=r"the folder for new cases, .* by ALIASFUZZ_CORPUS or --fuzz-corpus"):
        given(tmp_path, corpus=str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"the summary cannot be written to .*/none/out.json"):
        given(tmp_path, summary=str(tmp_path / "none" / "out.json"))
    monkeypatch.setenv("ALIASFUZZ_CORPUS", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="the folder for new cases"):
        given(tmp_path)
    monkeypatch.setenv("ALIASFUZZ_CORPUS", str(tmp_path / "a" / "b"))
    given(tmp_path, run=str(tmp_path / "c" / "d"), summary=str(tmp_path / "out.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_negative_number_of_batches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1 or more, or 0 for no limit, not -1"):
        given(tmp_path, batches=-1)


def test_a_folder_with_a_run_in_it_is_not_used_again(tmp_path: Path) -> None:
    (tmp_path / "null-0.jsonl").write_text("")
    with pytest.raises(UsageError, match="holds an earlier run's journals; name a new folder"):
        given(tmp_path, run=str(tmp_path))


def test_all_workers_share_one_clock_and_targets_share_the_budget(tmp_path: Path) -> None:
    made = given(tmp_path, names=["null", "pipeline:eager"], budget="10s")
    before = made.begun
    begun = made.begin()
    assert before is None
    assert abs(begun - time.time()) < 5
    time.sleep(0.01)
    assert made.begin() == begun == made.begun
    assert made.deadline("null") == begun + 5
    assert made.deadline("pipeline:eager") == begun + 10


def test_a_target_that_begins_late_has_time_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = given(tmp_path, names=["null", "pipeline:eager"], budget="40s")
    begun = made.begin()
    monkeypatch.setattr(time, "time", lambda: begun + 30.0)
    assert made.left("pipeline:eager") == 10
    assert made.left("null") == 5
