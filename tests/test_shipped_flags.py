"""The shipped flags narrow what is drawn; without them a campaign looks at all that a target takes."""

from __future__ import annotations

import pytest
from hypothesis import Phase, find, settings

from corpus import flags
from executor.program import Program
from executor.targets import get
from fuzz.known import Known
from strategies.programs import programs

SEARCH = settings(max_examples=500, database=None, deadline=None, phases=(Phase.generate,), derandomize=True)


def _aliased(program: Program) -> bool:
    homes = [program.values[index].storage for index in program.inputs]
    return len(set(homes)) < len(homes)


@pytest.mark.parametrize("target", ["aot_eager", pytest.param("thunder", marks=pytest.mark.thunder)])
def test_aliased_inputs_are_drawn_without_flags_and_only_then(target: str) -> None:
    compiler = get(target)
    assert not Known.of(flags.read(), target).narrow(compiler.limits).aliased_inputs
    assert Known.of((), target).narrow(compiler.limits) == compiler.limits
    assert _aliased(find(programs(compiler.limits), _aliased, settings=SEARCH))
