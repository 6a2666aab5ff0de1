"""A coordinator's state is whole on any filesystem, whatever breaks while it is written."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from pathlib import Path

import pytest

from fuzz.cluster.snapshots import Snapshots
from tests.cluster import AtOnce


def place(tmp_path: Path, kind: str) -> str:
    return str(tmp_path / "state") if kind == "file" else f"memory://{uuid.uuid4()}"


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_the_last_snapshot_is_read_back(tmp_path: Path, kind: str) -> None:
    url = place(tmp_path, kind)
    one = Snapshots(url, AtOnce())
    assert one.load() is None
    for number in range(1, 6):
        assert one.offer(number, lambda number=number: b"state %d" % number)  # type: ignore[misc]
        assert Snapshots(url, AtOnce()).load() == (number, b"state %d" % number)


@pytest.mark.parametrize("length", [0, 3, 19, 25, 30])
def test_a_snapshot_that_was_cut_short_leaves_the_one_before(tmp_path: Path, length: int) -> None:
    snapshots = Snapshots(str(tmp_path), AtOnce())
    for number in (1, 2):
        snapshots.offer(number, lambda: b"a payload of some length")
    newest = next(path for path in tmp_path.iterdir() if path.read_bytes()[8:16] == (2).to_bytes(8))
    newest.write_bytes(newest.read_bytes()[:length])
    assert Snapshots(str(tmp_path), AtOnce()).load() == (1, b"a payload of some length")


def test_writes_that_fail_never_touch_the_last_whole_one(tmp_path: Path) -> None:
    disk = AtOnce()
    snapshots = Snapshots(str(tmp_path), disk)
    snapshots.offer(1, lambda: b"one")
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for number in (2, 3, 4):
        disk.broken = OSError(28, "No space left on device")
        snapshots.offer(number, lambda: b"more")
        assert snapshots.poll() == 1
        assert "No space left" in snapshots.error
        (tmp_path / "state1").write_bytes(b"half of it")  # what a write that fails may leave
        assert {path: path.read_bytes() for path in kept} == kept
    disk.broken = None
    snapshots.offer(5, lambda: b"five")
    assert (snapshots.poll(), snapshots.error) == (5, "")
    assert Snapshots(str(tmp_path), AtOnce()).load() == (5, b"five")


def test_a_slow_store_holds_up_nobody_and_gets_one_snapshot_at_a_time(tmp_path: Path) -> None:
    class Slow(AtOnce):
        pending: Future[None]

        def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
            self.pending = Future()
            return self.pending

    slow = Slow()
    snapshots = Snapshots(str(tmp_path), slow)
    assert snapshots.offer(1, lambda: b"one")
    assert snapshots.poll() == 0
    assert not snapshots.offer(2, lambda: pytest.fail("made for nothing"))
    slow.pending.set_result(None)
    assert snapshots.poll() == 1
