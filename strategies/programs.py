"""`programs()`: a Hypothesis strategy of whole programs, valid by construction.

A program is inputs, then statements, then what is returned. All choices of a statement are drawn together, so deleting
them leaves a valid program; whether one more statement follows is drawn a step at a time. See Hypothesis's guide
"strategies that shrink".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import event
from hypothesis import strategies as st

from executor.args import Arg, List, Ref, Tuple
from executor.limits import EVERYTHING, Limits
from executor.program import Param, Program
from strategies import pointwise, smooth, views
from strategies.combined import draw_combined
from strategies.crossing import draw_crossing
from strategies.draws import Draw, below, choice, either_end, more
from strategies.exact import FURTHER
from strategies.functions import draw_function
from strategies.gradients import (
    DTYPES,
    GradScope,
    draw_detached,
    draw_required,
    draw_scaled,
    opened,
    perhaps_without,
    with_backward,
)
from strategies.indexed import draw_indexed
from strategies.layouts import draw_inputs, draw_places
from strategies.lists import draw_lists
from strategies.metadata import draw_change
from strategies.moves import draw_move
from strategies.patterns import draw_pattern
from strategies.reductions import draw_reduction
from strategies.refusals import draw_refused
from strategies.scope import NEVER, Enough, Scope
from strategies.spellings import FURTHER_VIEWS
from strategies.usage import draw_usage

LONGEST = 14  # statements
_EACH_STOPS = 5  # about one in so many statements is the last
# Plainest first, those of several calls last; repeats are weights.
_KINDS = (
    "write", "view", "pure", "write", "view", "pure", "write", "reduction", "crossing", "crossing", "crossing", "pattern",
)  # fmt: skip
# Each family stands beside the common kinds in about half of the programs, so that each also meets few others.
_FAMILIES = (
    ("pattern", "pattern"), ("view+", "view+", "view++"), ("write+", "pure+"), ("move", "move"), ("indexed", "indexed"),
    ("out",), ("lists",), ("usage", "usage"),
)  # fmt: skip
_EXACT = (
    ("write++", "write++", "pure++"),
    ("combined", "combined"),
)  # steps, or not continuous; where results are exact
_METADATA = (("metadata",) * 3,)  # where the compiler takes it
_SMOOTH = ("smooth", "smooth_", "smooth", "smooth_")
_NAMES = "abcd"


@st.composite
def programs(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    limits: Limits = EVERYTHING,
    *,
    exact: bool = True,
    gradients: bool = False,
) -> Program:
    """Programs that mix views, slices and in-place ops over inputs that share memory.

    `limits` say what the compiler under test takes; all programs lie within them. Every program runs in eager without an
    error, but for some whose last statement eager refuses; its elements are integers, arithmetic on them is exact in their
    dtype, and no write depends on the order in which elements are visited. Unless `exact`: then there are operators such as
    `exp`, and results are near to what float64 gives. With `gradients`, some inputs require grad where they can, and the program
    says how its caller goes backward; in some programs eager refuses that.

    Hypothesis's statistics (`pytest --hypothesis-show-statistics`) say how many programs hold statements of each family.
    """
    return _program(Draw(draw, event), limits, exact=exact, gradients=gradients)


def drawn(random: Random, limits: Limits = EVERYTHING, *, exact: bool = True, gradients: bool = False) -> Program:
    """One of the programs that `programs` draws, without Hypothesis: each choice is uniform, and nothing can shrink."""
    return _program(Draw.uniform(random), limits, exact=exact, gradients=gradients)


def _program(draw: Draw, limits: Limits, *, exact: bool, gradients: bool) -> Program:
    limits = limits if exact else smooth.within(limits)
    scope = Scope(limits)
    draw.begin()
    most = 1 + below(draw, 1 << 16)
    places = draw_places(draw)
    rare = below(draw, 3) == 2
    kinds = _KINDS + (() if exact else _SMOOTH) + _swarm(draw, limits, exact=exact)
    inputs, twins = draw_inputs(draw, scope, places, rare=rare, first=DTYPES if gradients else ())
    scope.fixed.update(inputs[k] for pair in twins for k in pair)
    given = draw_required(draw, scope, inputs, twins) if gradients else None
    if given is not None:
        scope, kinds = opened(draw, limits, given), (*kinds, "detach", "function", "scaled", "scaled")
        pointwise.draw_pure(draw, scope)  # of an input that requires grad more often than not: leaves cannot be written
    following = ("", *kinds, *("",) * (len(kinds) // _EACH_STOPS))
    draw.begin()
    scope.until = most
    kind = choice(draw, (*kinds, *("crossing",) * (2 * len(kinds))))
    while kind and len(scope.recorder.calls) < min(LONGEST, most):
        with perhaps_without(draw, scope), contextlib.suppress(Enough):
            _statement(draw, scope, kind)
        draw.begin()
        kind = choice(draw, following)
    scope.until = NEVER
    program = _ended(draw, scope, inputs, twins, raising=given is None and limits.raising)
    if given is None or not isinstance(scope, GradScope):
        return program
    return with_backward(draw, scope, program, given)


def _ended(draw: Draw, scope: Scope, inputs: list[int], twins: list[tuple[int, int]], *, raising: bool) -> Program:
    """The program, with what it returns; or with what eager refuses as its last statement."""
    params = [Param(_NAMES[i], Ref(index)) for i, index in enumerate(inputs)]
    if raising and below(draw, 20) == 19 and draw_refused(draw, scope):
        return scope.recorder.program(params, None, twins)
    return scope.recorder.program(_among_numbers(draw, params, scope.limits), _outputs(draw, scope, inputs), twins)


def _swarm(draw: Draw, limits: Limits, *, exact: bool) -> tuple[str, ...]:
    """The families of statements that this program may hold beside the common ones; shrinks to none."""
    families = _FAMILIES + (_EXACT if exact else ()) + (_METADATA if limits.metadata_mutation else ())
    flags = below(draw, 2 ** len(families))
    return tuple(name for k, family in enumerate(families) if flags >> k & 1 for name in family)


def _statement(draw: Draw, scope: Scope, kind: str) -> None:
    draw.note(f"statement: {kind}")
    if kind in _WRITES or kind in _SEVERAL:
        targets = scope.writable()
        if not targets:
            pointwise.draw_pure(draw, scope)
        elif kind in _SEVERAL:
            _several(draw, scope, kind, targets)
        else:
            _WRITES[kind](draw, scope, either_end(draw, targets))
    elif kind in _VIEWS:
        operand = either_end(draw, scope.operands())
        table = _VIEWS[kind] if kind != "view+" or scope.whole(operand) else views.INNER_VIEWS
        op, args = views.draw_view(draw, scope.tensor(operand), table, scope.limits)
        scope.emit(op, scope.tensor(operand), *args)
    elif kind in _OTHERS:
        _OTHERS[kind](draw, scope)
    else:
        pointwise.draw_pure(draw, scope, _PURE[kind])


def _several(draw: Draw, scope: Scope, kind: str, targets: list[int]) -> None:
    """Statements that belong together: nearly always all of them, but Hypothesis may leave out the last ones."""
    most = scope.until
    scope.until = min(most, len(scope.recorder.calls) + 1 + below(draw, 256))
    with contextlib.suppress(Enough):
        _SEVERAL[kind](draw, scope, targets)
    scope.until = most


_VIEWS = {"view": views.VIEWS, "view+": views.MORE_VIEWS, "view++": FURTHER_VIEWS}
_WRITES = {
    "write": pointwise.draw_write,
    "write+": lambda draw, scope, target: pointwise.draw_write(draw, scope, target, pointwise.MORE_OPERATORS),
    "write++": lambda draw, scope, target: pointwise.draw_write(draw, scope, target, FURTHER),
    "combined": draw_combined,
    "smooth_": lambda draw, scope, target: pointwise.draw_write(draw, scope, target, smooth.OPERATORS),
    "indexed": draw_indexed,
    "out": pointwise.draw_out,
}
_SEVERAL = {
    "lists": draw_lists,
    "pattern": draw_pattern,
    "usage": draw_usage,
    "crossing": draw_crossing,
}  # statements, or targets of one
_OTHERS = {
    "reduction": draw_reduction,
    "move": draw_move,
    "metadata": draw_change,
    "detach": draw_detached,
    "function": draw_function,
    "scaled": draw_scaled,
}
_PURE = {"pure": pointwise.OPERATORS, "pure+": pointwise.MORE_OPERATORS, "pure++": FURTHER, "smooth": smooth.OPERATORS}


def _among_numbers(draw: Draw, params: list[Param], limits: Limits) -> list[Param]:
    """The parameters, now and then with a number that nothing uses among them: positions must not shift."""
    if not limits.numbers or below(draw, 12) < 11:
        return params
    at = below(draw, len(params) + 1)
    return [*params[:at], Param("n", 3), *params[at:]]


def _outputs(draw: Draw, scope: Scope, inputs: list[int]) -> Arg:
    """One to three values, the latest first; one may stand there twice, and they may be nested."""
    current, free = scope.recorder.current, scope.limits.written_inputs_returned
    closed = set() if free else scope.written & {scope.recorder.values[i].storage for i in inputs}
    changed = set() if free else set(map(current, inputs)) - set(inputs)
    fits = [
        Ref(current(i))
        for i in scope.returnable()
        if scope.value(i).storage not in closed and current(i) not in changed
    ]
    if not fits:
        fits = [Ref(scope.emit("aten.clone.default", scope.tensor(inputs[0]), range=scope.range(inputs[0]))[0])]
    chosen = [_late(draw, fits)]
    while len(chosen) < 3 and more(draw, 2):
        chosen.append(_late(draw, fits))
    if len(chosen) == 1:
        return chosen[0]
    nested = len(chosen) == 3 and below(draw, 8) == 7
    return Tuple((chosen[0], List(tuple(chosen[1:])))) if nested else Tuple(tuple(chosen))


def _late(draw: Draw, fits: list[Ref]) -> Ref:
    """One of the values, sooner one of the first, which are the latest: they depend on more."""
    return fits[min(below(draw, len(fits)), below(draw, len(fits)))]
