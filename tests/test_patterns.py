"""Short sequences of statements: each pattern gives the programs that it is there for, and they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, find, settings
from hypothesis import strategies as st

from benchmarks.forms import FORMS
from executor import interpreter, memory
from executor.args import Ref
from executor.program import Param, Program
from executor.validate import validate_geometry
from fuzz.hazards import hazards
from strategies import patterns
from strategies.crossing import draw_crossing
from strategies.draws import Draw, choice
from strategies.layouts import draw_inputs, draw_places
from strategies.scope import Scope

SEARCH = settings(max_examples=2000, database=None, deadline=None, phases=(Phase.generate,), derandomize=True)


@st.composite
def alone(draw: Callable[[st.SearchStrategy[Any]], Any], name: str) -> Program:
    """Inputs, and one pattern of this name; its last value is returned."""
    drawn, scope = Draw(draw), Scope()
    inputs = draw_inputs(drawn, scope, draw_places(drawn), rare=True).indices
    drawn.begin()
    targets = scope.writable()
    if targets and name == "draw_crossing":
        draw_crossing(drawn, scope, targets)
    elif targets:
        pattern = next(found for found in patterns.PATTERNS if found.__name__ == name)
        pattern(drawn, scope, choice(drawn, targets))
    params = [Param("abcd"[k], Ref(index)) for k, index in enumerate(inputs)]
    return scope.recorder.program(params, Ref(scope.recorder.current(scope.count - 1)))


def _is_scattered_then_overwritten(program: Program) -> bool:
    ops = [call.op for call in program.calls]
    if "aten.slice_scatter.default" not in ops or ops[-1] not in ("aten.fill_.Scalar", "aten.zero_.default"):
        return False
    scatter = program.calls[ops.index("aten.slice_scatter.default")]
    return scatter.operands[0] == program.calls[-1].operands[0]


def _is_read_late(program: Program) -> bool:
    reads = [call for call in program.calls if call.op == "aten.view.dtype"]
    if len(reads) != 2 or program.calls[-1] is not reads[-1]:
        return False
    origin, back = program.values[reads[0].operands[0]], program.values[reads[-1].results[0]]
    written = {program.values[call.results[0]].storage for call in program.calls if call.op.split(".")[1].endswith("_")}
    return origin.dtype == back.dtype and written == {origin.storage, back.storage}


def _is_indexed_then_mirrored(program: Program) -> bool:
    ops = [call.op for call in program.calls]
    return {"aten.index_copy_.default", "aten.flip.default", "aten.add_.Tensor"} <= set(ops)


def _is_a_shift(program: Program) -> bool:
    by_op = {call.op: call for call in program.calls}
    if not {"aten.clone.default", "aten.copy_.default"} <= by_op.keys():
        return False
    source, place = by_op["aten.clone.default"].operands[0], by_op["aten.copy_.default"].operands[0]
    a, b = program.values[source], program.values[place]
    return a.storage == b.storage and a.offset != b.offset and "complex" in a.dtype


def _crosses_a_conjugate(program: Program) -> bool:
    """Whether a part and the whole, or two parts, are written and read, one of them as conjugates: made by the statement."""
    made = {"aten._conj.default", "aten.slice.Tensor"} <= {call.op for call in program.calls}
    return made and any(
        found.kind == "read-after-write"
        and found.relation in ("contained", "partial")
        and program.values[found.earlier.value].conj != program.values[found.later.value].conj
        for found in hazards(program)
    )


@pytest.mark.parametrize(("name", "wanted"), [
    ("_scattered_then_overwritten", _is_scattered_then_overwritten),
    ("_bytes_read_late", _is_read_late),
    ("_added_to_its_flip", _is_indexed_then_mirrored),
    ("draw_crossing", _is_a_shift),
    ("draw_crossing", _crosses_a_conjugate),
    ("_expanded_and_filled", FORMS["a number written to a tensor that overlaps itself"]),
    *(("_left_as_it_is", FORMS[name]) for name in FORMS if name.startswith("written through: ")),
])  # fmt: skip
def test_a_pattern_gives_such_programs(name: str, wanted: Callable[[Program], bool]) -> None:
    program = find(alone(name), wanted, settings=SEARCH)
    validate_geometry(program)
    interpreter.run(program, memory.allocate(program.entry).tensors)
