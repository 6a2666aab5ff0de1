"""A program's statements as they are printed, with the calls that each makes and the names that its tensors have."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from executor import printing
from executor.functions import FUNCTIONS
from executor.program import Program
from executor.schema import accesses, changes_metadata, resolve
from fuzz.subjects import of_function


class Statement(NamedTuple):
    """A line of the program, and the indices of the calls that it makes.

    It makes none if it only asks for what is there, as `contiguous` of a contiguous tensor does.
    """

    text: str
    calls: tuple[int, ...]


class Script(NamedTuple):
    """A program on given arguments, its statements, the last line, and the names of its values.

    Views that only lead to another view in the same line have no name.
    """

    program: Program
    statements: tuple[Statement, ...]
    returned: str
    names: dict[int, str]

    def statement_of(self, call: int) -> Statement:
        """The statement that makes the call."""
        return next(statement for statement in self.statements if call in statement.calls)


def script(program: Program, arguments: Sequence[Any]) -> Script:
    """The program as it goes on these arguments, which may lie in memory in another way than those it was made for."""
    function = printing.load(program)
    # A class that is printed would be traced as what it does; the operator behind it is one call.
    function.__globals__.update({FUNCTIONS[op].__name__: _Applied(resolve(op)) for op in FUNCTIONS})
    traced = of_function(function, arguments).program
    assert traced is not None, "a printed program makes the calls of a program"
    text = printing.function(program)
    body = {node.lineno: node for node in _lines(ast.parse(text).body[-1].body)}  # type: ignore[attr-defined]
    lines: dict[int, list[int]] = {}
    for k, call in enumerate(traced.calls):
        assert call.source is not None, "it was traced"
        lines.setdefault(call.source.line, []).append(k)
    source = text.splitlines()
    names = printing.input_names(traced)
    before = [
        node for line, node in body.items() if line < min(lines, default=max(body)) and isinstance(node, ast.Assign)
    ]
    for value, node in zip(reversed(traced.constants), reversed(before), strict=False):
        names[value] = next(_assigned(node))
    for line, calls in lines.items():
        changes = [traced.calls[k] for k in calls if changes_metadata(traced.calls[k].op)]
        names.update({call.results[0]: names[call.operands[0]] for call in changes if call.results})
        new = [value for value in traced.calls[calls[-1]].results if value not in names]
        names.update(zip(new, _assigned(body[line]), strict=False))
    statements = tuple(
        Statement(_text(source[line - 1]), tuple(lines.get(line, [])))
        for line, node in body.items()
        if line in lines or _asks(node)
    )
    return Script(traced, statements, source[-1].strip(), names)


class _Applied(NamedTuple):
    """Stands for a custom function."""

    apply: Callable[..., Any]


def _lines(nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, those of blocks included."""
    for node in nodes:
        if isinstance(node, ast.With):
            yield from _lines(node.body)
        else:
            yield node


def _text(line: str) -> str:
    """A statement alone; one that stands in a block, of which there is one kind only, says so."""
    inner = line.startswith(8 * " ")
    return f"{line.strip()}{'  # no_grad' if inner else ''}"


def _asks(node: ast.stmt) -> bool:
    """Whether a line that makes no call is a method's call all the same, as `b = a.contiguous()` is."""
    if isinstance(node, ast.Expr):
        return True
    asked = node.value.func if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None
    return isinstance(asked, ast.Attribute) and isinstance(asked.value, ast.Name) and asked.value.id != "torch"


def _assigned(node: ast.stmt) -> Iterator[str]:
    """The names that a line gives to tensors, in the order of the line."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    names = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    for name in sorted(names, key=lambda part: part.col_offset):
        if not name.id.startswith("_"):
            yield name.id


def uses(program: Program, statement: Statement) -> dict[int, tuple[bool, bool]]:
    """The values that a statement concerns, and of each whether it is read and whether it is written.

    One that is neither is a new view.
    """
    found: dict[int, tuple[bool, bool]] = {}
    for k in statement.calls:
        call = program.calls[k]
        reads, writes = accesses(program, call)
        homes = {program.values[i].storage for i in call.operands}
        made = {i for i in call.results if program.values[i].storage not in homes}
        for i in dict.fromkeys((*reads, *writes, *call.results)):
            read, written = found.get(i, (False, False))
            found[i] = (read or i in reads, written or i in writes or i in made)
    return found
