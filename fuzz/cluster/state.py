"""What a coordinator knows of its campaign: all that a restart must not forget, of bounded size."""

from __future__ import annotations

import msgspec

from corpus.flags import Flag
from fuzz.cluster.bandit import Arm
from fuzz.cluster.messages import Begin, Failure, Found, Left, Passed, Place, Setup
from fuzz.cluster.tally import Tally
from fuzz.findings import Kind
from fuzz.options import Options

MOST_FINDINGS = 2000  # that are kept; further ones are counted
MOST_WAITING = 1000  # failures that wait to be shrunk; further ones are counted
MOST_PASSED = 64  # programs that were in flight when a seat's worker was killed, and are passed over


class Seat(msgspec.Struct):
    """A worker's part of a campaign, whoever works it: it outlives processes and nodes.

    `incarnation` says who has it, of `holders` so far; only the last may report. `seq` is the last delta of that one, `place` how far it is, and
    `won` whether its turn on `arm`, begun at `since`, has yielded something new. `passed` are programs from there on that were
    in flight when it was killed. `left` are others, which the next holder will pass over: the present one judges them. `heard` is when it was heard of last. `job` is what it shrinks for others.
    """

    arm: int = 0
    incarnation: int = 0
    seq: int = 0
    place: Place = Place()
    since: float = 0.0
    won: bool = False
    passed: list[Passed] = []
    left: list[Left] = []
    heard: float = 0.0
    node: str = ""
    note: str = ""
    job: Failure | None = None
    ended: bool = False
    holders: int = 0


class Lease(msgspec.Struct):
    """Who shrinks a kind of failure, and until when nobody else may."""

    worker: int
    until: float


class Merged(msgspec.Struct):
    """All workers' work on one target. `throughput` counts programs by part of the campaign (see `State.width`)."""

    tally: Tally = msgspec.field(default_factory=Tally)
    stale: dict[str, str] = {}
    begin: Begin | None = None
    throughput: dict[int, int] = {}


class Finding(msgspec.Struct):
    """The first finding of a signature, when it was found (seconds since the epoch), and how often it was."""

    found: Found
    time: float
    known: bool
    times: int = 1


class State(msgspec.Struct):
    """A campaign. `used` are the seconds of its budget that are over; `begun` is 0 before the first worker is there.

    `findings` are by digest of the signature, in the order in which they came; `shrunk` lists a kind each time that one was
    shrunk. `lost` counts what was met beyond what is kept, `killed` are the findings that programs in flight became.
    """

    setup: Setup
    seats: list[Seat]
    arms: list[Arm]
    targets: dict[str, Merged]
    findings: dict[str, Finding] = {}
    killed: list[tuple[int, Found]] = []
    shrunk: list[Kind] = []
    waiting: list[Failure] = []
    leases: dict[Kind, Lease] = {}
    flags: tuple[Flag, ...] = ()
    version: int = 0
    used: float = 0.0
    begun: float = 0.0
    lost: int = 0
    restarts: int = 0
    stopped: bool = False

    @classmethod
    def of(cls, setup: Setup, flags: tuple[Flag, ...] = ()) -> State:
        """The state of a campaign that has not begun."""
        return cls(
            setup=setup,
            seats=[Seat(arm=_first(setup, worker)) for worker in range(setup.workers)],
            arms=[Arm() for _ in setup.arms],
            targets={name: Merged() for name in setup.options.targets},
            flags=flags,
            version=1,
        )

    @property
    def width(self) -> float:
        """Seconds of a part of the campaign, for which programs are counted together."""
        return max(self.setup.options.budget / 60, 1.0)


def continued(state: State, options: Options, workers: int) -> State:
    """A campaign that was stopped, to go on with these options and so many workers: further ones take seats of their own."""
    setup = msgspec.structs.replace(state.setup, options=options, workers=workers, rounds=options.batches)
    seats = state.seats + [Seat(arm=_first(setup, worker)) for worker in range(len(state.seats), workers)]
    for number, seat in enumerate(seats):
        seat.ended = number >= workers
    return msgspec.structs.replace(state, setup=setup, seats=seats, stopped=False)


def _first(setup: Setup, worker: int) -> int:
    """The arm on which a worker begins: the targets in turn, each as a whole, which is its first arm."""
    firsts = [setup.arms.index(arm) for k, arm in enumerate(setup.arms) if arm[0] not in {a[0] for a in setup.arms[:k]}]
    return firsts[worker % len(firsts)]
