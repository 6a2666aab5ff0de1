"""Rules of gradients: which inputs may require them, where `no_grad` means something, and how a caller may go backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.validate.scope import fail

if TYPE_CHECKING:
    from executor.program import Backward, Program


def check_gradients(program: Program) -> None:
    """Raises `ProgramError` for the first rule that is broken."""
    for name in ("leaves", "rooted"):
        _check_positions(name, getattr(program, name), program)
    both = sorted({*program.leaves} & {*program.rooted})
    if both:
        fail("rooted", f"input {both[0]} is a leaf, too", "an input is one of them or the other")
    for later, earlier in program.twins:
        for name in ("leaves", "rooted"):
            if (later in getattr(program, name)) is not (earlier in getattr(program, name)):
                fail(name, f"inputs {later} and {earlier} are one tensor", "name both or neither")
    for position in program.rooted:
        _check_rooted(program, position)
    if not (program.leaves or program.rooted):
        _check_none(program)
    if program.backward is not None:
        _check_backward(program.backward)


def _check_positions(name: str, positions: tuple[int, ...], program: Program) -> None:
    if list(positions) != sorted({*positions}):
        fail(name, f"{positions} are not in order, or one stands there twice", "name each input once, in order")
    for position in positions:
        if not 0 <= position < len(program.inputs):
            fail(name, f"there is no input {position}", f"there are {len(program.inputs)}")
        dtype = program.values[program.inputs[position]].torch_dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            fail(name, f"input {position} is of {dtype}", "only floating-point and complex tensors can require grad")


def _check_rooted(program: Program, position: int) -> None:
    value = program.values[program.inputs[position]]
    fill = program.storages[value.storage].fill
    if fill is None or fill.dtype != value.dtype:
        held = fill.dtype if fill is not None else "nothing"
        fail("rooted", f"input {position} is {value.dtype}, and its storage holds {held}", "it is a view of one root")


def _check_none(program: Program) -> None:
    for n, call in enumerate(program.calls):
        if call.no_grad:
            fail(f"calls[{n}] {call.op}", "it is under no_grad, and no input requires grad", "leave no_grad out")
    if program.backward is not None:
        fail("backward", "no input requires grad", "leave it out")


def _check_backward(plan: Backward) -> None:
    if plan.passes < 1:
        fail("backward.passes", f"it is {plan.passes}", "it must be 1 or more")
    numbers = {"seed": plan.seed, "written": plan.written or 0, "left_out": min(plan.left_out, default=0)}
    for name, number in numbers.items():
        if number < 0:
            fail(f"backward.{name}", f"{number} is negative", "positions and seeds count from 0")
