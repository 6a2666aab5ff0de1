from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

from corpus.case import VERSION, Case, CorpusError, Seen, digest_in, kebab
from corpus.signature import Signature
from executor.memory import allocate, describe
from executor.program import Iota, Literal, Storage, Value
from executor.tracing import trace, trace_refused

if TYPE_CHECKING:
    from collections.abc import Callable

VERSIONS = {"python": "3.11.9", "torch": "2.13.0"}
SIGNATURE = Signature("thunder", "memory", "", "aot", ("pointwise", "in-place"), "partial")


def shift(x: torch.Tensor) -> torch.Tensor:
    return x[1:].add_(x[:-1].clone())


def seed() -> Case:
    program = trace(shift, torch.arange(4.0)).without_sources()
    return Case(program=program, target="pipeline:eager", state="fixed", versions=VERSIONS, note="a note")


def finding() -> Case:
    return msgspec.structs.replace(
        seed(),
        target="thunder",
        state="open",
        signature=SIGNATURE,
        found="2026-03-01",
        bounds={"barriers": 1},
        versions=VERSIONS | {"thunder": "0.2.6"},
    )


@pytest.mark.parametrize("make", [seed, finding])
def test_round_trip(make: Callable[[], Case]) -> None:
    case = make()
    data = case.to_json()
    assert Case.from_json(data) == case
    assert Case.from_json(data).to_json() == data
    assert Case.from_json(data).digest == case.digest


def test_all_that_a_case_can_hold_survives() -> None:
    x = torch.arange(6.0)
    inputs = describe([x, x])
    observed = Seen("fixed", {"torch": "2.12.0"}, SIGNATURE)
    case = msgspec.structs.replace(
        finding(),
        program=trace(lambda a, b: a + b, x, x).without_sources(),
        exact=False,
        calls=(inputs, describe([x[:6], x.clone()])),
        history=(observed,),
    )
    assert Case.from_json(case.to_json()) == case


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.5, -0.0, torch.inf, -torch.inf, torch.nan]).half(),
        torch.tensor([1 + 2j, complex(-0.0, torch.inf), complex(torch.nan, 1)]),
        torch.arange(4, dtype=torch.bfloat16),
        torch.tensor([True, False, True]),
        torch.tensor([2**63 - 1, -(2**63)]),
        torch.tensor([1e-45, 3.4028235e38, 1e16, 0.1]),
        torch.tensor([0x7FF4000000000000], dtype=torch.int64).view(torch.float64),
        torch.zeros(0),
    ],
    ids=lambda t: str(t.dtype),
)
def test_contents_survive_bit_for_bit(tensor: torch.Tensor) -> None:
    case = msgspec.structs.replace(seed(), program=trace(lambda x: x.clone(), tensor).without_sources())
    memory = allocate(Case.from_json(case.to_json()).program.entry)
    raw = tensor.untyped_storage()
    assert memory.contents(0).tobytes() == bytes(raw.tolist())
    assert memory.tensors[0].dtype == tensor.dtype


def test_another_dtypes_view_and_a_lazy_conjugate_survive() -> None:
    z = torch.complex(torch.arange(4.0), torch.ones(4))
    case = msgspec.structs.replace(
        seed(),
        program=trace(
            lambda a, b, c: a + b.sum() + c, z.conj(), z.view(torch.float32)[::2], z.imag.neg()
        ).without_sources(),
    )
    loaded = Case.from_json(case.to_json()).program
    assert loaded == case.program
    assert loaded.entry.values[0].conj
    first, second, third = allocate(loaded.entry).tensors
    assert torch.equal(first, z.conj())
    assert torch.equal(second, z.real)
    assert torch.equal(third, -z.imag)


def test_versions_may_be_texts_of_a_class_of_their_own() -> None:
    case = msgspec.structs.replace(seed(), versions={"torch": torch.__version__})
    assert type(Case.from_json(case.to_json()).versions["torch"]) is str


def test_sources_keep_only_file_names() -> None:
    case = msgspec.structs.replace(seed(), program=trace(shift, torch.arange(4.0)))
    text = case.to_json().decode()
    assert '"file": "test_case.py"' in text
    assert "tests" not in text
    assert case.digest == seed().digest


def test_digest_covers_what_the_case_is_about_and_nothing_else() -> None:
    case, replace = finding(), msgspec.structs.replace
    same = replace(
        case, state="fixed", note="other", versions={}, found="", bounds={}, signature=None, history=(Seen("open", {}),)
    )
    assert same.digest == case.digest
    others = [
        replace(case, target="aot_eager"),
        replace(case, exact=False),
        replace(case, calls=(case.program.entry,)),
        replace(case, program=trace(shift, torch.arange(5.0))),
    ]
    assert len({case.digest, *(other.digest for other in others)}) == 5


def test_equal_cases_have_equal_digests_however_they_were_made() -> None:
    case = seed()
    storages = tuple(Storage(s.nbytes, s.fill) for s in case.program.storages)
    rebuilt = msgspec.structs.replace(case, program=msgspec.structs.replace(case.program, storages=storages))
    assert rebuilt == case
    assert rebuilt.digest == case.digest == Case.from_json(case.to_json()).digest
    assert rebuilt.to_json() == case.to_json()


def test_file_name_is_a_slug_and_the_digest() -> None:
    case = finding()
    assert case.file_name("Rows, then BASE_of rows!") == f"rows-then-base-of-rows-{case.digest}.json"
    assert case.file_name() == f"thunder-memory-{case.digest}.json"
    assert seed().file_name() == f"pipeline-eager-seed-{seed().digest}.json"
    assert digest_in(case.file_name("x")) == case.digest
    assert digest_in("plain.json") is None
    assert len(kebab("long " * 50)) <= 60
    assert kebab("!?") == "case"


def test_text_is_made_for_diffs() -> None:
    program = trace(shift, torch.arange(200.0)).without_sources()
    lines = msgspec.structs.replace(seed(), program=program).to_json().decode().splitlines()
    assert max(map(len, lines)) <= 120
    assert '    "state": "fixed",' in lines
    assert 20 < len(lines) < 70


def test_seen_keeps_the_observations_before() -> None:
    case = finding()
    newer = {"torch": "2.14.0"}
    fixed = case.seen("fixed", newer)
    assert (fixed.state, fixed.versions, fixed.signature) == ("fixed", newer, SIGNATURE)
    assert fixed.history == (Seen("open", case.versions, SIGNATURE),)
    assert fixed.seen("fixed", newer) == fixed
    again = fixed.seen("open", case.versions, SIGNATURE)
    assert [(seen.state, seen.versions) for seen in again.history] == [("open", case.versions), ("fixed", newer)]
    assert again.seen("fixed", newer).history == again.history


def refusal(data: bytes) -> str:
    with pytest.raises(CorpusError) as caught:
        Case.from_json(data, "some.json")
    assert str(caught.value).startswith("some.json: ")
    return str(caught.value)


def edited(case: Case, *path: str | int, value: Any = None, checksum: bool = False) -> bytes:
    """The case's JSON with the field at `path` replaced, or removed if `value` is None."""
    tree = json.loads(case.to_json())
    if not checksum:
        del tree["checksum"]
    node = tree
    for key in path[:-1]:
        node = node[key]
    if value is None:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return json.dumps(tree).encode()


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b'{"x": ' + b"[" * 100_000, b'{"a": tru'])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    assert "this is no JSON, or was cut off or damaged" in refusal(data)


@pytest.mark.parametrize(
    "data", [b"[]", b"3", b"null", b'{"name": "pkg", "version": "1.0"}', b'{"format": 3, "version": 1}']
)
def test_foreign_json_is_refused(data: bytes) -> None:
    assert "this is no case" in refusal(data)


def test_foreign_formats_are_refused() -> None:
    assert "format: 'aliasfuzz.program' is not 'aliasfuzz.case'" in refusal(seed().program.to_json())


def test_newer_versions_ask_for_an_upgrade() -> None:
    data = json.dumps({"format": "aliasfuzz.case", "version": VERSION + 1, "zip": "..."}).encode()
    assert "upgrade aliasfuzz" in refusal(data)
    assert "never existed" in refusal(edited(seed(), "version", value=0))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("case", "state"), "broken", "case.state: Invalid enum value 'broken'"),
        (("case", "state"), None, "case: Object missing required field `state`"),
        (("case", "stat"), "open", "case: Object contains unknown field `stat`"),
        (("case", "versions"), {"torch": 2}, "case.versions[...]: Expected `str`, got `int`"),
        (("case", "program", "calls", 0, "op"), 7, "case.program.calls[0].op: Expected `str`, got `int`"),
        (
            ("case", "program", "calls", 0, "args", 0, "type"),
            "rf",
            "case.program.calls[0].args[0].type: Invalid value 'rf'",
        ),
        (("case", "program", "values", 1, "shape"), "3", "case.program.values[1].shape: Expected `array`, got `str`"),
        (("extra",), 1, "Object contains unknown field `extra`"),
    ],
)
def test_wrong_fields_are_named(path: tuple[str | int, ...], value: Any, message: str) -> None:
    assert message in refusal(edited(seed(), *path, value=value))


def test_programs_that_break_the_rules_are_refused_and_named() -> None:
    assert "case.program: " in refusal(
        edited(seed(), "case", "program", "calls", 0, "op", value="aten.no_such.default")
    )
    assert "case.program: " in refusal(edited(seed(), "case", "program", "values", 0, "offset", value=10**9))


def test_inputs_of_later_calls_are_checked() -> None:
    case = msgspec.structs.replace(seed(), calls=(describe([torch.ones(4)]),))
    assert Case.from_json(case.to_json()) == case
    assert "case.calls[0]: " in refusal(edited(case, "case", "calls", 0, "values", 0, "storage", value=5))
    assert "case.calls[0].values: 0 tensors, but the program takes 1" in refusal(
        edited(case, "case", "calls", 0, "values", value=[])
    )


def test_states_that_fail_need_a_signature() -> None:
    assert "case.signature: missing" in refusal(edited(seed(), "case", "state", value="open"))


def test_edits_are_noticed_and_can_be_meant() -> None:
    assert "checksum: " in refusal(edited(seed(), "case", "note", value="edited", checksum=True))
    assert Case.from_json(edited(seed(), "case", "note", value="edited")).note == "edited"


def test_layout_of_the_text_does_not_matter() -> None:
    assert Case.from_json(json.dumps(json.loads(seed().to_json()), indent=8).encode()) == seed()


def test_cases_that_json_would_change_are_not_written() -> None:
    storage = Storage(4, Literal("float32", (float("nan"),)))
    program = msgspec.structs.replace(trace(lambda x: x + 1, torch.ones(1)), storages=(storage, Storage(4)))
    with pytest.raises(CorpusError, match=r"float32|number|null"):
        msgspec.structs.replace(seed(), program=program).to_json()
    with pytest.raises(CorpusError, match="signature"):
        msgspec.structs.replace(seed(), state="open").to_json()
    with pytest.raises(CorpusError, match="is a PosixPath"):
        msgspec.structs.replace(seed(), note=Path()).to_json()
    with pytest.raises(CorpusError, match="surrogate"):
        msgspec.structs.replace(seed(), note="\udcff").to_json()


def small() -> Case:
    program = trace(torch.Tensor.neg_, torch.ones(1)).without_sources()
    storages = (Storage(4, Iota("float32")),)
    return Case(
        program=msgspec.structs.replace(program, storages=storages, values=(Value(0, "float32", (1,), (1,)),)),
        target="null",
        state="open",
        signature=Signature("null", "value"),
        versions={"torch": "2.13.0"},
        bounds={"barriers": 3},
        found="2026-03-01",
        note="n",
    )


def test_truncated_anywhere_a_file_is_refused() -> None:
    data = small().to_json()
    for count in range(len(data) - 1):  # the last byte is a line break
        refusal(data[:count])


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF])
def test_with_any_byte_flipped_a_file_is_refused_or_read_right(mask: int) -> None:
    case = small()
    data = case.to_json()
    right = 0
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
        try:
            assert Case.from_json(flipped) == case
            right += 1
        except CorpusError:
            pass
    assert right < len(data) / 3  # only white space may differ


def test_refused_programs_are_cases() -> None:
    program = trace_refused(lambda x: x.expand(3, 4).add_(1), torch.ones(3, 1)).without_sources()
    case = msgspec.structs.replace(seed(), program=program)
    assert Case.from_json(case.to_json()).program.raises == "RuntimeError"


def test_version_1_is_read_without_its_other_words_for_accesses() -> None:
    old = {"target": "thunder", "symptom": "value", "dependence": "read-after-write", "relation": "partial",
           "inputs": "must", "ops": ["add_"]}  # fmt: skip
    envelope = json.loads(msgspec.structs.replace(seed(), state="open", signature=SIGNATURE).to_json())
    case = envelope["case"]
    case |= {"signature": old, "history": [{"state": "open", "versions": {}, "signature": old}]}
    envelope |= {"version": 1}
    del envelope["checksum"]
    read = Case.from_json(json.dumps(envelope).encode())
    assert read.signature == Signature("thunder", "value", relation="partial")
    assert read.history == (Seen("open", {}, read.signature),)
    assert Case.from_json(read.to_json()) == read
