"""Custom autograd functions that programs may call: torch's way to write forward and backward by hand, with writes in place.

Each is an operator of the namespace `aliasfuzz`, whose schema says what it reads, writes and returns a view of, as every
operator's does. torch runs such an operator above autograd, so a call of it is in the graph what `apply` is. Their bodies use
nothing but torch, so that programs print them.
"""

# ruff: noqa: ARG004, D102 (torch says what forward and backward are, and programs print them)

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import lru_cache
from typing import Any

import torch


class Doubled(torch.autograd.Function):
    """Doubles its argument in place."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 2


class Multiplied(torch.autograd.Function):
    """Multiplies its first argument in place, and keeps both factors."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x.clone(), y)
        ctx.mark_dirty(x)
        x.mul_(y)
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = ctx.saved_tensors
        return g * y, g * x


class Squared(torch.autograd.Function):
    """Squares its argument in memory of its own, going backward, too."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clone().mul_(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return g.clone().mul_(x).mul_(2)


class TailNegated(torch.autograd.Function):
    """Negates all elements but the first, through a view of a copy."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone(memory_format=torch.contiguous_format)
        y.view(-1)[1:].neg_()
        return y

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        g = g.clone(memory_format=torch.contiguous_format)
        g.view(-1)[1:].neg_()
        return g


class Logged(torch.autograd.Function):
    """Doubles its argument, and adds it to a buffer that has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, log: torch.Tensor) -> torch.Tensor:
        y = x * 2
        log.add_(x)
        return y

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None]:
        return g * 2, None


class Reversed(torch.autograd.Function):
    """Its argument, as a view, whose gradient is negated."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return -g


# Those that write in place return nothing here: what `apply` returns is their argument, but under `no_grad` another object.
_SCHEMAS: dict[type[torch.autograd.Function], str] = {
    Doubled: "doubled(Tensor(a!) x) -> ()",
    Multiplied: "multiplied(Tensor(a!) x, Tensor y) -> ()",
    Squared: "squared(Tensor x) -> Tensor",
    TailNegated: "tail_negated(Tensor x) -> Tensor",
    Logged: "logged(Tensor x, Tensor(a!) log) -> Tensor",
    Reversed: "reversed(Tensor(a) x) -> Tensor(a)",
}
_library = torch.library.Library("aliasfuzz", "FRAGMENT")


def _define(function: type[torch.autograd.Function], schema: str) -> str:
    name, returned = schema.partition("(")[0], not schema.endswith("()")

    def run(*args: torch.Tensor) -> torch.Tensor | None:
        made: torch.Tensor = function.apply(*args)
        return made if returned else None

    _library.define(schema)
    _library.impl(name, run, "CompositeImplicitAutograd")
    return f"aliasfuzz.{name}.default"


FUNCTIONS = {_define(function, schema): function for function, schema in _SCHEMAS.items()}


@lru_cache(maxsize=len(FUNCTIONS))
def text(op: str) -> str:
    """The class behind an operator of `FUNCTIONS` as Python text that needs nothing but torch: types are left out."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(FUNCTIONS[op])))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    return ast.unparse(tree) + "\n"
