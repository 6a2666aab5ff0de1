"""What torch's schemas say that there is, is drawn or left out for a reason; what programs are like is told right."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.coverage import Left, Reached, existing, lines, reach
from benchmarks.forms import FORMS
from executor.args import Ref
from executor.limits import EVERYTHING
from executor.program import Iota, Param
from executor.tracing import trace
from fuzz.reach import families
from strategies.scope import Scope


def test_tables_of_torch() -> None:
    found = existing()
    assert {"aten.view.default", "aten.split.Tensor", "aten._conj.default"} <= set(found["views"])
    assert "aten.add.Tensor" not in found["views"]
    assert {"aten.add_.Tensor", "aten.index_put_.default"} <= set(found["in place"])
    assert "aten._foreach_add_.List" in found["lists"]
    assert {"aten.t_.default", "aten.set_data.default"} <= set(found["metadata"])
    assert "aten.add.out" in found["out="]


def test_whatever_torch_has_is_drawn_or_left_out_for_a_reason() -> None:
    left = Left()
    drawn = {op for exact in (True, False) for ops in families(EVERYTHING, exact=exact).values() for op in ops}
    for table, ops in existing().items():
        assert [op for op in ops if table != "out=" and op not in drawn and not left.why(op, table)] == []


def test_reasons() -> None:
    left = Left()
    assert left.why("aten.normal_.default", "in place") == "random"
    assert left.why("aten.acos_.default", "in place") == "named in LIMITATIONS.md"
    assert left.why("aten._fw_primal.default", "views") == "internal"
    assert left.why("aten.arccos_.default", "in place").startswith("made of others")
    assert left.why("aten._indices.default", "views") == "no kernel for dense tensors on a CPU"
    assert left.why("aten.add_.Tensor", "in place") == ""


def test_what_limitations_name_exists_and_is_not_drawn() -> None:
    drawn = {op.removeprefix("aten.") for ops in families(EVERYTHING, exact=True).values() for op in ops}
    drawn |= {op.rsplit(".", 1)[0] for op in drawn if op.endswith(".default")}
    for name in Left().named - {"resize_", "resize_as_", "benchmarks.coverage"}:
        assert hasattr(torch.ops.aten, name.split(".")[0]), name
        assert name not in drawn


def test_what_was_never_reached_is_told() -> None:
    missing = [name for _, names in lines(Reached(), Left()) for name in names]
    assert {"aten.view.default", "float32", "view_then_write", "inputs: nested"} <= set(missing)
    found = reach(30, 0)
    assert found.programs == 30
    assert found.tables["dtypes"]["float32"] > 0


def _forms(fn, *args: torch.Tensor) -> set[str]:  # type: ignore[no-untyped-def]
    program = trace(fn, *args)
    return {name for name, holds in FORMS.items() if holds(program)}


def test_how_inputs_lie() -> None:
    x = torch.arange(12.0)
    pairs = {
        "inputs: identical": (x, x.view(12)),
        "inputs: nested": (x, x[2:4]),
        "inputs: overlapping by one element": (x[:3], x[2:5]),
        "inputs: interleaved": (x[::2], x[1::2]),
        "inputs: transposed": (x.view(3, 4), x.view(3, 4).t()),
        "inputs: disjoint on one storage": (x[:3], x[4:]),
        "inputs: another dtype on the same bytes": (x, x.view(torch.int32)),
        "inputs: expanded": (x, x[:1].expand(3)),
        "inputs: windows that overlap": (x, x.unfold(0, 3, 1)),
        "inputs: empty": (x, x[:0]),
        "inputs: hidden base": (x[1:], x[2:]),
    }
    for name, (a, b) in pairs.items():
        assert name in _forms(lambda a, b: a + 1, a, b), name
        assert name not in _forms(lambda a, b: a + 1, torch.ones(2), torch.ones(2)), name


def test_what_programs_do() -> None:
    def used(a: torch.Tensor) -> torch.Tensor:
        view = a[:1]
        a.add_(1)
        return view * 2

    found = _forms(used, torch.ones(3))
    assert {"a view taken before a write and used after", "a written input that is not returned"} <= found
    assert "a read, then the source is written" not in found
    again = _forms(lambda a: (b := a.clone(), a.add_(1), b), torch.ones(3))
    assert {"a read, then the source is written", "the same output twice"} <= again


def _through(op: str, *args: object, of: Callable[[torch.Tensor], object] = lambda x: x) -> set[str]:
    """The forms of a program that calls an operator, writes its operand, and returns the operator's result."""
    scope = Scope()
    x = scope.tensor(scope.add_input(torch.arange(6.0), Iota("float32", 0)))
    made = scope.emit(op, of(x), *args)[0]
    scope.emit("aten.add_.Tensor", x, 1)
    program = scope.recorder.program([Param("a", Ref(0))], Ref(made))
    return {name for name, holds in FORMS.items() if holds(program) and name.startswith("written through")}


def test_forms_that_leave_their_operand_as_it_is() -> None:
    wanted = {
        "contiguous": _through("aten.contiguous.default"),
        "to the same dtype": _through("aten.to.dtype", torch.float32),
        "dropout in evaluation": _through("aten.dropout.default", 0.5, False),  # noqa: FBT003 (as the schema has it)
        "pad by 0": _through("aten.constant_pad_nd.default", [0, 0]),
        "stack of one": _through("aten.stack.default", of=lambda x: [x]),
        "cat of one": _through("aten.cat.default", of=lambda x: [x]),
        "split of one": _through("aten.split.Tensor", 6),
    }
    for name, found in wanted.items():
        assert found == {f"written through: {name}"}
    assert not _through("aten.to.dtype", torch.float64)
    assert not _through("aten.constant_pad_nd.default", [0, 1])
    assert not _through("aten.cat.default", of=lambda x: [x, x])
    assert not _through("aten.split.Tensor", 3)
