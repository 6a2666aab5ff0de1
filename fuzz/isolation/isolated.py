"""`Isolated`: a target whose programs are judged in a sandbox, for all that takes a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from executor.program import Inputs, Program
from executor.targets import Target
from executor.targets.base import Adapter
from fuzz.check import TIME_LIMIT, Elsewhere, Verdict
from fuzz.isolation.messages import Task
from fuzz.isolation.sandbox import MEMORY_LIMIT, Sandbox
from fuzz.oracle import Mismatch


class Isolated(Elsewhere, Adapter):
    """A target as it is, but that `check` has its programs judged in the sandbox, and those of its stages too."""

    def __init__(self, inner: Target, sandbox: Sandbox) -> None:
        super().__init__(inner)
        self.sandbox = sandbox
        self.stages = {stage: Stage(part, self.name, stage, sandbox) for stage, part in inner.stages.items()}
        self.reset = sandbox.refresh  # type: ignore[method-assign]
        self.tally = sandbox.tally  # type: ignore[method-assign]

    def judge(self, program: Program, calls: Sequence[Inputs], bounds: Mapping[str, int], *, exact: bool) -> Verdict:
        """See `fuzz.check.Elsewhere`."""
        return self.sandbox.judge(Task(self.name, program.without_sources(), tuple(calls), exact, dict(bounds)))

    def compare(self, program: Program, relation: str) -> tuple[Mismatch, ...]:
        """See `fuzz.check.Elsewhere`."""
        task = Task(self.name, program.without_sources(), exact=False, relation=relation)
        return self.sandbox.judge(task).mismatches


class Stage(Isolated):
    """A stage of a target; it has none itself."""

    def __init__(self, inner: Target, whole: str, stage: str, sandbox: Sandbox) -> None:
        Adapter.__init__(self, inner)
        self.name, self.sandbox, self.stages = f"{whole}/{stage}", sandbox, {}
        self.tally = sandbox.tally  # type: ignore[method-assign]


@contextmanager
def contained(
    target: Target,
    *,
    always: bool = False,
    seconds: float = TIME_LIMIT,
    memory: int = MEMORY_LIMIT,
    stacks: Path | None = None,
    python: str = "",
) -> Iterator[Target]:
    """The target isolated, for the block, if it is unsafe; a safe one as it is, unless `always`. See `Sandbox`."""
    if not (target.unsafe or always):
        yield target
        return
    with Sandbox(target.name, seconds=seconds, memory=memory, stacks=stacks, python=python) as sandbox:
        yield Isolated(target, sandbox)
