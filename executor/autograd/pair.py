"""A compiled function whose inputs require grad: its forward program, and a backward program for each set of cotangents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from executor.autograd.extract import extract
from executor.autograd.joint import Joint
from executor.autograd.skeleton import skeleton
from executor.errors import TraceError
from executor.facts import operand_list

if TYPE_CHECKING:
    from executor.autograd.joint import Pass
    from executor.pipeline import Compilation
    from executor.program import Call, Program, Value

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
        passes = [joint.backward(targets, pattern) for pattern in _covering(full)] if full else []
        self.saved = tuple(dict.fromkeys(v for found in passes for v in part(joint, found).needed))
        self.forward = compiler(self._forward_program(joint))
        self.homes = [joint.recorder.values[k].storage for k in range(len(joint.copies.tensors))]
        self.anchor_homes = [joint.recorder.values[v].storage for v in self.skeleton.anchors]
        if full:
            self._backward[full] = self._program(joint, passes[0])

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
        names = [(f"x{k}", k) for k in range(len(joint.copies.tensors))]
        return extract(joint.recorder, calls, names, (*self.skeleton.anchors, *self.saved))

    def _program(self, joint: Joint, found: Pass) -> Backward:
        (calls, needed), recorder = part(joint, found), joint.recorder
        place = {v: k for k, v in enumerate(self.saved)}
        given = [v for v in found.cotangents if v is not None]
        results = list(dict.fromkeys(v for v in found.gradients if v is not None))
        compilation = None
        if found.error is None:
            params = [
                *((f"saved{k}", v) for k, v in enumerate(needed)),
                *((f"grad{k}", v) for k, v in enumerate(given)),
            ]
            compilation = self._compile(extract(recorder, calls, params, results))
        homes = {recorder.home(joint.saved[k].tensor) for k in found.unpacked}
        return Backward(
            compilation,
            tuple(place[v] for v in needed) if found.error is None else (),
            tuple(recorder.values[v] for v in given),
            tuple(None if v is None else results.index(v) for v in found.gradients),
            found.unpacked,
            frozenset(storage for storage in homes if storage is not None),
            found.error,
        )


def _covering(full: Pattern) -> list[Pattern]:
    return [full]


class Part(NamedTuple):
    """The calls of a backward program, and the values that it takes from the forward program."""

    calls: tuple[Call, ...]
    needed: tuple[int, ...]


def part(joint: Joint, found: Pass) -> Part:
    """What going backward consists of. Views of what the forward program computed are made again."""
    recorder = joint.recorder
    made = {v for v in found.cotangents if v is not None}
    made.update(v for i in found.calls for v in recorder.calls[i].results)
    wanted = [v for i in found.calls for v in operand_list(recorder.calls[i])]
    wanted += [v for v in found.gradients if v is not None]
    needed: dict[int, None] = {}
    views: set[int] = set()
    while wanted:
        v = wanted.pop()
        if v in made:
            continue
        made.add(v)
        maker = joint.view_maker(v)
        if maker is None:
            needed[v] = None
        else:
            views.add(maker)
            wanted += operand_list(recorder.calls[maker])
    calls = [recorder.calls[i] for i in (*sorted(views), *found.calls)]
    return Part(tuple(calls), tuple(sorted(needed)))
