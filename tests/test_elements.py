"""Dependences element by element."""

from __future__ import annotations

import pytest
import torch

from executor import elements
from executor.args import Ref
from executor.elements import elementwise, squeezed
from executor.program import Call
from tests.test_early import last_store_early


def test_sizes_of_1_are_left_out() -> None:
    assert squeezed((1, 3, 1, 2)) == (3, 2)
    assert squeezed((1, 1)) == squeezed(()) == ()
    assert squeezed((0, 1)) == (0,)


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("aten.add.Tensor", True),
        ("aten.clone.default", True),
        ("aten._to_copy.default", True),
        ("aten.permute_copy.default", False),
        ("aten.flip.default", False),
        ("aten.sum.default", False),
        ("aten.as_strided_scatter.default", False),
    ],
)
def test_calls_are_elementwise_or_not(op: str, wanted: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    assert elementwise(Call(op, (Ref(0),), (), (1,))) is wanted


def test_past_the_limit_only_shapes_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def there_and_back(x: torch.Tensor, _: torch.Tensor) -> None:
        x.copy_((x.view(-1) + 1).view(3, 3) * 2)

    assert last_store_early(there_and_back, (3, 3))[0] is None
    monkeypatch.setattr(elements, "LISTED", 8)
    assert last_store_early(there_and_back, (3, 3))[0] == "another input of the region overlaps its target"
    assert last_store_early(lambda x, _: x.add_(1), (3, 3))[0] is None
    assert last_store_early(lambda x, _: ((x * 2).unsqueeze(0) + 1, x.add_(1))[0], (3, 3))[0] is None
    assert last_store_early(lambda x, _: ((x * 2).view(-1) + 1, x.add_(1))[0], (3, 3))[0] == (
        "its target is read at another position"
    )
