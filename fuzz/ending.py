"""What a run leaves when it ends: its record, JUnit XML, and what GitHub Actions reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fuzz.github import annotate, append_summary
from fuzz.journal import JournalError, write_whole
from fuzz.junit import junit
from fuzz.record import SUMMARY, Record, save

JUNIT = "junit.xml"


def keep(record: Record, folder: Path, file: str = "") -> tuple[list[str], bool]:
    """Writes all of it, the record to `file` too if one is named. Returns lines to print, and whether all was written.

    What cannot be written keeps nothing else from being written.
    """
    writes: list[Callable[[], None]] = [
        partial(save, record, folder / SUMMARY),
        lambda: write_whole(folder / JUNIT, junit(record)),
        partial(append_summary, record),
    ]
    if file:
        writes.append(partial(save, record, Path(file), "name another file"))
    failed = []
    for write in writes:
        try:
            write()
        except JournalError as error:
            failed.append(str(error))
    page = f"a page about this run: aliasfuzz report {folder}"
    return [page, *(f"ERROR: {error}" for error in failed), *annotate(record)], not failed
