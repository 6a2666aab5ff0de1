"""The root conftest.py: a test that this machine cannot run is skipped and says why."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

TESTS = """
import pytest

@pytest.mark.cuda
def test_cuda(): raise AssertionError("ran without a device")

@pytest.mark.thunder
def test_thunder(): raise AssertionError("ran without Thunder")

def test_plain(): pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest((Path(__file__).parents[1] / "conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    cuda\n    thunder")
    pytester.makepyfile(TESTS)
    return pytester


def test_tests_of_what_is_missing_are_skipped_with_the_reason(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    result = suite.runpytest_inprocess("-rs")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines_random(
        ["SKIPPED *no CUDA device: torch.cuda.is_available() is False", "SKIPPED *install the extra `thunder`"]
    )


def test_a_torch_without_cuda_is_named(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    result = suite.runpytest_inprocess("-rs", "-k", "cuda")
    result.stdout.fnmatch_lines([f"SKIPPED *no CUDA: torch {torch.__version__} is built without it"])


def test_tests_of_what_is_there_run(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    suite.runpytest_inprocess().assert_outcomes(passed=1, failed=2)


@pytest.mark.cuda
def test_where_nothing_is_lacking_a_kernel_runs() -> None:
    assert torch.arange(4, device="cuda").add_(1).sum().item() == 10
