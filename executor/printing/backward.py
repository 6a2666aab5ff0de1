"""How a caller goes backward from what a program gives, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.program import Backward

if TYPE_CHECKING:
    from executor.program import Program


def backward(program: Program) -> str:
    """A sentence about a program's caller; empty where no input requires grad."""
    if not (program.leaves or program.rooted):
        return ""
    plan = program.backward or Backward()
    words = ["The caller"]
    words += [f"adds 1 to result {plan.written} and then"] if plan.written is not None else []
    words += ["goes backward from", "each result apart" if plan.apart else "all results"]
    words += [f"but {', '.join(map(str, plan.left_out))}"] if plan.left_out else []
    words += ["with torch.autograd.grad"] if plan.functional else []
    words += [f"{plan.passes} times"] if plan.passes > 1 else []
    return f"{' '.join(words)}."
