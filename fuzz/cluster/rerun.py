"""One batch of a campaign again, alone, on any machine that has the compiler."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import NamedTuple

from corpus.flags import SHIPPED
from fuzz.cluster.messages import Setup
from fuzz.cluster.profiles import PROFILES, WHOLE
from fuzz.options import GRADIENTS, NO_FLAGS, Options, UsageError
from fuzz.relations import NONE


class Address(NamedTuple):
    """A batch: the number of the worker whose it is, its own, and the profile within which it draws."""

    worker: int
    batch: int
    profile: str = WHOLE

    def __str__(self) -> str:
        return f"{self.worker}/{self.batch}" + (f"/{self.profile}" if self.profile != WHOLE else "")


def address(text: str) -> Address:
    """The batch of an address such as "3/17" or "3/17/floats". Raises `UsageError` for anything else."""
    match = re.fullmatch(r"(\d+)/(\d+)(?:/([a-z]+))?", text.strip())
    if match is None or (match[3] or WHOLE) not in PROFILES:
        raise UsageError(
            f"a batch is WORKER/BATCH or WORKER/BATCH/PROFILE, with a profile of {', '.join(PROFILES)}, not {text!r}"
        )
    return Address(int(match[1]), int(match[2]), match[3] or WHOLE)


def rerun(setup: Setup, arm: int, worker: int, batch: int) -> str:
    """The command that runs a batch again."""
    target, profile = setup.arms[arm]
    options = replace(setup.options, flags=str(SHIPPED)) if setup.shipped else setup.options
    return command(options, target, Address(worker, batch, profile))


def command(options: Options, target: str, batch: Address) -> str:
    """The command that runs a batch of a campaign with these options again."""
    words = ["aliasfuzz", "run", "--target", target, "--seed", f"{options.seed:#x}", "--batch", str(batch)]
    words += [] if options.exact else ["--float"]
    words += [] if options.flags == str(SHIPPED) else ["--flags", options.flags or NO_FLAGS]
    words += ["--against", options.against] if options.against else []
    words += ["--relations", options.relations] if options.relations != NONE else []
    words += ["--gradients", options.gradients] if options.gradients != GRADIENTS[0] else []
    return shlex.join(words)
