from __future__ import annotations

import errno
import os
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Self

import msgspec
import pytest
import torch

from corpus import store
from corpus.case import Case, CorpusError
from corpus.signature import Signature
from corpus.store import Store, find, findings_folder, load, merge, save
from executor.tracing import trace

SIGNATURE = Signature("thunder", "value")


def case(size: int = 3, target: str = "thunder", **changes: object) -> Case:
    program = trace(torch.Tensor.neg_, torch.ones(size)).without_sources()
    made = Case(program=program, target=target, state="open", signature=SIGNATURE, versions={"torch": "2.13.0"})
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALIASFUZZ_CORPUS", str(tmp_path / "found"))
    return tmp_path / "corpus"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_loaded(folder: Path) -> None:
    path = Store(folder).save(case(), "negated row")
    assert path == folder / f"negated-row-{case().digest}.json"
    assert Store(folder).load(path) == case()
    assert names(folder) == [path.name]


def test_cases_come_sorted_and_bad_files_do_not_stop_the_rest(folder: Path) -> None:
    good = [Store(folder).save(case(n), f"c{n}") for n in (1, 2)]
    (folder / "a-bad.json").write_text("{")
    (folder / "b-foreign.json").write_text('{"name": "x"}')
    (folder / "notes.txt").write_text("no case")
    (folder / "z-folder.json").mkdir()
    found = list(Store(folder).cases())
    assert [path.name for path, _ in found] == [
        "a-bad.json",
        "b-foreign.json",
        *(p.name for p in good),
        "z-folder.json",
    ]
    assert [isinstance(item, Case) for _, item in found] == [False, False, True, True, False]
    assert all(str(path) in str(item) for path, item in found if isinstance(item, CorpusError))


def test_folders_that_do_not_exist_hold_nothing(folder: Path) -> None:
    assert list(Store(folder).cases()) == []
    with pytest.raises(CorpusError, match="there are 0 cases"):
        Store(folder).find("x")


def test_the_digest_in_the_name_must_fit(folder: Path) -> None:
    path = Store(folder).save(case(), "one")
    other = path.rename(folder / "one-0123456789ab.json")
    with pytest.raises(CorpusError, match=f"its digest is {case().digest}, but the file's name says 0123456789ab"):
        Store(folder).load(other)
    plain = other.rename(folder / "my_case.json")
    assert Store(folder).load(plain) == case()


def test_find_takes_paths_names_and_prefixes(folder: Path) -> None:
    one, two = (Store(folder).save(case(n), slug) for n, slug in ((1, "rows"), (2, "rows then base")))
    found = Store(folder).find
    assert found(one) == found(str(one)) == found(one.name) == found(one.stem) == one
    assert found(case(1).digest) == found(case(1).digest[:5]) == one
    assert found("rows-then") == two
    with pytest.raises(CorpusError, match=r"'row' fits 2 cases"):
        found("row")
    with pytest.raises(CorpusError, match=r"no case 'rows-than-base'.*near ones: rows-then-base"):
        found("rows-than-base")
    for name in ("", "x" * 5000, "a\0b", str(folder)):
        with pytest.raises(CorpusError):
            found(name)


def test_public_names_use_the_findings_and_the_shipped_cases(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SHIPPED", folder)
    shipped = save(case(1), slug="shipped", folder=folder)
    found = save(case(2), slug="found")
    assert found.parent == findings_folder() == folder.with_name("found")
    assert load("shipped") == load(shipped) == case(1)
    assert load("found") == case(2)
    save(case(1, note="seen again"), slug="shipped")
    assert load("shipped").note == "seen again"
    assert find(shipped) == shipped
    with pytest.raises(CorpusError, match="no file and no case"):
        load("neither")


def test_findings_lie_under_the_current_folder_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALIASFUZZ_CORPUS", raising=False)
    assert findings_folder() == Path(".aliasfuzz/corpus")


def test_saving_again_merges_under_the_first_name(folder: Path) -> None:
    first = Store(folder).save(case(note="first", bounds={"barriers": 2, "copies": 1}, found="2026-03-02"), "one")
    before = first.stat().st_mtime_ns
    assert Store(folder).save(case(note="first"), "one") == first
    assert first.stat().st_mtime_ns == before
    newer = case(
        note="second",
        state="fixed",
        signature=None,
        versions={"torch": "2.14.0"},
        bounds={"barriers": 1},
        found="2026-04-01",
    )
    assert Store(folder).save(newer, "two") == first
    merged = Store(folder).load(first)
    assert names(folder) == [first.name]
    assert (merged.state, merged.versions, merged.signature) == ("fixed", {"torch": "2.14.0"}, SIGNATURE)
    assert [(seen.state, seen.versions) for seen in merged.history] == [("open", {"torch": "2.13.0"})]
    assert merged.note == "first\nsecond"
    assert merged.bounds == {"barriers": 1, "copies": 1}
    assert merged.found == "2026-03-02"


def test_merge_keeps_both_histories() -> None:
    old = case().seen("fixed", {"torch": "2.14.0"})
    new = case(versions={"torch": "2.12.0"}).seen("open", {"torch": "2.15.0"})
    assert {seen.versions["torch"] for seen in merge(old, new).history} == {"2.12.0", "2.13.0", "2.14.0"}
    assert merge(old, old) == old


def test_an_unreadable_file_of_the_same_name_is_kept_and_saved_beside(folder: Path) -> None:
    first = Store(folder).save(case(), "one")
    first.write_text("{ damaged")
    second, third = Store(folder).save(case(), "one"), Store(folder).save(case(), "one")
    assert first.read_text() == "{ damaged"
    assert second == third == folder / f"one-2-{case().digest}.json"
    assert Store(folder).load(second) == case()


def test_update_replaces_and_keeps_the_name(folder: Path) -> None:
    path = Store(folder).save(case(note="old"), "one")
    changed = case(note="new").seen("fixed", {"torch": "2.14.0"})
    Store(folder).update(path, changed)
    assert Store(folder).load(path) == changed
    with pytest.raises(CorpusError, match="this file is about case"):
        Store(folder).update(path, case(4))
    assert Store(folder).load(path) == changed


@pytest.mark.parametrize("broken", ["open", "write", "fsync", "replace"])
def test_a_full_disk_leaves_all_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    kept = Store(folder).save(case(1, note="kept"), "kept")
    before = kept.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if broken == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    elif broken == "write":
        opened = Path.open
        monkeypatch.setattr(
            Path, "open", lambda path, mode="r", *args: FullFile(path) if mode == "wb" else opened(path, mode, *args)
        )
    else:
        monkeypatch.setattr(Path, broken, full)
    for size, slug in ((2, "new"), (1, "kept")):
        with pytest.raises(CorpusError, match=r"cannot be saved: No space left on device.*ALIASFUZZ_CORPUS"):
            Store(folder).save(case(size, note="other"), slug)
    monkeypatch.undo()
    assert names(folder) == [kept.name]
    assert kept.read_bytes() == before


class FullFile:
    """A file that takes ten bytes."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "wb")  # noqa: PTH123, SIM115 (Path.open is replaced by this)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> None:
        self.file.write(data[:10])
        self.file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


LIMITED = """
import resource, sys
from corpus.case import CorpusError
from corpus.store import Store, read
from pathlib import Path
from typing import Self
case = read(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    Store(sys.argv[2]).save(case)
except CorpusError as error:
    print(error)
"""


def test_a_real_limit_on_file_size_is_a_clear_error(folder: Path) -> None:
    path = Store(folder).save(case())
    target = folder.with_name("limited")
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, path, target],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(store.__file__).parents[1],
    )
    assert "cannot be saved: File too large" in run.stdout
    assert names(target) == []


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CorpusError, match=r"cannot be used as a corpus: .*ALIASFUZZ_CORPUS"):
        Store(tmp_path / "file" / "corpus").save(case())


def test_what_a_killed_writer_left_is_cleared(folder: Path) -> None:
    folder.mkdir()
    (folder / f".one-{case().digest}.json.tmp").write_text("{ half")
    path = Store(folder).save(case(), "one")
    assert names(folder) == [path.name]


def _save_many(folder: Path, worker: int, count: int) -> None:
    for n in range(count):
        # Odd numbers: a case that both workers save, each with a note and slug of its own. Even: one of this worker.
        size = n if n % 2 else 1000 + worker * 100 + n
        Store(folder).save(case(size + 1, note=f"worker {worker} case {n}"), f"slug {worker} {n}")


def test_two_workers_that_save_at_once_lose_nothing(folder: Path) -> None:
    count = 50
    context = get_context("spawn")
    workers = [context.Process(target=_save_many, args=(folder, worker, count)) for worker in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    cases = [item for _, item in Store(folder).cases()]
    assert len(cases) == len(list(folder.iterdir())) == 3 * count // 2
    notes = "\n".join(item.note for item in cases if isinstance(item, Case)).splitlines()
    assert sorted(notes) == sorted(f"worker {worker} case {n}" for worker in range(2) for n in range(count))


def test_every_shipped_case_is_readable_and_named_by_its_digest() -> None:
    shipped = list(Store().cases())
    assert len(shipped) > 50
    assert [str(item) for _, item in shipped if isinstance(item, CorpusError)] == []
    assert all(path.name.endswith(f"-{item.digest}.json") for path, item in shipped if isinstance(item, Case))


def test_a_program_is_saved_as_a_case_of_ours(tmp_path: Path) -> None:
    program = trace(lambda a: a.add_(1), torch.ones(2))
    case = load(save(program, slug="plus one", folder=tmp_path))
    assert case.program == program.without_sources()
    assert (case.target, case.state) == ("pipeline", "fixed")
