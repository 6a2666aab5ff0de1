"""Known bugs: flags that keep a campaign from finding the same bug again, so that it finds what lies behind.

All stand in one file, `flags.toml`, an entry `[[flag]]` each. A flag names a target, the versions it is for, a case of the
corpus that proves it, and how its failures look (`match`), or what must not be drawn lest it drown all else (`ban`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from executor.errors import AliasfuzzError
from executor.limits import Limits, Switches

SHIPPED = Path(__file__).with_name("flags.toml")


class FlagError(AliasfuzzError):
    """The file of flags, or an entry in it, is wrong: the message names the file, the flag and what it may be."""


class Match(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a failure looks. What is given must all hold; a pattern that gives nothing matches nothing.

    `symptom` is the worst of the failure's symptoms, what refines it begins with `detail` (an exception's type). `text` is
    a regular expression that is found in what differs, in words. `ops` are patterns such as "aten.slice*", each of which some call's overload
    fits. `stage` and `relation` are those of the signature. `later` says whether it shows in a later call only, `gradients` whether
    inputs require grad.
    """

    symptom: str = ""
    detail: str = ""
    text: str = ""
    ops: tuple[str, ...] = ()
    stage: str = ""
    relation: str = ""
    later: bool | None = None
    gradients: bool | None = None


class Ban(Switches, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is not drawn while the flag is on: what is switched off, and the `ops` and `dtypes`."""

    ops: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()


class Flag(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One known bug of one target.

    `also` are further targets that have the bug, such as the same compiler with other kernels; there the case is not run.
    `versions` are ranges by package, such as {"torch": ">=2.10,<2.14"}; all must hold. `note` says what is wrong, and
    `url` where it is told. `case` is the name, or its digest, of a case that fails by it: run anew, it proves that the
    flag is not stale.
    """

    name: str
    target: str
    note: str
    case: str
    url: str = ""
    also: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    match: Match = Match()
    ban: Ban = Ban()

    def concerns(self, target: str) -> bool:
        """Whether the flag is for this target, in the versions that are installed."""
        return target in (self.target, *self.also) and all(_holds(*entry) for entry in self.versions.items())

    def narrow(self, limits: Limits) -> Limits:
        """The limits without what the flag bans."""
        switches = {name: getattr(self.ban, name) for name in Switches.__struct_fields__}
        banned = Limits(**switches, banned_ops=frozenset(self.ban.ops), banned_dtypes=frozenset(self.ban.dtypes))
        return limits.meet(banned)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    flag: tuple[Flag, ...] = ()


def read(path: Path = SHIPPED) -> tuple[Flag, ...]:
    """The flags of a file, in its order. Raises `FlagError` for what is no such file, or contradicts itself."""
    try:
        flags = msgspec.toml.decode(path.read_bytes(), type=_File).flag
    except OSError as error:
        raise FlagError(f"{path}: cannot be read: {error.strerror}; name a file of flags") from error
    except UnicodeDecodeError as error:
        raise FlagError(f"{path}: this is no UTF-8 text: {error.reason}; restore the file") from error
    except msgspec.ValidationError as error:
        raise FlagError(f"{path}: {error}; see the shipped {SHIPPED.name} for what a flag holds") from error
    except msgspec.DecodeError as error:
        raise FlagError(f"{path}: this is no TOML: {error}; restore or mend the file") from error
    names: set[str] = set()
    for flag in flags:
        _check(flag, path)
        if flag.name in names:
            raise FlagError(f"{path}: two flags are called {flag.name!r}; give one another name")
        names.add(flag.name)
    return flags


def _check(flag: Flag, path: Path) -> None:
    where = f"{path}: flag {flag.name!r}"
    if not flag.name or not flag.note or not flag.case:
        raise FlagError(f"{where}: name, note and case must not be empty")
    if flag.match == Match() and flag.ban == Ban():
        raise FlagError(f"{where}: it has neither a `match` nor a `ban`, so it changes nothing; give it one")
    for package, wanted in flag.versions.items():
        try:
            SpecifierSet(wanted)
        except InvalidSpecifier:
            raise FlagError(f"{where}: versions.{package}: {wanted!r} is no range such as '>=2.10,<2.14'") from None
    try:
        re.compile(flag.match.text)
    except re.error as error:
        raise FlagError(f"{where}: match.text: {flag.match.text!r} is no regular expression: {error}") from None


def _holds(package: str, wanted: str) -> bool:
    number = _installed(package)
    return number is not None and SpecifierSet(wanted).contains(number, prereleases=True)


@lru_cache(maxsize=64)
def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def fits(match: Match, facts: Mapping[str, Any]) -> bool:
    """Whether a failure with these facts looks so. Facts that are not known yet, `None`, fit no pattern that asks for them.

    `facts` holds symptoms (worst first), details, texts, ops (lists of strings), stage, relation (strings), later and gradients
    (truth values).
    """
    if match == Match():
        return False
    return all((
        not match.symptom or facts["symptoms"][:1] == (match.symptom,),
        not match.detail or any(detail.startswith(match.detail) for detail in facts["details"]),
        not match.text or any(re.search(match.text, text) for text in facts["texts"]),
        all(any(fnmatchcase(op, pattern) for op in facts["ops"]) for pattern in match.ops),
        not match.stage or match.stage == facts["stage"],
        not match.relation or match.relation == facts["relation"],
        match.later is None or match.later == facts["later"],
        match.gradients is None or match.gradients == facts["gradients"],
    ))  # fmt: skip
