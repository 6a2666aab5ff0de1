"""Flags of known bugs: read whole or refused by name, applied to limits and failures, and stale when their case is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.flags import SHIPPED, Ban, Flag, FlagError, Match, fits, read
from corpus.store import Store
from executor import targets
from executor.limits import Limits
from fuzz.known import Known

GOOD = """
[[flag]]
name = "empties"
target = "null"
note = "what is wrong"
case = "beginning"
versions = { torch = ">=2.0" }
match = { symptom = "exception", text = "numel=\\\\d+" }
ban = { empty_inputs = false, ops = ["aten.t.default"] }
"""


def _flags(tmp_path: Path, text: str) -> tuple[Flag, ...]:
    path = tmp_path / "flags.toml"
    path.write_text(text, encoding="utf-8")
    return read(path)


def test_a_flag_is_read_and_narrows_the_limits(tmp_path: Path) -> None:
    (flag,) = _flags(tmp_path, GOOD)
    assert flag.concerns("null")
    assert not flag.concerns("thunder")
    narrow = Known.of((flag,), "null").narrow(Limits(numbers=False))
    assert narrow == Limits(numbers=False, empty_inputs=False, banned_ops=frozenset({"aten.t.default"}))


def test_a_flag_holds_for_the_targets_that_share_the_bug_but_is_proved_on_its_own(tmp_path: Path) -> None:
    (flag,) = _flags(tmp_path, GOOD.replace('target = "null"', 'target = "null"\nalso = ["pipeline:eager"]'))
    assert flag.concerns("pipeline:eager")
    assert not flag.concerns("pipeline")
    assert Known((flag,)).stale(targets.get("pipeline:eager")) == []
    assert Known((flag,)).stale(targets.get("null"))


def test_versions_outside_the_range_switch_a_flag_off(tmp_path: Path) -> None:
    (flag,) = _flags(tmp_path, GOOD.replace(">=2.0", "<2.0"))
    assert not flag.concerns("null")
    (flag,) = _flags(tmp_path, GOOD.replace("torch", "no-such-package"))
    assert not flag.concerns("null")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (("[[flag]]", "[[flags]]"), "unknown field `flags`"),
        (('note = "what is wrong"\n', ""), "missing required field `note`"),
        (('note = "what is wrong"', 'note = ""'), "must not be empty"),
        ((">=2.0", "2.x or so"), "versions.torch: '2.x or so' is no range"),
        (("numel=\\\\d+", "("), "match.text: '\\(' is no regular expression"),
        (("empty_inputs", "no_such_limit"), "unknown field `no_such_limit`"),
        (('case = "beginning"', "case = "), "this is no TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: tuple[str, str], wrong: str) -> None:
    assert change[0] in GOOD
    with pytest.raises(FlagError, match=wrong):
        _flags(tmp_path, GOOD.replace(*change))


def test_a_flag_that_changes_nothing_or_a_name_twice_is_refused(tmp_path: Path) -> None:
    idle = GOOD.split("match", maxsplit=1)[0]
    with pytest.raises(FlagError, match="neither a `match` nor a `ban`"):
        _flags(tmp_path, idle)
    with pytest.raises(FlagError, match="two flags are called 'empties'"):
        _flags(tmp_path, GOOD + GOOD)


def test_every_damage_is_a_clear_error_or_a_right_read(tmp_path: Path) -> None:
    data = GOOD.encode()
    path = tmp_path / "flags.toml"
    damaged = [data[:k] for k in range(len(data))]
    damaged += [data[:k] + bytes([data[k] ^ 0x55]) + data[k + 1 :] for k in range(len(data))]
    errors = []
    for text in damaged:
        path.write_bytes(text)
        try:
            assert all(isinstance(flag, Flag) for flag in read(path))
        except FlagError as error:
            errors.append(str(error))
    assert len(errors) > len(data)
    assert all(str(path) in error for error in errors)


FACTS = {
    "symptoms": ("value", "memory"), "details": [""], "texts": ["value: expected 1, got 2"], "ops": ["aten.add_.Tensor"],
    "stage": None, "relation": None, "later": False, "gradients": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (Match(), False),
        (Match(symptom="value"), True),
        (Match(symptom="memory"), False),
        (Match(symptom="alias"), False),
        (Match(text="got \\d"), True),
        (Match(ops=("aten.add*",)), True),
        (Match(ops=("aten.add*", "aten.t.*")), False),
        (Match(symptom="value", stage="aot"), False),
        (Match(later=True), False),
        (Match(gradients=False), False),
        (Match(gradients=True), True),
        (Match(later=False, symptom="value"), True),
    ],
)
def test_patterns(match: Match, expected: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert fits(match, FACTS) is expected


def test_a_flag_whose_case_is_right_or_missing_is_stale() -> None:
    path, _ = next(iter(Store().cases()))
    target = targets.get("pipeline:eager")

    def flag(case: str) -> Known:
        return Known((Flag(name="f", target="pipeline:eager", note="n", case=case, ban=Ban(numbers=False)),))

    ((_, why),) = flag(path.stem).stale(target)
    assert "is right now" in why
    ((_, why),) = flag("no-such-case").stale(target)
    assert "cannot be read" in why


def test_the_shipped_flags_are_well_formed_and_name_cases_of_their_targets() -> None:
    for flag in read():
        assert {flag.target, *flag.also} <= set(targets.names())
        cases = [path for path in (SHIPPED.parent / "cases").glob("*.json") if flag.case in path.stem]
        assert len(cases) == 1, flag.name
        assert flag.target.replace("_", "-").replace(":", "-") in cases[0].stem
