"""The command `aliasfuzz`."""

from __future__ import annotations

import sys

from aliasfuzz.commands import cli
from executor.errors import AliasfuzzError

BAD_USAGE, HARNESS_FAILED = 2, 3


def main() -> None:
    """Runs the command line: 0 nothing new, 1 a new bug or a changed case, 2 bad usage, 3 the harness itself failed."""
    try:
        cli(prog_name="aliasfuzz")
    except AliasfuzzError as error:
        sys.stderr.write(f"aliasfuzz: {error}\n")
        sys.exit(BAD_USAGE)


if __name__ == "__main__":
    main()
