"""The options of the main job: how long, on which targets, from which seed."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from corpus.flags import SHIPPED as FLAGS
from corpus.flags import read
from corpus.store import findings_folder
from executor import targets
from executor.errors import AliasfuzzError
from fuzz.against import parse
from fuzz.relations import NONE
from fuzz.relations import chosen as chosen_relations

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
PROFILES = {"pr": 60.0, "dev": 60.0, "nightly": 1800.0}
SHRINK_SECONDS = 40.0
REWRITTEN = {"nightly": "all/8"}  # the relations of profiles that use some
NO_FLAGS = "none"
GRADIENTS = ("some", "all", "none")  # the programs whose inputs require grad, where the target takes that


class UsageError(AliasfuzzError):
    """An option is wrong; the message says what it may be."""


@dataclass(frozen=True)
class Options:
    """A campaign: the same for all its workers. Times are seconds of `time.time`; one failure is shrunk for `shrink`.

    `flags` is the file of known bugs, or empty for none. `relations` is as in `fuzz.relations.chosen`, `gradients` one of
    `GRADIENTS`.
    """

    targets: tuple[str, ...]
    seed: int
    shards: tuple[int, ...]
    shard_count: int
    budget: float
    batches: int
    folder: str
    corpus: str
    profile: str
    shrink: float = SHRINK_SECONDS
    flags: str = str(FLAGS)
    exact: bool = True
    against: str = ""
    relations: str = NONE
    gradients: str = GRADIENTS[0]

    def begin(self) -> float:
        """When the first worker began; the first call decides it, for all workers.

        The budget counts from here, so that importing torch in each worker does not eat a short one.
        """
        mark = Path(self.folder, "begun")
        mark.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), mark.open("x", encoding="ascii") as file:
            file.write(repr(time.time()))
        while not (text := mark.read_text(encoding="ascii")):
            time.sleep(0.01)  # another worker has just created it
        return float(text)

    @property
    def begun(self) -> float | None:
        """When the first worker began; None before that."""
        mark = Path(self.folder, "begun")
        text = mark.read_text(encoding="ascii") if mark.exists() else ""
        return float(text) if text else None

    def deadline(self, target: str) -> float:
        """When a target's share of the budget ends; targets take equal shares, one after the other."""
        return self.begin() + self.budget * (self.targets.index(target) + 1) / len(self.targets)

    def left(self, target: str) -> float:
        """Seconds for a target from now on: to its deadline, but a quarter of its share at least.

        Shrinking may take the target before past its own deadline, and a target that draws no program is a failure.
        """
        return max(self.deadline(target) - time.time(), self.budget / len(self.targets) / 4)


def seconds(text: str) -> float:
    """A duration such as "90", "60s", "2.5m" or "1h", in seconds. Raises `UsageError` for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"a budget is a positive duration such as 60s, 5m or 1h, not {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def shard(text: str) -> tuple[int, int]:
    """A shard such as "1/4": its number, from 0, and how many there are. Raises `UsageError` for anything else."""
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not int(match[1]) < int(match[2]):
        raise UsageError(f"a shard is its number and how many there are, such as 0/2 or 1/2, not {text!r}")
    return int(match[1]), int(match[2])


def _seed(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise UsageError(f"a seed is a number such as 7 or 0x1f, not {text!r}") from None


def _check_folders(run: Path, corpus: Path, summary: Path | None) -> None:
    """Raises `UsageError` for a place that cannot be written to: better now than when something was found."""
    _check_writable(run, "the journals", "--fuzz-run or another current folder")
    _check_writable(corpus, "new cases", "ALIASFUZZ_CORPUS or --fuzz-corpus")
    if summary is not None and (summary.is_dir() or not summary.absolute().parent.is_dir()):
        raise UsageError(f"the summary cannot be written to {summary}: name a file in a folder that exists")


def _check_writable(folder: Path, what: str, remedy: str) -> None:
    whole = folder.absolute()
    there = next(place for place in (whole, *whole.parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(
            f"{folder}, the folder for {what}, cannot be used: {there} is not a folder that can be written; "
            f"choose another by {remedy}"
        )


def _check_gradients(gradients: str, names: tuple[str, ...]) -> None:
    if gradients not in GRADIENTS:
        raise UsageError(f"gradients are for {', '.join(GRADIENTS)} of the programs, not {gradients!r}")
    without = [name for name in names if not targets.get(name).limits.gradients]
    if gradients == "all" and without:
        raise UsageError(f"target {without[0]} takes no inputs that require grad: leave the option out")


def options(  # noqa: PLR0913 - one parameter an option
    *,
    names: list[str],
    budget: str | None,
    profile: str,
    seed: str | None,
    only: str | None,
    workers: int,
    batches: int,
    run: str | None,
    corpus: str,
    root: Path,
    summary: str = "",
    shrink: str | None = None,
    flags: str | None = None,
    exact: bool = True,
    against: str = "",
    relations: str | None = None,
    gradients: str = GRADIENTS[0],
) -> Options:
    """The campaign that the command line asks for.

    Raises `UsageError`, `TargetError`, `FlagError` or `RelationError` for what it cannot.
    """
    if profile not in PROFILES:
        raise UsageError(f"a profile is one of {', '.join(PROFILES)}, not {profile!r}")
    chosen = tuple(dict.fromkeys(names)) or (targets.DEFAULT,)
    for name in chosen:
        targets.get(name)
    if run and any(Path(run).glob("*.jsonl")):
        raise UsageError(f"{run} holds an earlier run's journals; name a new folder")
    if against:
        parse(against)
    known = str(flags or FLAGS)
    if known == NO_FLAGS:
        known = ""
    else:
        read(Path(known))
    _check_gradients(gradients, chosen)
    if batches < 0:
        raise UsageError(f"the number of batches is 1 or more, or 0 for no limit, not {batches}")
    rewritten = relations or REWRITTEN.get(profile, NONE)
    chosen_relations(rewritten)
    number, count = shard(only) if only else (0, max(workers, 1))
    # A pull request's run repeats the same programs each time; the others look at new ones.
    drawn = _seed(seed) if seed is not None else 0 if profile == "pr" else secrets.randbits(48)
    # With the process, because two runs may begin in one second and with one seed.
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{drawn:012x}-{os.getpid()}"
    folder = Path(run) if run else root / ".aliasfuzz" / "runs" / name
    _check_folders(folder, Path(corpus) if corpus else findings_folder(), Path(summary) if summary else None)
    return Options(
        chosen,
        drawn,
        (number,) if only else tuple(range(count)),
        count,
        seconds(budget) if budget else PROFILES[profile],
        batches,
        str(folder),
        corpus,
        profile,
        seconds(shrink) if shrink else SHRINK_SECONDS,
        known,
        exact,
        against,
        rewritten,
        gradients,
    )
