"""Traces are readable Python that says where everything lies."""

from __future__ import annotations

import torch

from executor.backends.weak_memory import WeakMemory
from executor.memory import allocate
from executor.pipeline import compile_program
from executor.program import Program
from executor.traces import describe, make, plain
from executor.tracing import trace


def update(x: torch.Tensor, pair: dict[str, torch.Tensor]) -> torch.Tensor:
    x[0].add_(pair["b"])
    return x.t() * 2


def compiled() -> tuple[Program, str]:
    base = torch.ones(3, 4)
    program = trace(update, base[:, :3], {"b": base[2, 1:]})
    return program, str(compile_program(program, WeakMemory(), "barrier").traces[-1])


def test_the_header_names_the_pass_its_time_and_its_counts() -> None:
    _, text = compiled()
    lines = text.splitlines()
    assert lines[0].startswith("# constructed by regions (took 0.") or lines[0].startswith(
        "# constructed by regions (took "
    )
    assert lines[1] == "# 2 regions, 1 barriers, 0 breaks, 1 copies"
    assert lines[2] == "def program(x, pair):"


def test_each_value_has_its_place_and_each_call_its_line() -> None:
    _, text = compiled()
    line = update.__code__.co_firstlineno
    assert '# x: "cpu float32[3, 3]" strides (4, 1) on storage 0' in text
    assert '# pair0: "cpu float32[3]" strides (1,) on storage 0 + 9' in text
    assert f"test_traces.py:{line + 1}" in text
    assert f"test_traces.py:{line + 2}" in text
    assert "    del " in text


def test_a_trace_is_a_program_and_its_text_runs() -> None:
    program, text = compiled()
    found = make(program, "nothing")
    assert plain(found) == program
    assert isinstance(found, Program)
    memory, other = allocate(program.entry), allocate(program.entry)
    namespace: dict[str, object] = {"torch": torch}
    exec(text, namespace)  # noqa: S102 (the text under test)
    x, b = memory.tensors
    result = namespace["program"](x, {"b": b})  # type: ignore[operator]
    wanted = update(other.tensors[0], {"b": other.tensors[1]})
    assert torch.equal(result, wanted)
    assert bytes(memory.contents(0)) == bytes(other.contents(0))


def test_lazy_bits_show() -> None:
    program = trace(lambda z: z.conj(), torch.ones(2, dtype=torch.complex64))
    assert "conjugated" in describe(program, program.values[1])
