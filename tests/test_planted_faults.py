"""Every fault that is planted in the pipeline shows on a small program, and nothing shows there without it."""

from __future__ import annotations

import msgspec
import pytest
import torch

from benchmarks.faults import FAULTS, TWELVE
from benchmarks.planted_faults import Faulty, elements, hunt, statements
from benchmarks.planted_page import DOCUMENT, Hunt, document, read, smallest
from executor.program import Backward, Program
from executor.targets.pipeline import Pipeline
from executor.tracing import trace
from fuzz.check import check
from fuzz.variants import calls
from tests.planted_gradients import EXAMPLES as WITH_GRADIENTS
from tests.planted_programs import EXAMPLES


def test_there_are_at_least_forty() -> None:
    assert len(FAULTS) >= 40
    assert set(TWELVE) <= set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows_on_its_program_and_only_then(name: str) -> None:
    sound, faulty = Pipeline("pipeline", "weak_memory", FAULTS[name].aliases), Faulty(name)
    program = _example(name)
    again = calls(program, faulty)
    assert not check(program, target=faulty, calls=again).ok
    assert check(program, target=sound, calls=again).ok  # it is switched off again


def _example(name: str) -> Program:
    if not FAULTS[name].gradients:
        fn, args = EXAMPLES[name]
        return trace(fn, *args)
    fn, args, plan = WITH_GRADIENTS[name]
    return msgspec.structs.replace(trace(fn, *args), backward=None if plan == Backward() else plan)


def test_the_page_is_what_was_measured_of_all_faults() -> None:
    page = document(read())
    assert DOCUMENT.read_text(encoding="utf-8") == page, "run: python -m benchmarks.planted_page"
    assert all(f"| {name} | " in page and f"### {name}\n" in page for name in FAULTS)


def test_a_page_without_measurements() -> None:
    assert "Nothing was measured yet." in document({})


def test_the_smallest_hunt_is_one_that_found_something() -> None:
    program = trace(lambda a: a.add_(1), torch.ones(2))
    found = Hunt(1, found=True, statements=3, program=program)
    assert smallest([Hunt(0), found, Hunt(2, found=True, statements=4, program=program)]) is found


def test_sizes_of_a_program() -> None:
    x = torch.ones(6)
    program = trace(lambda a, b: (a.add_(1), b * 2), x[:2], torch.ones(3))
    assert (statements(program), elements(program)) == (2, 6)


def test_code_for_another_alias_pattern_goes_wrong() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    compiled = Faulty("cache key without the alias pattern").compile(fn, ())
    x = torch.ones(3)
    assert torch.equal(compiled(torch.ones(3), torch.ones(3)), torch.full((3,), 2.0))
    assert not torch.equal(compiled(x, x), torch.full((3,), 4.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_harness_finds_and_shrinks_it(name: str) -> None:
    found = hunt(name, 30.0, 40.0)[1]
    assert found.found
    assert found.statements <= 7  # the most that any fault needs: results laid out like what was forwarded
