"""Calls as one straight-line Python function: no interpretation between them, local variables for values.

Compiling its text costs as much as some dozen runs of the calls one by one, so it pays from the third run on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from executor.args import Arg, Dict, List, Ref, Tuple, to_python
from executor.facts import facts
from executor.interpreter import flatten
from executor.schema import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from executor.program import Call

WORTH_IT = 3  # the run from which on the text is compiled


class Straight:
    """The text of the function so far, and the objects that it uses."""

    def __init__(self, inputs: Iterable[int]) -> None:
        self._names: dict[str, Any] = {"flatten": flatten}
        targets = "".join(f"v{v}, " for v in inputs)
        self._lines = ["def run(inputs):", f"    {targets}= inputs" if targets else "    pass"]

    def call(self, call: Call) -> None:
        """Appends a call."""
        args = [self._text(arg) for arg in call.args] + [f"{key}={self._text(arg)}" for key, arg in call.kwargs]
        op = resolve(call.op)
        text = f"{self._object(op)}({', '.join(args)})"
        if len(call.results) == 1 and facts(call.op).single:
            text = f"v{call.results[0]} = {text}"
        elif call.results:
            text = f"{''.join(f'v{v}, ' for v in call.results)}= flatten({text})"
        self._lines.append(f"    {text}")

    def function(
        self, run: Callable[[Sequence[Any]], Sequence[Any]], inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        """Appends a call of a Python function from a list of values to a list of values."""
        targets = "".join(f"v{v}, " for v in outputs)
        self._lines.append(
            f"    {targets + '= ' if targets else ''}{self._object(run)}([{', '.join(f'v{v}' for v in inputs)}])"
        )

    def value(self, v: int, make: Callable[[], Any]) -> None:
        """Appends the making of a value out of nothing."""
        self._lines.append(f"    v{v} = {self._object(make)}()")

    def free(self, values: Sequence[int]) -> None:
        """Lets values go."""
        self._lines.append(f"    {' = '.join(f'v{v}' for v in values)} = None")

    def finish(self, outputs: Arg) -> Callable[[Sequence[Any]], Any]:
        """The function, which returns this tree."""
        text = "\n".join([*self._lines, f"    return {self._text(outputs)}"])
        exec(compile(text, "<aliasfuzz straight>", "exec"), self._names)  # noqa: S102 (text that we made)
        run: Callable[[Sequence[Any]], Any] = self._names["run"]
        return run

    def _object(self, thing: Any) -> str:
        name = f"k{len(self._names)}"
        self._names[name] = thing
        return name

    def _text(self, arg: Arg) -> str:
        if isinstance(arg, Ref):
            return f"v{arg.index}"
        if isinstance(arg, Tuple):
            return f"({''.join(f'{self._text(item)}, ' for item in arg.items)})"
        if isinstance(arg, List):  # written out, so that each call gets a list of its own
            return f"[{', '.join(self._text(item) for item in arg.items)}]"
        if isinstance(arg, Dict):
            return f"{{{', '.join(f'{key!r}: {self._text(item)}' for key, item in arg.items)}}}"
        if isinstance(arg, bool | int | str) or arg is None:
            return repr(arg)
        return self._object(to_python(arg, ()))


def straight(
    calls: Sequence[Call], inputs: Sequence[int], outputs: Sequence[int]
) -> Callable[[Sequence[Any]], list[Any]]:
    """The calls as a function from inputs to outputs."""
    text = Straight(inputs)
    for call in calls:
        text.call(call)
    return text.finish(List(tuple(Ref(v) for v in outputs)))
