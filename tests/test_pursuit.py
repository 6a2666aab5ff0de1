"""A failure while it shrinks: what is the same bug, what is kept beside it, and why it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from benchmarks.planted_faults import Faulty
from corpus.signature import Signature
from executor.limits import Limits
from executor.program import Iota, Program
from executor.targets import Target
from executor.tracing import trace
from fuzz import pursuit
from fuzz.blame import blamed
from fuzz.check import Verdict, check
from fuzz.findings import size
from fuzz.pursuit import Pursuit, shrink
from tests.planted import Crashing, Severed


def long(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = a * 3
    a.mul_(2)
    d = b.neg()
    e = c.sum()
    b.sub_(1)
    return d + e


def program() -> Program:
    x = torch.arange(12.0) * 3
    return trace(long, x[:8].reshape(2, 4), x[4:].reshape(2, 4))


def judge(target: Target) -> Callable[[Program], Verdict]:
    return lambda candidate: check(candidate, target=target)


def test_it_ends_with_the_least_that_shows_the_bug() -> None:
    target = Severed()
    steps: list[int] = []
    found, why = shrink(check(program(), target=target), target, judge(target), seconds=60,
                        watch=lambda step, _: steps.append(step))  # fmt: skip
    assert why == "minimum"
    assert len(found.smallest.calls) == 1
    assert found.smallest.entry.storages[0].nbytes <= 16
    assert not found.verdict.ok
    assert found.verdict.program == found.smallest
    assert steps == list(range(1, len(steps) + 1))


def test_two_programs_of_one_bug_have_one_end() -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        rows = x.view(-1)[2:4].neg_()
        x.add_(1)
        y = x[1].clone()
        x[0].copy_(rows[:2])
        return (x.relu() * y).sum() + x[0]

    target = Faulty("partial overlap taken for none")
    ends = set()
    x = torch.arange(12.0) * 3
    for start in (trace(other, torch.arange(4.0).reshape(2, 2) * 3), trace(long, x[:8], x[4:])):
        first = check(start, target=target)
        assert not first.ok
        ends.add(shrink(first, target, judge(target), seconds=60)[0].signed().signature)
    assert len(ends) == 1


@pytest.mark.parametrize(("limits", "why"), [({"seconds": 60, "steps": 3}, "steps"), ({"seconds": 0}, "time")])
def test_limits_end_it_with_the_smallest_so_far(limits: dict[str, Any], why: str) -> None:
    target = Severed()
    ran: list[Program] = []

    def counted(candidate: Program) -> Verdict:
        ran.append(candidate)
        return check(candidate, target=target)

    found, ended = shrink(check(program(), target=target), target, counted, **limits)
    assert ended == why
    assert len(ran) == limits.get("steps", 0)
    assert not check(found.smallest, target=target).ok


def test_ctrl_c_ends_it_with_the_smallest_so_far() -> None:
    target = Severed()
    ran: list[Program] = []

    def interrupted(candidate: Program) -> Verdict:
        ran.append(candidate)
        if len(ran) > 6:
            raise KeyboardInterrupt
        return check(candidate, target=target)

    found, ended = shrink(check(program(), target=target), target, interrupted, seconds=60)
    assert ended == "interrupted"
    assert len(found.smallest.calls) < len(program().calls)
    assert not check(found.smallest, target=target).ok


class Both(Severed):
    """Raises for programs that sum, and else forgets that arguments share memory."""

    name = "both"

    def compile(self, fn, example_args):  # type: ignore[no-untyped-def]
        crashes = any(call.op == "aten.neg.default" for call in fn.calls)
        return (lambda *args: 1 // 0) if crashes else super().compile(fn, example_args)


def test_other_bugs_on_the_way_are_kept() -> None:
    target = Both()
    first = check(program(), target=target)
    assert first.symptom == "exception"
    found, _ = shrink(first, target, judge(target), seconds=60)
    assert found.verdict.symptom == "exception"
    assert "memory" in {other.symptom for other in found.others.values()}
    for other in found.others.values():
        assert other.program is not None
        assert not check(other.program, target=target).ok


def test_few_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pursuit, "_MOST_OTHERS", 0)
    target = Both()
    assert not shrink(check(program(), target=target), target, judge(target), seconds=60)[0].others


def test_the_stage_to_blame_stays() -> None:
    target = Faulty("write-back of a stale value")
    twice = check(trace(lambda a: a.add_(1).add_(1), torch.ones(2)), target=target)
    found = Pursuit(twice, target)
    assert found.stage == "out of place"
    assert found.same(twice)
    other = Faulty("write-back forgotten")
    late = check(trace(lambda a: a.add_(1), torch.arange(2.0)[1]), target=other)
    assert not late.ok
    start = Pursuit(late, other)
    start.stage = "coalesce"
    assert not start.same(late)
    assert list(start.others) == [(*start.kind[:3], "dead stores")]


def test_what_the_target_does_not_take_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Severed()
    monkeypatch.setattr(target, "limits", Limits(banned_ops=frozenset({"aten.add_.Tensor"})), raising=False)
    found, why = shrink(check(program(), target=target), target, judge(target), seconds=60)
    assert why == "minimum"
    assert [call.op for call in found.smallest.calls] != ["aten.add_.Tensor"]
    assert not any(target.limits.refuse(other.program) for other in found.others.values() if other.program)
    monkeypatch.setattr(target, "limits", Limits(banned_ops=frozenset({"aten.mul_.Tensor", "aten.add_.Tensor"})))
    found, _ = shrink(check(program(), target=target), target, judge(target), seconds=60)
    assert [call.op for call in found.smallest.calls] == ["aten.add_.Tensor"]  # it was beyond the limits to begin with


def ended(target: Target, fn: Callable[..., Any], *args: torch.Tensor) -> Signature | None:
    """The signature with which shrinking a function ends."""
    first = check(trace(fn, *args), target=target)
    assert not first.ok
    return shrink(first, target, judge(target), seconds=60)[0].signed().signature


def test_an_exception_and_a_wrong_number_of_one_stage_are_one_bug() -> None:
    def negated(a: torch.Tensor) -> torch.Tensor:
        return -a.gt_(0)

    def added(a: torch.Tensor) -> torch.Tensor:
        return a.gt_(0) + 7

    target = Faulty("forwarding without the cast")
    shown = {check(trace(fn, torch.ones(2)), target=target).symptom for fn in (negated, added)}
    assert len(shown) == 2
    one, other = ended(target, negated, torch.ones(2)), ended(target, added, torch.ones(2))
    assert one == other
    assert one is not None
    assert (one.stage, one.symptom) == ("forward", "wrong")


def test_bugs_that_need_one_shape_are_told_from_those_that_do_not() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(3)
        return b.neg() + 1

    x = torch.arange(8.0)
    found = [
        ended(Faulty(name), fn, x[:2], x[4:6]) for name in ("storage offset ignored", "disjoint taken for identical")
    ]
    assert [one.relation for one in found if one is not None] == ["disjoint", "disjoint of one shape"]


def test_what_begins_at_an_earlier_stage_is_the_cause() -> None:
    target = Faulty("dtype size ignored")
    first = check(trace(lambda a: a.add_(1), torch.arange(3.0).half()[1:]), target=target)
    found, asked = Pursuit(first, target), list[Program]()

    def fails(candidate: Program) -> bool:
        asked.append(candidate)
        verdict = check(candidate, target=target)
        return not verdict.ok and found.same(verdict)

    assert found.stage == "regions"
    assert found.go_back(fails)
    assert found.stage == "memory SSA"
    assert found.smallest in asked
    assert [other.program for key, other in found.others.items() if key[-1] == "regions"] == [first.program]
    before = found.verdict
    assert not found.go_back(fails)
    assert found.verdict is before


@pytest.mark.parametrize("target", [Faulty("partial overlap taken for none"), Severed()])
def test_plain_programs_come_first_where_the_stage_tells_the_rest(target: Target) -> None:
    x = torch.arange(12.0) * 3
    found, asked = Pursuit(check(trace(long, x[:8], x[4:]), target=target), target), list[Program]()

    def fails(candidate: Program) -> bool:
        asked.append(candidate)
        verdict = check(candidate, target=target)
        return not verdict.ok and found.same(verdict)

    found.reduce(fails)
    assert (len(asked[0].calls) <= 2) == target.fine_stages
    assert len(found.smallest.calls) <= 2


def test_coarse_stages_are_no_reason_to_go_back() -> None:
    target = Severed()
    assert not Pursuit(check(program(), target=target), target).go_back(lambda _: pytest.fail("it has no stages"))


def test_what_is_reduced_gives_way_to_less_only() -> None:
    target = Severed()
    found, _ = shrink(check(program(), target=target), target, judge(target), seconds=60)
    reduced = found.smallest
    x = reduced.entry
    storages = tuple(msgspec.structs.replace(one, fill=Iota("float32", 0)) for one in x.storages)
    other = check(msgspec.structs.replace(reduced, storages=storages), target=target)
    assert other.program is not None
    assert size(other.program) < size(reduced)
    assert found.same(other)
    assert found.smallest == reduced


def test_without_a_target_stages_tell_nothing_apart() -> None:
    x = torch.ones(2, 2)
    crash = check(trace(lambda a: a.t() + 1, x), target=Crashing())
    found = Pursuit(crash, None)
    assert found.stage == ""
    assert found.signed() is crash
    assert blamed(crash, Crashing()).signature == crash.signature


@pytest.mark.slow
def test_sixty_calls_shrink_to_the_minimum_within_half_a_minute() -> None:
    def sixty(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = b * 2
        for k in range(14):
            a.add_(1)
            y = y + b
            b.mul_(-1)
            y = y.t() if k % 2 else y.relu()
        return y.sum() + a

    target = Faulty("disjoint taken for identical")
    x = torch.arange(32.0).reshape(2, 4, 4)
    start = trace(sixty, x[0], x[1])
    assert len(start.calls) >= 58
    found, why = shrink(check(start, target=target), target, judge(target), seconds=30)
    assert why == "minimum"
    assert len(found.smallest.calls) <= 2
