"""Programs with inexact operators: judged by float64, with three times eager's error, and not at all where eager has lost all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings

from aliasfuzz import check
from executor.limits import Limits
from executor.program import Program
from executor.targets.base import Target
from strategies import smooth
from strategies.programs import programs

QUICK = settings(max_examples=200, deadline=None, database=None, phases=(Phase.generate,))


class Off(Target):
    """Eager, but results are larger by so many units in the last place, or by 100 if that is 0."""

    needs_source = False

    def __init__(self, ulps: int) -> None:
        self.name, self._ulps = f"off by {ulps}", ulps

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        del example_args

        def compiled(*args: torch.Tensor) -> Any:
            out = fn(*args)
            for _ in range(self._ulps):
                out = torch.nextafter(out, torch.full_like(out, torch.inf))
            return out if self._ulps else out + 100

        return compiled


@pytest.mark.parametrize(("ulps", "ok"), [(1, True), (64, False), (0, False)])
def test_small_errors_pass_and_large_ones_do_not(ulps: int, ok: bool) -> None:  # noqa: FBT001 - a parameter of the test
    verdict = check(lambda x: (x * 3).exp(), [torch.linspace(0.1, 2, 9)], target=Off(ulps), exact=False)
    assert verdict.ok is ok
    assert verdict.unstable is None


def test_where_eager_has_lost_everything_nothing_is_reported() -> None:
    def cancels(x: torch.Tensor) -> torch.Tensor:
        return (x + 1e9) - 1e9

    verdict = check(cancels, [torch.linspace(0.1, 2, 9)], target=Off(0), exact=False)
    assert verdict.ok
    assert str(verdict) == "off by 0: cannot be judged: eager's output 0 is far from what float64 gives"


@QUICK
@given(programs(exact=False))
def test_inexact_programs_lie_within_their_limits(program: Program) -> None:
    assert smooth.within(Limits()).refuse(program) is None


@QUICK
@given(programs(exact=False))
def test_eager_agrees_with_itself_in_float_mode(program: Program) -> None:
    assert check(program, target="null", exact=False).ok


def test_inexact_operators_are_drawn() -> None:
    seen: set[str] = set()

    @settings(QUICK, max_examples=800)
    @given(programs(exact=False))
    def draw_all(program: Program) -> None:
        seen.update(call.op for call in program.calls)

    draw_all()
    assert {op.pure for op in smooth.OPERATORS} | {op.inplace for op in smooth.OPERATORS} <= seen
