"""`programs()`: a Hypothesis strategy of whole programs, valid by construction.

A program is inputs, then statements, then what is returned. All choices of a statement are drawn together, so deleting
them leaves a valid program; whether one more statement follows is drawn a step at a time. See Hypothesis's guide
"strategies that shrink".
"""

from __future__ import annotations

from hypothesis import strategies as st

from executor.args import Arg, Ref, Tuple
from executor.limits import EVERYTHING, Limits
from executor.program import Param, Program
from strategies.calls import draw_pure, draw_reduction, draw_write
from strategies.draws import Draw, below, choice, more
from strategies.layouts import draw_inputs
from strategies.scope import Scope
from strategies.views import draw_view

LONGEST = 14  # statements
_KINDS = ("write", "view", "write", "pure", "write", "view", "pure", "reduction")
_NAMES = "abcd"


@st.composite
def programs(draw: Draw, limits: Limits = EVERYTHING) -> Program:
    """Programs that mix views, slices and in-place ops over inputs that share memory.

    `limits` say what the compiler under test takes; all programs lie within them. Every program runs in eager without an
    error, its elements are integers that their dtype holds exactly, and no write depends on the order in which elements
    are visited.
    """
    scope = Scope()
    inputs, twins = draw_inputs(draw, scope, limits)
    while len(scope.recorder.calls) < LONGEST and more(draw, 25):
        _statement(draw, scope, limits.banned_ops)
    params = [Param(_NAMES[i], Ref(index)) for i, index in enumerate(inputs)]
    return scope.recorder.program(params, _outputs(draw, scope, limits, inputs), twins)


def _statement(draw: Draw, scope: Scope, banned: frozenset[str]) -> None:
    kind = choice(draw, _KINDS)
    targets = scope.writable() if kind == "write" else []
    if targets:
        draw_write(draw, scope, targets, banned)
    elif kind == "view":
        tensor = scope.tensor(below(draw, scope.count))
        op, args = draw_view(draw, tensor, banned)
        scope.emit(op, tensor, *args)
    elif kind == "reduction":
        draw_reduction(draw, scope, banned)
    else:
        draw_pure(draw, scope, banned)


def _outputs(draw: Draw, scope: Scope, limits: Limits, inputs: list[int]) -> Arg:
    """One to three values, the latest first; one may stand there twice."""
    closed = set() if limits.written_inputs_returned else scope.written & {scope.value(i).storage for i in inputs}
    fits = [Ref(i) for i in reversed(range(scope.count)) if scope.value(i).storage not in closed]
    if not fits:
        fits = [Ref(scope.emit("aten.clone.default", scope.tensor(inputs[0]), bound=scope.bound(inputs[0]))[0])]
    chosen = [choice(draw, fits)]
    while len(chosen) < 3 and more(draw, 2):
        chosen.append(choice(draw, fits))
    return chosen[0] if len(chosen) == 1 else Tuple(tuple(chosen))
