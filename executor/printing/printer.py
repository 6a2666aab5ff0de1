"""A program as a readable Python function of public `torch` calls, which does what the interpreter does."""

from __future__ import annotations

import builtins
import itertools
import keyword
import re
from collections import Counter
from functools import lru_cache
from string import ascii_lowercase
from typing import TYPE_CHECKING

from executor.args import Arg, Dict, List, Ref, Tuple, refs
from executor.errors import ProgramError
from executor.functions import FUNCTIONS
from executor.functions import text as class_text
from executor.printing.arguments import source
from executor.printing.calls import spell
from executor.printing.forms import Scope, subscript
from executor.printing.memory import constant
from executor.schema import changes_metadata, effects, resolve
from executor.schema_fixes import SET_DATA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from executor.program import Call, Param, Program

_RESERVED = frozenset({
    *keyword.kwlist, *dir(builtins), "torch", *[function.__name__ for function in FUNCTIONS.values()],
})  # fmt: skip


def function(program: Program, name: str = "program") -> str:
    """The source of a function `name` of the program's parameters that does what `executor.interpreter.run` does.

    It makes the same calls, with the same aliasing and in-place effects, and needs nothing but `torch`: before it stand the
    custom autograd functions that it calls. Raises
    `ProgramError` for an operator that returns several lists, whose lengths a program doesn't tell.
    """
    return _Printer(program).text(name)


class _Printer:
    """The names given so far, and the lines of the body."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names: dict[int, str] = {}
        self.scope = Scope(program.values, self.names)
        self.taken = set(_RESERVED)
        self.letters = _letters()
        self.lines: list[str] = []

    def text(self, name: str) -> str:
        program = self.program
        params = [self.unique(re.sub(r"\W", "_", param.name, flags=re.ASCII)) for param in program.params]
        for param, given in zip(program.params, params, strict=True):
            self.unpack(param, given)
        for index in program.constants:
            value = program.values[index]
            self.lines.append(f"{self.name(index)} = {constant(program.storages[value.storage], value)}")
        for no_grad, groups in itertools.groupby(self.groups(), lambda group: group[0].no_grad):
            self.lines += ["with torch.no_grad():"] if no_grad else []
            self.lines += ["    " * no_grad + self.line(group) for group in groups]
        self.lines.append(f"return {self.returned(program.outputs)}")
        body = "".join([f"    {line}\n" for line in self.lines])
        used = dict.fromkeys([call.op for call in program.calls if call.op in FUNCTIONS])
        classes = "".join([f"{class_text(op)}\n\n" for op in used])
        return f"{classes}def {name}({', '.join(params)}):\n{body}"

    def line(self, group: Sequence[Call]) -> str:
        """Calls that stand together as one line."""
        text = subscript(group, self.scope) if len(group) > 1 else None
        if changes_metadata(group[0].op):
            return self.change(group[0])
        return self.statement(group[-1], text or spell(group[0], self.scope))

    def unpack(self, param: Param, name: str) -> None:
        """Names the values that a parameter holds."""
        tree = param.value
        if isinstance(tree, Ref):
            self.names[tree.index] = name
            return
        leaves = list(_paths(tree, name))
        for number, (index, _) in enumerate(leaves):
            self.names[index] = self.unique(f"{name}{number}")
        if leaves and isinstance(tree, List | Tuple) and all(isinstance(item, Ref) for item in tree.items):
            self.lines.append(f"{_targets([self.names[index] for index, _ in leaves])} = {name}")
        else:
            self.lines += [f"{self.names[index]} = {path}" for index, path in leaves]

    def groups(self) -> Iterator[list[Call]]:
        """The calls; selects and slices of one another whose results nothing else uses stand together."""
        operands = [call.operands for call in self.program.calls]
        uses = Counter(itertools.chain(*operands, refs(self.program.outputs)))
        group: list[Call] = []
        for call, used in zip(self.program.calls, operands, strict=True):
            follows = group and used and group[-1].results == used and uses[used[0]] == 1
            if follows and group[0].no_grad == call.no_grad and subscript([*group, call], self.scope):
                group.append(call)
                continue
            if group:
                yield group
            group = [call]
        if group:
            yield group

    def statement(self, call: Call, text: str) -> str:
        """The call as a line that names its new results. One that returns only what has a name is no assignment.

        But one that happens to return its operand, as `contiguous` does, gives it another name: a compiler may take it
        for another tensor.
        """
        kinds = _returns(call.op)
        if self.names.keys() >= set(call.results):
            if kinds != ("Tensor",) or effects(call.op).writes:
                return text
            del self.names[call.results[0]]
        if kinds == ("Tensor",):
            return f"{self.name(call.results[0])} = {text}"
        spare = len(call.results) - sum(["Tensor" in kind for kind in kinds])
        if kinds == ("List[Tensor]",):
            return f"{_targets([self.name(index) for index in call.results])} = {text}"
        if kinds.count("List[Tensor]") > 1:
            raise ProgramError(f"{call.op} returns several lists; a program with it cannot be printed")
        if spare < 0 and "List[Tensor]" not in kinds:  # some results are None, as an `output_mask` asks
            names = _targets([self.name(index) for index in call.results])
            return f"{names} = [t for t in {text} if t is not None]"
        return f"{self.pattern(kinds, call, spare)} = {text}"

    def change(self, call: Call) -> str:
        """A call that changes a tensor's metadata as a line: the tensor keeps its name."""
        if call.op == SET_DATA:
            target, data = (source(arg, self.names) for arg in call.args)
            text = f"{target}.data = {data}"
        else:
            text = spell(call, self.scope)
        for index in call.results:
            self.names[index] = self.names[call.operands[0]]
        return text

    def pattern(self, kinds: Sequence[str], call: Call, spare: int) -> str:
        """Targets for an operator's results: numbers get a name too, a list of tensors a tuple of names."""
        left = list(call.results)
        parts = []
        for kind in kinds:
            if kind == "List[Tensor]":
                parts.append(f"({_targets([self.name(left.pop(0)) for _ in range(spare + 1)])})")
            else:
                parts.append(self.name(left.pop(0)) if "Tensor" in kind else self.unique("_"))
        return ", ".join(parts)

    def name(self, index: int) -> str:
        """A new name for a value; a throwaway one if it has a name."""
        if index in self.names:
            return self.unique("_")
        self.names[index] = self.unique(next(letter for letter in self.letters if letter not in self.taken))
        return self.names[index]

    def unique(self, name: str) -> str:
        """`name`, or one like it if that is taken or no Python identifier."""
        name = name if name.isidentifier() else f"_{name}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def returned(self, outputs: Arg) -> str:
        text = source(outputs, self.names)
        return text[1:-1] if isinstance(outputs, Tuple) and len(outputs.items) > 1 else text


@lru_cache(maxsize=4096)
def _returns(op: str) -> tuple[str, ...]:
    """The types of an operator's results."""
    return tuple([str(result.type) for result in resolve(op)._schema.returns])


def _letters() -> Iterator[str]:
    """a, b, ..., z, aa, ab, ..."""
    for length in itertools.count(1):
        yield from map("".join, itertools.product(ascii_lowercase, repeat=length))


def _paths(tree: Arg, path: str) -> Iterator[tuple[int, str]]:
    """Each value in a parameter's tree, with the expression that reaches it."""
    if isinstance(tree, Ref):
        yield tree.index, path
    elif isinstance(tree, List | Tuple):
        for i, item in enumerate(tree.items):
            yield from _paths(item, f"{path}[{i}]")
    elif isinstance(tree, Dict):
        for key, item in tree.items:
            yield from _paths(item, f"{path}[{key!r}]")


def _targets(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) != 1 else f"({names[0]},)"
