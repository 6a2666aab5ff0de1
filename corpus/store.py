"""Folders of case files: atomic saves that merge, loads that never stop at one bad file, look-up by part of a name.

Cases come from two folders: the one shipped with this package, and the findings of this machine's runs, in
`$ALIASFUZZ_CORPUS` or else `.aliasfuzz/corpus` under the current folder. New cases go to the latter; a case becomes part of
the package when someone moves its file into `corpus/cases`.
"""

from __future__ import annotations

import difflib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from corpus.case import Case, CorpusError, digest_in
from executor.program import Program
from executor.targets import DEFAULT

SHIPPED = Path(__file__).resolve().parent / "cases"
_TEMPORARY = ".tmp"


def findings_folder() -> Path:
    """Where new cases go: `$ALIASFUZZ_CORPUS`, or `.aliasfuzz/corpus` under the current folder."""
    return Path(os.environ.get("ALIASFUZZ_CORPUS") or Path(".aliasfuzz", "corpus"))


def save(case: Case | Program, *, slug: str = "", folder: Path | str | None = None) -> Path:
    """Stores a case, in the folder of new findings unless told otherwise. See `Store.save`.

    A program becomes a case that our own compiler has to get right.
    """
    if isinstance(case, Program):
        case = Case(program=case.without_sources(), target=DEFAULT, state="fixed")
    return Store(folder or findings_folder()).save(case, slug)


def load(name: Path | str) -> Case:
    """The case of this file, or of this name, or part of a name, among the findings and the shipped cases.

    Raises `CorpusError`, also if there is none.
    """
    return read(find(name))


def find(name: Path | str, *folders: Path) -> Path:
    """The file with this path or name, or the only one whose name, or digest, begins with it.

    Looks into the folder of findings, then the shipped one, unless told which; the first file of a name counts.
    Raises `CorpusError` if there is none, naming some that look alike, or if there are several.
    """
    if _is_file(Path(name)):
        return Path(name)
    wanted, folders = str(name), folders or (findings_folder(), SHIPPED)
    files = {path.name: path for folder in reversed(folders) for path in folder.glob("*.json")}
    exact = [path for path in files.values() if wanted in {path.name, path.stem, digest_in(path.name)}]
    found = exact or [
        path
        for path in files.values()
        if wanted and (path.name.startswith(wanted) or (digest_in(path.name) or "").startswith(wanted))
    ]
    if len(found) == 1:
        return found[0]
    places = " or ".join(map(str, folders))
    if found:
        names = "\n  ".join(sorted(path.name for path in found)[:10])
        raise CorpusError(f"{wanted!r} fits {len(found)} cases in {places}; say which:\n  {names}")
    near = difflib.get_close_matches(wanted, files, 3, 0.3)
    hint = f"near ones: {', '.join(near)}" if near else f"there are {len(files)} cases"
    raise CorpusError(f"no file and no case {wanted!r} in {places}; {hint}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for a file, for one
        return False


def read(path: Path) -> Case:
    """The case in this file. Raises `CorpusError`, also if the file's name claims another digest than the case has."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error
    case = Case.from_json(data, str(path))
    claimed = digest_in(path.name)
    if claimed not in {None, case.digest}:
        raise CorpusError(
            f"{path}: case: its digest is {case.digest}, but the file's name says {claimed}: program, calls, "
            f"target or exact were edited; restore the file, or name it {case.file_name()}"
        )
    return case


class Store:
    """One folder of cases. It need not exist before the first save."""

    def __init__(self, folder: Path | str = SHIPPED) -> None:
        self.folder = Path(folder)

    def files(self) -> list[Path]:
        """The case files, sorted by name."""
        return sorted(self.folder.glob("*.json"))

    def cases(self) -> Iterator[tuple[Path, Case | CorpusError]]:
        """Every file with its case, or with the error that says why it has none, sorted by name."""
        for path in self.files():
            try:
                yield path, read(path)
            except CorpusError as error:
                yield path, error

    def load(self, name: Path | str) -> Case:
        """The case that `find` finds. Raises `CorpusError`."""
        return read(self.find(name))

    def find(self, name: Path | str) -> Path:
        """`find` in this folder alone."""
        return find(name, self.folder)

    def save(self, case: Case, slug: str = "") -> Path:
        """Stores a case and returns its file. Concurrent saves, of the same case too, lose nothing.

        If the folder holds the case already, under whatever slug, the two are merged (see `merge`). A file of that digest
        that cannot be read stays as it is, and the case is saved beside it.
        Raises `CorpusError` if the case is malformed or cannot be written; nothing is left behind then.
        """
        data = case.to_json()
        with self._locked():
            for path in self.folder.glob(f"*-{case.digest}.json"):
                try:
                    old = read(path)
                except CorpusError:
                    continue
                if (merged := merge(old, case)) != old:
                    _write(path, merged.to_json())
                return path
            path = self._free(case, slug)
            _write(path, data)
        return path

    def update(self, path: Path, case: Case) -> None:
        """Replaces the case in one of this folder's files as a whole. Raises `CorpusError` as `save` does."""
        if (claimed := digest_in(path.name)) not in {None, case.digest}:
            raise CorpusError(f"{path}: this file is about case {claimed}, not {case.digest}: save that one anew")
        data = case.to_json()
        with self._locked():
            _write(self.folder / path.name, data)

    def _free(self, case: Case, slug: str) -> Path:
        """The case's path; numbered if an unreadable file has that name."""
        path, number = self.folder / case.file_name(slug), 1
        while path.exists():
            number += 1
            stem = case.file_name(slug).removesuffix(f"-{case.digest}.json")
            path = self.folder / case.file_name(f"{stem[:50]}-{number}")
        return path

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the folder for one writer at a time, and clears what a writer that was killed left behind."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise CorpusError(
                f"{self.folder}: cannot be used as a corpus: {error.strerror}; set ALIASFUZZ_CORPUS to a "
                "folder that can be written"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            for stale in self.folder.glob(f".*{_TEMPORARY}"):
                stale.unlink(missing_ok=True)
            yield
            os.fsync(handle)  # the names, too, are on disk when a save returns
        finally:
            os.close(handle)


def _write(path: Path, data: bytes) -> None:
    """Writes a whole file or none: the bytes are on disk before the name appears."""
    temporary = path.with_name(f".{path.name}{_TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise CorpusError(
            f"{path}: cannot be saved: {error.strerror}; no case was changed. Make room, or set "
            "ALIASFUZZ_CORPUS to another folder"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def merge(old: Case, new: Case) -> Case:
    """One case out of two with the same digest: the newer observation, and all notes and earlier observations of both."""
    seen = old.seen(new.state, new.versions, new.signature)
    history = seen.history + tuple(item for item in new.history if item not in seen.history)
    note = "\n".join(part for part in (old.note, "" if new.note in old.note else new.note) if part)
    shared = old.bounds.keys() & new.bounds.keys()
    bounds = old.bounds | new.bounds | {key: min(old.bounds[key], new.bounds[key]) for key in shared}
    found = min(filter(None, (old.found, new.found)), default="")
    return msgspec.structs.replace(seen, history=history, note=note, bounds=bounds, found=found)
