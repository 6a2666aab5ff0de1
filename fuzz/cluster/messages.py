"""What workers and the coordinator tell each other, as MessagePack: a few hundred bytes now and then, not one a program.

A worker numbers what it has to say, as `Delta`s, and keeps each until the coordinator has it on disk. A reply says which is
the last that the coordinator has; whatever comes after it is sent again. So nothing is lost if a message is, or if the
coordinator begins anew from what it saved last, and nothing counts twice if a message arrives twice.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeVar

import msgspec

from corpus.case import Case
from corpus.flags import Flag
from executor.limits import Limits
from fuzz.cluster.tally import Tally
from fuzz.findings import Kind
from fuzz.options import Options

T = TypeVar("T")


class Setup(msgspec.Struct, array_like=True, frozen=True):
    """A campaign, the same for all its workers: `workers` seats, and the arms (pairs of target and profile) to share them.

    `known` are the digests of signatures that the corpus has, `shipped` says that the flags are those of this project, which lie
    elsewhere on each node. `redis` is the address of the shared examples or empty. A turn
    takes `turn` seconds; a worker reports every `interval` seconds. `rounds` ends each worker after so many batches, if not 0.
    """

    options: Options
    workers: int
    arms: tuple[tuple[str, str], ...]
    known: frozenset[str] = frozenset()
    redis: str = ""
    turn: float = 60.0
    interval: float = 5.0
    rounds: int = 0
    shipped: bool = False


class Place(msgspec.Struct, array_like=True, frozen=True):
    """How far a worker is: the batch that runs, and how many of its programs are done with."""

    batch: int = 0
    drawn: int = 0


class Found(msgspec.Struct, array_like=True, frozen=True):
    """A failure as it is kept: its case, the verdict and the program as text, and the command that runs its batch again."""

    case: Case
    text: str
    listing: str
    rerun: str

    @property
    def signature(self) -> str:
        """The digest of its signature."""
        return self.case.signature.digest if self.case.signature is not None else ""


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """A failure that nobody has shrunk yet. `seed` is that of its batch, `tries` how often somebody was to shrink it."""

    kind: Kind
    found: Found
    arm: int
    seed: int
    tries: int = 0


class Begin(msgspec.Struct, array_like=True, frozen=True):
    """What a target is, on the node of a worker."""

    limits: Limits
    versions: dict[str, str]


class Delta(msgspec.Struct, array_like=True):
    """What a worker did on one arm since the delta before, and its place afterwards.

    `met` are failures for others to shrink, `shrunk` the kinds that were shrunk, `stale` flags that do not hold and why.
    """

    seq: int
    arm: int
    place: Place
    tally: Tally
    found: list[Found] = []
    met: list[Failure] = []
    shrunk: list[Kind] = []
    stale: dict[str, str] = {}
    begin: Begin | None = None


class Left(msgspec.Struct, array_like=True, frozen=True):
    """The program that a worker was judging when it was killed, and how far it was then.

    `drawn` says that it is the next one that was drawn there, and not one that was met while something was shrunk.
    """

    worker: int
    place: Place
    found: Found
    drawn: bool = True

    @property
    def passed(self) -> Passed:
        """What is passed over, so that the program is not judged again."""
        digest = self.found.case.program.digest
        return Passed(self.place.batch, self.place.drawn + 1 if self.drawn else 0, "" if self.drawn else digest)


class Passed(msgspec.Struct, array_like=True, frozen=True):
    """What is not judged again in a batch: its program with this number, or one with this digest while something is shrunk."""

    batch: int
    number: int = 0
    digest: str = ""


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """A worker begins, or begins anew. `killed` is what killed workers have left on its node."""

    worker: int
    node: str
    killed: tuple[Left, ...] = ()


class Welcome(msgspec.Struct, array_like=True, frozen=True):
    """What a worker begins with: which incarnation it is, where it goes on, and which programs it passes over.

    `epoch`, `version` and `flags` are as in `Reply`.
    """

    setup: Setup
    incarnation: int
    place: Place
    arm: int
    left: float
    passed: tuple[Passed, ...] = ()
    epoch: int = 0
    version: int = 0
    flags: tuple[Flag, ...] = ()


class Report(msgspec.Struct, array_like=True):
    """A worker reports: all deltas that the coordinator does not have. `epoch` is what it knows of (see `Reply`).

    `start` is the place that it was welcomed with, `passed` how many programs it was to pass over. `free` means that it is between two batches, and may turn to something else.
    `holding` are kinds that it shrinks. `note` says what keeps it from working, and `ended` that it does no more. `node` is where it is.
    """

    worker: int
    incarnation: int
    deltas: list[Delta]
    start: Place
    free: bool = False
    ended: bool = False
    holding: list[Kind] = []
    epoch: int = 0
    shrunk: int = 0
    flags: int = 0
    note: str = ""
    passed: int = 0
    node: str = ""


class Reply(msgspec.Struct, array_like=True):
    """The coordinator's answer. `have` is the last delta that it has, `durable` the last that a restart would not lose.

    `left` are seconds until the end, 0 for the end itself; `out` says that another has the worker's seat, and `anew` that the
    worker has to say hello again, since the coordinator does not know what was done before it came. `arm` and `job` are what the worker turns to. `shrunk` continues,
    from entry `since`, the list of kinds that were shrunk anywhere; `flags` are all that are on, if the worker has others.
    The `epoch` changes when the coordinator begins anew: then the worker's list may be another than the coordinator's.
    """

    epoch: int
    have: int
    durable: int
    left: float
    arm: int = 0
    waiting: bool = False
    job: Failure | None = None
    since: int = 0
    shrunk: list[Kind] = []
    version: int = 0
    flags: tuple[Flag, ...] | None = None
    out: bool = False
    anew: bool = False


class Ask(msgspec.Struct, array_like=True, frozen=True):
    """A worker asks for the lease on a kind of failure: may it shrink one?"""

    worker: int
    incarnation: int
    kind: Kind


_PLAIN, _PACKED = b"\0", b"\1"
_WORTH = 512  # bytes from which on a message is compressed
_encoder = msgspec.msgpack.Encoder()
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def packed(message: object) -> bytes:
    """A message as bytes; long ones are compressed, since names of operators repeat."""
    data = _encoder.encode(message)
    return _PLAIN + data if len(data) < _WORTH else _PACKED + zlib.compress(data, 1)


def unpacked(data: bytes, kind: type[T]) -> T:
    """The message that `packed` made. Raises `msgspec.DecodeError` or `zlib.error` for anything else."""
    plain = data[1:] if data[:1] == _PLAIN else zlib.decompress(data[1:])
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    message: T = decoder.decode(plain)
    return message
