"""A compiled function whose inputs require grad: its forward program, and a backward program for each set of cotangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from executor.autograd.cut import cut, part
from executor.autograd.extract import extract
from executor.autograd.joint import Joint
from executor.autograd.skeleton import skeleton
from executor.errors import TraceError

if TYPE_CHECKING:
    from executor.autograd.joint import Pass
    from executor.pipeline import Compilation
    from executor.program import Program, Value

Pattern = tuple[bool, ...]


class Backward(NamedTuple):
    """Going backward from some of the targets.

    `kept` are positions among the values that the forward program saves, `layouts` those that the cotangents must have.
    `gradients` says for each root where it is among the results. `unpacked` are the tensors that autograd would look at,
    by number, and `storages` the memory of those. `error` is what autograd raises instead, if it does.
    """

    compilation: Compilation | None
    kept: tuple[int, ...]
    layouts: tuple[Value, ...]
    gradients: tuple[int | None, ...]
    unpacked: frozenset[int]
    storages: frozenset[int]
    error: Exception | None


class Pair:
    """One forward program, and the backward programs that were asked for.

    `saved` are the values that go from one to the other; the forward program returns the skeleton's anchors and then
    those. `homes` are the storages of the inputs.
    """

    def __init__(self, joint: Joint, compiler: Callable[[Program], Compilation]) -> None:
        self._template, self._compile = joint.template, compiler
        self.skeleton, targets = skeleton(joint)
        self._backward: dict[Pattern, Backward] = {}
        self._count = len(joint.forward)
        full = (True,) * len(targets)
        values = joint.recorder.values
        self.homes = [values[k].storage for k in range(joint.given)]
        self.anchor_homes = [values[v].storage for v in self.skeleton.anchors]
        everything = joint.backward(targets, full) if full else None
        passes = [everything] if everything else []
        if everything and everything.error is not None:
            # It did not come far. The caller may still go backward from those targets that do not raise.
            passes += [joint.backward(targets, [t is one for t in targets]) for one in targets]
        self.saved = self._saved(joint, passes) if passes else ()
        self.forward = compiler(self._forward_program(joint))
        self.last: Compilation | None = None  # of the backward pass that was made last, or of the one from all targets
        if everything:
            self._backward[full] = self._program(joint, everything)
            self.last = self._backward[full].compilation

    def _saved(self, joint: Joint, passes: Sequence[Pass]) -> tuple[int, ...]:
        wanted = part(joint, list(dict.fromkeys(v for found in passes for v in _wanted(joint, found)))).needed
        visible = frozenset((*self.homes, *self.anchor_homes))
        return tuple(sorted(cut(joint, wanted, visible, only=len(self.skeleton.targets) == 1)))

    def backward(self, pattern: Pattern, joint: Joint | None) -> Backward:
        """The backward program for these cotangents. Where it is new, the function is traced again unless `joint` is there."""
        if pattern not in self._backward:
            if joint is None:
                joint = Joint(self._template)
                joint.run()
                if len(joint.forward) != self._count:
                    raise TraceError("the function made other calls when it was traced again, to go backward from less")
            _, targets = skeleton(joint)
            self._backward[pattern] = self._program(joint, joint.backward(targets, pattern))
        return self._backward[pattern]

    def _forward_program(self, joint: Joint) -> Program:
        calls = [joint.recorder.calls[i] for i in joint.forward]
        names = [(f"x{k}", k) for k in range(joint.given)]
        return extract(joint.recorder, calls, names, (*self.skeleton.anchors, *self.saved))

    def _program(self, joint: Joint, found: Pass) -> Backward:
        (again, needed), recorder = part(joint, _wanted(joint, found), frozenset(self.saved)), joint.recorder
        place = {v: k for k, v in enumerate(self.saved)}
        given = [v for v in found.cotangents if v is not None]
        results = list(dict.fromkeys(v for v in found.gradients if v is not None))
        compilation = None
        if found.error is None:
            params = [
                *((f"saved{k}", v) for k, v in enumerate(needed)),
                *((f"grad{k}", v) for k, v in enumerate(given)),
            ]
            calls = [recorder.calls[i] for i in (*again, *found.calls)]
            compilation = self._compile(extract(recorder, calls, params, results))
        homes = {recorder.home(joint.kept[k]) for k in found.unpacked}
        return Backward(
            compilation,
            tuple(place[v] for v in needed) if found.error is None else (),
            tuple(recorder.values[v] for v in given),
            tuple(None if v is None else results.index(v) for v in found.gradients),
            found.unpacked,
            frozenset(storage for storage in homes if storage is not None),
            found.error,
        )


def _wanted(joint: Joint, found: Pass) -> list[int]:
    """The values of the forward pass that going backward uses."""
    calls = joint.recorder.calls
    made = {v for v in found.cotangents if v is not None}.union(*(calls[i].results for i in found.calls))
    used = [v for i in found.calls for v in calls[i].operands]
    return [v for v in dict.fromkeys((*used, *found.gradients)) if v is not None and v not in made]
