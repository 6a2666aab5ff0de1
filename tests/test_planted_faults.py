"""Every fault planted in the pipeline shows on random programs: what these miss, the pipeline could have."""

from __future__ import annotations

import itertools

import pytest
import torch

from benchmarks.planted_faults import FAULTS, Faulty, hunt, planted, statements
from executor.backends.weak_memory import WeakMemory
from executor.pipeline import compile_program
from executor.program import Program
from executor.tracing import trace
from tests.alias_programs import meaning, random_program

# Needs two calls of one compiled function, which the random programs don't make.
ONE_CALL = [name for name in FAULTS if "cache key" not in name]


def mixed(half: torch.Tensor, single: torch.Tensor) -> torch.Tensor:
    half.add_(single)
    return half * 2


def layers(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    x[0].mul_(2)
    x[1].mul_(3)
    return x * 2


# What random programs seldom do: a write of another dtype that is read again, three writes that one read sees.
TELLING = (
    trace(mixed, torch.ones(3, dtype=torch.float16), torch.full((3,), 1 / 4096)),
    trace(layers, torch.ones(3, 3)),
)


def wrong(program: Program, seed: int) -> bool:
    """Whether the program compiles, runs and goes wrong, or cannot be compiled at all."""
    wanted = meaning(program)
    try:
        return any(
            meaning(program, compile_program(program, WeakMemory(seed), mode).run) != wanted
            for mode in ("barrier", "blend")
        )
    except Exception:  # noqa: BLE001 (whatever a fault leads to)
        return True


@pytest.mark.parametrize("name", ONE_CALL)
def test_a_fault_shows_on_few_programs(name: str) -> None:
    programs = [
        (seed, program) for seed, program in enumerate((*TELLING, *(random_program(n, 12) for n in range(150))))
    ]
    more = ((seed, random_program(seed, 12)) for seed in range(150, 4000))
    with planted(name):
        assert any(wrong(program, seed) for seed, program in itertools.chain(programs, more))


def test_none_shows_without_a_fault() -> None:
    assert not any(wrong(random_program(seed, 12), seed) for seed in range(150))


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
    batch, found, _ = hunt(name, 20.0, 40.0)
    assert batch.smallest is not None
    assert found <= 20
    assert statements(batch.smallest) <= 4
