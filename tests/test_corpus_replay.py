from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
import torch._inductor.test_operators  # pytester forgets what is imported in its runs; torch registers operators once

from corpus.case import Case, CorpusError
from corpus.conftest import entries
from corpus.signature import Signature
from corpus.store import SHIPPED, Store
from corpus.test_replay import changed, recorded
from executor.targets import DEFAULT
from executor.tracing import trace
from fuzz.replay import Replay

if TYPE_CHECKING:
    from corpus.case import State

ROOT = SHIPPED.parent
INSTALLED = {"torch": str(torch.__version__)}


def case(size: int, state: State = "fixed", target: str = "null", **versions: str) -> Case:
    program = trace(torch.Tensor.neg_, torch.ones(size)).without_sources()
    signature = None if state == "fixed" else Signature(target, "value")
    return Case(program=program, target=target, state=state, signature=signature, versions=versions or INSTALLED)


def test_replay_is_one_test_per_case_and_target(tmp_path: Path, pytester: pytest.Pytester) -> None:
    store = Store(tmp_path)
    store.save(case(1, target=DEFAULT), "ours")
    fixed, still, older = (
        store.save(made, slug).name
        for made, slug in ((case(2), "fixed"), (case(3, "open"), "still"), (case(4, "open", torch="1.0"), "older"))
    )
    (tmp_path / "damaged.json").write_text("{")
    unknown = store.save(case(5, target="no_such_target"), "unknown").name
    run = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v", ROOT, "--corpus-folder", tmp_path)
    run.assert_outcomes(passed=6, failed=2, skipped=2)
    text = run.stdout.str()
    assert f"test_replay[{fixed}] PASSED" in text
    assert f"test_replay[{fixed}@null] PASSED" in text
    assert "test_replay[damaged.json] FAILED" in text
    assert f"{tmp_path}/damaged.json: this is no JSON, or was cut off or damaged" in text
    assert f"{still}: was open with torch {torch.__version__}, is fixed with torch {torch.__version__}" in text
    assert f"was open with torch 1.0, is fixed with torch {torch.__version__}" in text
    assert f"test_replay[{older}@null] SKIPPED" in text
    assert f"test_replay[{unknown}@no_such_target] SKIPPED" in text
    assert "there is no target 'no_such_target'" in text
    assert "corpus/test_replay.py:" not in text.partition("= FAILURES =")[2].partition("short test summary")[0]


def test_entries_are_sorted_and_name_each_target_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ours, other = store.save(case(1, target=DEFAULT), "b").name, store.save(case(2), "c").name
    (tmp_path / "a.json").write_text("[]")
    found = entries(store)
    assert [(entry.file, entry.target) for entry in found] == [
        ("a.json", DEFAULT), (ours, DEFAULT), (other, DEFAULT), (other, "null"),
    ]  # fmt: skip
    assert isinstance(found[0].case, CorpusError)


def test_what_our_compiler_does_not_take_is_replayed_elsewhere_only(tmp_path: Path) -> None:
    store, program = Store(tmp_path), trace(lambda x: x.t_(), torch.ones(2, 3)).without_sources()
    store.save(msgspec.structs.replace(case(1), program=program))
    assert [entry.target for entry in entries(store)] == ["null"]


@pytest.mark.parametrize(("state", "now", "fine"), [
    ("fixed", "fixed", True), ("open", "open", True), ("flaky", "flaky", True), ("flaky", "open", True),
    ("flaky", "fixed", True), ("flaky", "changed", False), ("open", "fixed", False), ("open", "changed", False),
    ("fixed", "open", False), ("open", "flaky", False),
])  # fmt: skip
def test_an_outcome_must_be_as_recorded(state: State, now: str, *, fine: bool) -> None:
    text = changed(case(1, state, torch="2.12.0"), Replay(now, None, ""), INSTALLED)
    assert text == (None if fine else f"was {state} with torch 2.12.0, is {now} with torch {torch.__version__}")


def test_only_versions_that_the_compiler_depends_on_count() -> None:
    made = msgspec.structs.replace(case(1), versions={"python": "3.11.1", **INSTALLED})
    assert recorded(made, INSTALLED) == INSTALLED
    assert recorded(made, {**INSTALLED, "thunder": "0.2.6"}) == {**INSTALLED, "thunder": "?"}
