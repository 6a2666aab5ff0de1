"""Random programs whose inputs require grad, through the pipeline in its three modes: none may differ from eager."""

from __future__ import annotations

from typing import get_args

import pytest

from executor.backends.weak_memory import WeakMemory
from executor.pipeline import Aliases
from executor.targets.pipeline import Pipeline
from fuzz.batch import Batch
from fuzz.campaign import judge
from strategies.programs import programs


@pytest.mark.parametrize("aliases", get_args(Aliases))
def test_random_programs(aliases: Aliases) -> None:
    target = Pipeline(f"pipeline:{aliases}", WeakMemory(7, early=0.5), aliases)
    batch = Batch(judge(target, 7), float("inf"), 0.0)
    batch.run(programs(target.limits, gradients=True), 7, examples=60)
    assert batch.programs >= 60
    assert batch.smallest is None, f"{batch.verdict}\n{batch.smallest}"
