"""Blame: which stage of a target is found, on targets whose stages are made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from corpus.signature import Signature
from executor.limits import Limits
from executor.program import Program
from executor.targets.base import Target, adapt
from executor.tracing import trace
from fuzz.blame import CACHE, alone, blame, blamed, coarse, stage, tells
from fuzz.check import Verdict, check
from fuzz.variants import calls

Wrong = Callable[[Any], Any]


class Made(Target):
    """Does to the result what it is told."""

    needs_source = False

    def __init__(self, name: str, wrong: Wrong, stages: Mapping[str, Target] | None = None) -> None:
        self.name, self._wrong = name, wrong
        self.stages = {**(stages or {}), "all": self} if stages else {}

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        return lambda *args: self._wrong(fn(*args))


def right(out: Any) -> Any:
    return out


def more(out: Any) -> Any:
    return out + 1


def copied(out: Any) -> Any:
    return out.clone()


def broken(out: Any) -> Any:
    raise KeyError(out.shape)


def target(wrong: Wrong, **stages: Wrong) -> Made:
    return Made("made", wrong, {name: Made(f"made/{name}", part) for name, part in stages.items()})


def program() -> Program:
    return trace(lambda a: a.add_(1), torch.ones(2))


STAGES = [
    ("all", target(more, front=right, back=right)),
    ("back", target(more, front=right, back=more)),
    ("front", target(more, front=more, back=right)),
    ("front", target(more, front=broken)),
    ("back", target(more, front=copied, back=more)),
    ("front", target(copied, front=copied, back=more)),
]


@pytest.mark.parametrize(("name", "made"), STAGES)
def test_the_first_stage_that_is_wrong_too(name: str, made: Made) -> None:
    verdict = check(program(), target=made)
    assert stage(verdict, made) == name
    for guess in (*made.stages, "no such stage"):
        assert stage(verdict, made, guess) in (name, guess)
    assert stage(verdict, made, name) == name


def test_a_stage_that_does_not_take_the_program_is_not_to_blame() -> None:
    made = target(more, front=more, back=more)
    made.stages["front"].limits = Limits(banned_ops=frozenset({"aten.add_.Tensor"}))
    assert stage(check(program(), target=made), made) == "back"


def test_a_confirmed_guess_runs_two_stages_only() -> None:
    ran: list[str] = []

    def noted(name: str, wrong: Wrong) -> Wrong:
        def run(out: Any) -> Any:
            ran.append(name)
            return wrong(out)

        return run

    made = target(more, a=noted("a", right), b=noted("b", right), c=noted("c", more))
    verdict = check(program(), target=made)
    assert stage(verdict, made, "c") == "c"
    assert set(ran) == {"b", "c"}


def test_without_stages_there_is_no_stage() -> None:
    made = Made("made", more)
    verdict = check(program(), target=made)
    assert blame(verdict, made).stage == ""
    assert blamed(verdict, made).signature == verdict.signature


class Remembering(Target):
    """Returns what the first call returned."""

    name = "remembering"
    needs_source = False

    def __init__(self, *, staged: bool) -> None:
        self.stages = {"front": Made("remembering/front", right), "all": self} if staged else {}

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
        results: list[Any] = []

        def compiled(*args: Any) -> Any:
            results.append(fn(*args))
            return results[0]

        return compiled


@pytest.mark.parametrize("staged", [True, False])
def test_a_later_call_that_is_right_alone_is_blamed_on_the_cache(*, staged: bool) -> None:
    made, traced = Remembering(staged=staged), trace(lambda a: a * 2, torch.arange(3.0))
    verdict = check(traced, target=made, calls=calls(traced, made))
    assert verdict.call == 1
    again = alone(verdict, made)
    assert again is not None
    assert again.ok
    found = blamed(verdict, made).signature
    assert found == Signature("remembering", "value in a later call", "", CACHE)


def test_the_full_signature_replaces_the_short_one() -> None:
    made = target(more, front=right)
    short = check(program(), target=made)
    full = blamed(short, made)
    assert short.signature is not None
    assert full.signature is not None
    assert (short.signature.stage, full.signature.stage) == ("", "all")
    assert full.signature.fits(short.signature)
    assert full.signature.accesses == ("in-place", "output")
    assert str(full.signature) in str(full)


def test_a_verdict_that_is_fine_stays() -> None:
    made = target(right, front=right)
    verdict = check(program(), target=made)
    assert blamed(verdict, made) is verdict
    assert alone(verdict, made) is None


def test_a_function_without_a_program_has_no_stage() -> None:
    verdict = Verdict("made", check(program(), target=target(more)).mismatches)
    assert blamed(verdict, target(more, front=more)).signature == Signature("made", "value")


class Fine(Made):
    """A compiler of single steps."""

    fine_stages = True


def fine(wrong: Wrong) -> Target:
    return Fine("made", wrong, {"front": Made("made/front", wrong), "back": Made("made/back", wrong)})


@pytest.mark.parametrize(("wrong", "symptom"), [(more, "wrong"), (broken, "wrong"), (copied, "mislaid")])
def test_a_fine_stage_says_more_than_the_symptom(wrong: Wrong, symptom: str) -> None:
    verdict = check(program(), target=fine(wrong))
    found = blamed(verdict, fine(wrong)).signature
    assert found is not None
    assert (found.stage, found.symptom, found.detail) == ("front", symptom, "")
    plain = target(wrong, front=wrong)
    kept = blamed(check(program(), target=plain), plain).signature
    assert kept is not None
    assert (kept.stage, kept.symptom) == ("front", verdict.symptom)


@pytest.mark.parametrize(("symptom", "becomes"), [
    ("value", "wrong"), ("exception", "wrong"), ("memory in a later call", "wrong in a later call"),
    ("identity", "mislaid"), ("crash", "crash"), ("timeout in a later call", "timeout in a later call"),
])  # fmt: skip
def test_what_a_symptom_becomes_where_the_stage_tells_more(symptom: str, becomes: str) -> None:
    assert coarse(symptom) == becomes


def test_others_targets_say_that_their_stages_are_fine() -> None:
    class Theirs:
        name = "theirs"
        fine_stages = True

        def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:
            return fn

    adapted = adapt(Theirs())
    assert tells(adapted, "front")
    assert not tells(adapted, "")
    assert not tells(target(more, front=more), "front")
