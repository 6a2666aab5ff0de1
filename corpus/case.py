"""`Case`: a program with what one compiler made of it, and the JSON in which it is kept, one file each.

A file is an envelope `{"format", "version", "checksum", "case"}`. The version counts changes to `Case` and to all that it
holds, `Program` included; version 1 described a signature's accesses in other fields, which are passed over. A file name
ends in twelve digits of what the case is about (`Case.digest`), so one case has one name whatever its state becomes.
"""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from typing import Any, Literal

import msgspec

from corpus.signature import Signature
from executor.args import List, Ref
from executor.errors import AliasfuzzError, ProgramError
from executor.program import Inputs, Param, Program
from executor.validate import validate

FORMAT = "aliasfuzz.case"
VERSION = 2
_WIDTH = 120
_DAMAGED = "restore the file from version control or a backup, or delete it"
_DIGEST_IN_NAME = re.compile(r"-([0-9a-f]{12})\.json\Z")

State = Literal["open", "fixed", "changed", "flaky"]


class CorpusError(AliasfuzzError):
    """A case, or the file of one, is malformed or cannot be stored: the message names file, field and remedy."""


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """An earlier observation of a case."""

    state: State
    versions: dict[str, str]
    signature: Signature | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One program, called once or several times, and how a target fared with it when it last ran.

    `calls` are further inputs for the one compiled function, after the first call with `program.entry`.
    `state`: "open" fails with `signature`, "fixed" is right, "changed" fails in another way, "flaky" fails at times.
    `signature` is None for a case that has never failed: a seed.
    `versions` are those of python, torch and the target ("2.13.0") that `state` was observed with; `history` holds the
    observations before, oldest first.
    `exact` is False if its operators are not exact in floating point; then a float64 run in eager judges.
    `relation` names the rewriting of the program from whose results the target's own differ, though both are near to eager's.
    `bounds` are metrics of the target ("barriers") that must not be exceeded. `found` is an ISO date or empty.
    """

    target: str
    state: State
    note: str = ""
    found: str = ""
    versions: dict[str, str] = {}
    signature: Signature | None = None
    history: tuple[Seen, ...] = ()
    bounds: dict[str, int] = {}
    exact: bool = True
    program: Program
    calls: tuple[Inputs, ...] = ()
    relation: str = ""

    @property
    def digest(self) -> str:
        """Twelve hex digits of what the case is about: program, calls, target, exact, relation. The rest may change."""
        about = (self.program.without_sources(), self.calls, self.target, self.exact, *filter(None, [self.relation]))
        return hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:12]

    def file_name(self, slug: str = "") -> str:
        """The name of this case's file: words in kebab case, then the digest.

        Without a slug the words are the target and the symptom.
        """
        words = slug or f"{self.target} {self.signature.symptom if self.signature else 'seed'}"
        return f"{kebab(words)}-{self.digest}.json"

    def seen(self, state: State, versions: dict[str, str], signature: Signature | None = None) -> Case:
        """This case after a new observation; a different one before it goes to `history`.

        Without a signature the last one stays, so that a fixed bug is still known by it.
        """
        new = Seen(state, versions, signature or self.signature)
        old = Seen(self.state, self.versions, self.signature)
        history = self.history if old == new or old in self.history else (*self.history, old)
        return msgspec.structs.replace(self, state=state, versions=versions, signature=new.signature, history=history)

    def to_json(self) -> bytes:
        """This case as JSON with line breaks. Raises `CorpusError` for a case that could not be read back."""
        try:
            portable = msgspec.structs.replace(self, program=Program.from_json(self.program.to_json()))
            tree = msgspec.json.decode(msgspec.json.encode(portable, enc_hook=_as_text))
        except (TypeError, UnicodeEncodeError, ProgramError) as error:
            raise CorpusError(f"this case cannot be written as JSON: {error}") from error
        envelope = {"format": FORMAT, "version": VERSION, "checksum": _checksum(tree), "case": tree}
        data = (_pretty(envelope, 0) + "\n").encode()
        if self.from_json(data, "this case") != portable:
            raise CorpusError(
                "this case is changed by writing it as JSON: it holds a number that JSON cannot write; "
                "use `Number` or, in a `Literal`, text"
            )
        return data

    @classmethod
    def from_json(cls, data: bytes, source: str = "this text") -> Case:
        """The case that `to_json` wrote. Raises `CorpusError`; `source` is what its message calls the data."""
        try:
            tree = _open(data)
            case = msgspec.json.decode(msgspec.json.encode(tree.case), type=cls)
            _check(case)
        except msgspec.ValidationError as error:
            what, _, place = str(error).partition(" - at ")
            raise CorpusError(f"{source}: {_field(place)}: {what}; {_DAMAGED}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorpusError(f"{source}: this is no JSON, or was cut off or damaged: {error}; {_DAMAGED}") from error
        except CorpusError as error:
            raise CorpusError(f"{source}: {error}") from error
        if tree.checksum and tree.checksum != _checksum(tree.case):
            raise CorpusError(
                f"{source}: checksum: it is {tree.checksum}, but the content has {_checksum(tree.case)}: the "
                f"file was damaged or edited; {_DAMAGED}. If you edited it on purpose, remove the "
                'line "checksum"'
            )
        return case


class _Head(msgspec.Struct):
    format: str
    version: int


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    case: Any
    checksum: str = ""


def _open(data: bytes) -> _Envelope:
    """The envelope, its format and version known to be ours; `case` is plain lists and dicts."""
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError as error:
        raise CorpusError(f'this is no case of aliasfuzz: {error}; a case has "format": "{FORMAT}"') from error
    if head.format != FORMAT:
        raise CorpusError(f"format: {head.format!r} is not {FORMAT!r}: this is no case; move the file elsewhere")
    if head.version > VERSION:
        raise CorpusError(f"version: it is {head.version}, this release reads up to {VERSION}: upgrade aliasfuzz")
    if head.version < 1:
        raise CorpusError(f"version: {head.version} never existed (they count from 1); {_DAMAGED}")
    return msgspec.json.decode(data, type=_Envelope)


def _check(case: Case) -> None:
    """Raises `CorpusError` for what the types alone allow."""
    if case.state != "fixed" and case.signature is None:
        raise CorpusError(f"case.signature: missing, but the state {case.state!r} needs one: what fails, and how")
    try:
        validate(case.program)
    except ProgramError as error:
        raise CorpusError(f"case.program: {error}") from error
    for i, inputs in enumerate(case.calls):
        _check_inputs(inputs, len(case.program.inputs), f"case.calls[{i}]")


def _check_inputs(inputs: Inputs, count: int, where: str) -> None:
    if len(inputs.values) != count:
        raise CorpusError(f"{where}.values: {len(inputs.values)} tensors, but the program takes {count}")
    # A program that returns at once has the inputs' rules and no others.
    tensors = List(tuple(Ref(i) for i in range(count)))
    alone = Program(inputs.storages, inputs.values, (Param("tensors", tensors),), (), None, inputs.twins)
    try:
        validate(msgspec.structs.replace(alone, leaves=inputs.leaves, rooted=inputs.rooted))
    except ProgramError as error:
        raise CorpusError(f"{where}: {error}") from error


def digest_in(file_name: str) -> str | None:
    """The digest that a file name claims, if it has one."""
    found = _DIGEST_IN_NAME.search(file_name)
    return found[1] if found else None


def kebab(text: str) -> str:
    """`text` as lower-case words joined by hyphens, at most 60 characters, for file names."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:60].strip("-") or "case"


def _as_text(obj: object) -> str:
    """The text of a string of a class of its own, as `torch.__version__` is."""
    if isinstance(obj, str):
        return str(obj)
    raise TypeError(f"{obj!r} is a {type(obj).__name__}")


def _field(place: str) -> str:
    """The path of a field in msgspec's words, such as "`$.calls[0]`", as one in the file."""
    return "case" + place.strip("`").removeprefix("$")


def _checksum(tree: Any) -> str:
    """Sixteen hex digits of decoded JSON, whatever its line breaks were."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def _pretty(node: Any, indent: int) -> str:
    """JSON that breaks a list or object over lines only where it is too wide, or is near the root."""
    flat = json.dumps(node, ensure_ascii=False)
    if not node or not isinstance(node, list | dict) or (indent > 2 and indent + len(flat) < _WIDTH):
        return flat
    inner = indent + 2
    if isinstance(node, dict):
        lines = [f"{json.dumps(key)}: {_pretty(value, inner)}" for key, value in node.items()]
    elif all(isinstance(item, int | float) for item in node):
        lines = [line.removesuffix(",") for line in textwrap.wrap(flat[1:-1], _WIDTH - inner, break_on_hyphens=False)]
    else:
        lines = [_pretty(item, inner) for item in node]
    pad = "\n" + " " * inner
    first, last = "{}" if isinstance(node, dict) else "[]"
    return f"{first}{pad}{(',' + pad).join(lines)}\n{' ' * indent}{last}"
