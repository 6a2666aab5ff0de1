"""The reducer: leaves out what can be left out, and only that."""

from __future__ import annotations

import torch

from executor.args import refs
from executor.tracing import trace
from executor.validate import validate
from fuzz.reducer import candidates, compact, reduce


def test_statements_inputs_and_outputs_that_do_not_matter_go() -> None:
    def long(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        d = a + 1
        e = b.view(-1)
        e.mul_(2)
        f = d * 2
        c.neg_()
        return f, b, c

    program = trace(long, torch.ones(4), torch.ones(2, 2), torch.ones(3))
    reduced = reduce(program, lambda p: any(call.op == "aten.mul_.Tensor" for call in p.calls))
    validate(reduced)
    assert [call.op for call in reduced.calls] == ["aten.view.default", "aten.mul_.Tensor"]
    assert len(reduced.inputs) == 1
    assert len(list(refs(reduced.outputs))) == 1
    assert len(reduced.storages) == 1


def test_every_candidate_is_valid_and_smaller() -> None:
    x = torch.ones(3, 4)
    program = trace(lambda a, b: (a[0].add_(b[:, 0].sum()), a.t() * 2, b), x, x)
    found = list(candidates(program))
    assert found
    for candidate in found:
        validate(candidate)
        size = (len(candidate.calls), len(candidate.inputs), len(list(refs(candidate.outputs))))
        assert size < (len(program.calls), len(program.inputs), len(list(refs(program.outputs))))


def test_a_program_from_which_nothing_can_go_stays() -> None:
    program = trace(lambda a: a.add_(1), torch.ones(2))
    assert reduce(program, lambda p: p == program) == program


def test_compact_renumbers() -> None:
    program = trace(lambda a, b: b.add_(1), torch.ones(2), torch.ones(3))
    assert compact(program) == program
