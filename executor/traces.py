"""What the compiler did, to read: the program after each pass, with everything about aliasing spelled out."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from executor.args import Arg, Dict, Ref, children, refs
from executor.printing.arguments import source
from executor.printing.calls import spell
from executor.printing.forms import Scope
from executor.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from executor.program import Call, Value


class Trace(Program, frozen=True, omit_defaults=True, dict=True):
    """The program after a pass: its name, milliseconds, counts, and notes to print.

    `marks` are comments, each with the number of the call before which it stands. `frees`: say where a value is let go.
    """

    name: str = ""
    milliseconds: float = 0.0
    counts: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    marks: tuple[tuple[int, str], ...] = ()
    frees: bool = False

    def __str__(self) -> str:
        return "\n".join([*_header(self), *_body(self)])


def make(
    program: Program,
    name: str,
    milliseconds: float = 0.0,
    counts: tuple[tuple[str, int], ...] = (),
    notes: tuple[str, ...] = (),
) -> Trace:
    """The trace of a program."""
    return Trace(*(*_fields(program), name, milliseconds, counts, notes))


def plain(trace: Trace) -> Program:
    """The trace's program alone."""
    return Program(*_fields(trace))


# What makes a program, without what a trace adds.
_fields = attrgetter(*Program.__struct_fields__)


def _header(trace: Trace) -> list[str]:
    counts = ", ".join(f"{count} {name}" for name, count in trace.counts)
    lines = [f"# constructed by {trace.name} (took {trace.milliseconds:.2f} ms)"]
    return [*lines, *([f"# {counts}"] if counts else []), *(f"# {note}" for note in trace.notes)]


def _body(trace: Trace) -> list[str]:
    names = {p.value.index: p.name for p in trace.params if isinstance(p.value, Ref)}
    lines = [f"def program({', '.join(p.name for p in trace.params)}):"]
    for param in trace.params:
        if not isinstance(param.value, Ref):
            names.update({v: f"{param.name}{n}" for n, v in enumerate(refs(param.value))})
            lines += [f"    {names[v]} = {path}" for v, path in _paths(param.value, param.name)]
    lines += [f"    # {names[v]}: {describe(trace, trace.values[v])}" for v in trace.inputs]
    names.update({v: f"t{v}" for v in range(len(trace.values)) if v not in names})
    lines += [f"    # {names[v]}: a constant, {describe(trace, trace.values[v])}" for v in trace.constants]
    gone = _last_uses(trace) if trace.frees else {}
    marks: dict[int, list[str]] = {}
    for number, text in trace.marks:
        marks.setdefault(number, []).append(f"    # {text}")
    scope = Scope(trace.values, names)
    made = {*trace.inputs, *trace.constants}
    for number, call in enumerate(trace.calls):
        lines += marks.get(number, [])
        lines.append(_statement(trace, call, scope, made))
        made.update(call.results)
        if number in gone:
            lines.append(f"    del {', '.join(names[v] for v in gone[number])}")
    return [*lines, *marks.get(len(trace.calls), []), f"    return {source(trace.outputs, names)}"]


def _paths(tree: Arg, path: str) -> Iterator[tuple[int, str]]:
    """Each value in a parameter's tree, with the expression that reaches it."""
    if isinstance(tree, Ref):
        yield tree.index, path
    keys = [repr(key) for key, _ in tree.items] if isinstance(tree, Dict) else range(len(children(tree)))
    for key, item in zip(keys, children(tree), strict=True):
        yield from _paths(item, f"{path}[{key}]")


def _statement(trace: Trace, call: Call, scope: Scope, made: set[int]) -> str:
    new = [v for v in call.results if v not in made]
    text = spell(call, scope)
    if new:
        text = f"{', '.join(scope.names[v] for v in call.results)} = {text}"
    about = [describe(trace, trace.values[v]) for v in new]
    if call.source is not None:
        about.append(f"{call.source.file}:{call.source.line}")
    return f"    {text}" + (f"  # {'; '.join(about)}" if about else "")


def describe(program: Program, value: Value) -> str:
    """Device, dtype and shape, strides, place."""
    shape = ", ".join(map(str, value.shape))
    offset = f" + {value.offset}" if value.offset else ""
    bits = (" conjugated" if value.conj else "") + (" negated" if value.neg else "")
    device = program.storages[value.storage].device
    return f'"{device} {value.dtype}[{shape}]"{bits} strides {value.strides} on storage {value.storage}{offset}'


def _last_uses(program: Program) -> dict[int, list[int]]:
    """For each call the values that nobody uses after it."""
    seen = {*refs(program.outputs), *program.inputs}
    found: dict[int, list[int]] = {}
    for number in range(len(program.calls) - 1, -1, -1):
        call = program.calls[number]
        gone = [v for v in dict.fromkeys((*call.operands, *call.results)) if v not in seen]
        if gone:
            found[number] = gone
            seen.update(gone)
    return found
