"""`functionalize`: torch.func.functionalize, the pass that takes mutations out of programs for torch.compile and export.

Its documentation (the docstring of `torch.func.functionalize`) promises a function with "the same inputs" and "the same
behavior", mutated inputs included: they are copied back when the function has finished. Three things it does not
promise, and they are the limits here, besides that a function has to return tensors, which one that eager refuses does not:

- `as_strided` with overlapping results: "failure mode" (4) of that docstring.
- An input that is written and returned comes back as another tensor: the last example of that docstring returns the
  updated value beside the `copy_` into the input.
- Inputs that overlap: each is tracked by itself. The maintainers call that an open gap (pytorch/functorch issue 950).
  Inputs on one storage that don't overlap are right.

In-place operators that are aliases or compounds of others (`square_` is `pow_`) are refused in words: "We only support
functionalizing operators whose outputs do not have alias annotations". A traced program holds what they are made of.
So is a write through `as_strided` of a view, which "is non-compositional, and therefore is not possible to functionalize", and
`resize_` of a view to a larger size, which "is not allowed in the functionalization pass".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from executor.limits import Limits
from executor.targets.base import Target, quiet

_BANNED = frozenset({
    "aten.__iand__.Scalar", "aten.__iand__.Tensor", "aten.__ior__.Scalar", "aten.__ior__.Tensor",
    "aten.__ixor__.Scalar", "aten.__ixor__.Tensor", "aten.absolute_.default", "aten.clip_.Tensor", "aten.clip_.default",
    "aten.divide_.Scalar", "aten.divide_.Scalar_mode", "aten.divide_.Tensor", "aten.divide_.Tensor_mode",
    "aten.fill_diagonal_.default", "aten.fix_.default", "aten.multiply_.Scalar", "aten.multiply_.Tensor",
    "aten.negative_.default", "aten.square_.default", "aten.subtract_.Scalar", "aten.subtract_.Tensor",
    "aten.true_divide_.Scalar", "aten.true_divide_.Tensor",
})  # fmt: skip
_REFUSED = (
    "Found a custom (non-ATen) operator",
    "as_strided() is non-compositional",
    "Attempted to resize a view tensor to a larger size",
)


class Functionalize(Target):
    """`torch.func.functionalize(fn)`, run in eager."""

    needs_source = False
    unsafe = True
    limits = Limits(
        overlapping_inputs=False,
        written_inputs_returned=False,
        overlapping_as_strided=False,
        raising=False,
        gradients=False,  # it is below autograd: what it returns has the history of what it ran
        banned_ops=_BANNED,
    )

    def __init__(self, name: str = "functionalize") -> None:
        self.name = name

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:  # noqa: ARG002
        """The functionalized function, which transforms anew at each call."""
        transformed = torch.func.functionalize(fn)

        def compiled(*args: Any) -> Any:
            with quiet():
                return transformed(*args)

        return compiled

    def script(self) -> list[str]:
        """See `Target.script`."""
        return ["import torch", "compiled = torch.func.functionalize(program)"]

    def refusal(self, error: BaseException) -> str | None:
        """See `Target.refusal`."""
        text = str(error)
        return text.partition(". ")[0] if any(words in text for words in _REFUSED) else None
