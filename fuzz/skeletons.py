"""The plainest programs in which two accesses of a program meet: a write, and what reads or writes beside it.

Two seeds of one bug shrink to programs that differ in what cannot be left out one at a time. A bug that needs no more than
two or three accesses shows in one of these too, and they are tried in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec
import torch

from executor import memory
from executor.args import Ref
from executor.program import Inputs, Iota, Param, Program, Storage, Value, itemsize
from executor.recorder import Recorder
from executor.schema import resolve
from fuzz.hazards import RELATIONS, Hazard, hazards, trail

_NAMES = "abcdefgh"
FIRST = 2  # where storages begin to count: a comparison gives 0 or 1
ADDED = 10  # unlike 1, it makes no element of a short ramp equal to its neighbour

Tensors = Sequence[torch.Tensor]
Form = Callable[[Recorder, Tensors], torch.Tensor]


def _add(recorder: Recorder, tensor: torch.Tensor) -> torch.Tensor:
    return recorder.call(resolve("aten.add.Tensor"), tensor, ADDED)  # type: ignore[no-any-return]


def _write(recorder: Recorder, tensor: torch.Tensor) -> torch.Tensor:
    return recorder.call(resolve("aten.add_.Tensor"), tensor, ADDED)  # type: ignore[no-any-return]


def _returned(recorder: Recorder, tensors: Tensors) -> torch.Tensor:
    _write(recorder, tensors[0])
    return tensors[-1]


def _read(recorder: Recorder, tensors: Tensors) -> torch.Tensor:
    _write(recorder, tensors[0])
    return _add(recorder, tensors[-1])


def _read_before(recorder: Recorder, tensors: Tensors) -> torch.Tensor:
    result = _add(recorder, tensors[-1])
    _write(recorder, tensors[0])
    return result


def _written_again(recorder: Recorder, tensors: Tensors) -> torch.Tensor:
    _write(recorder, tensors[0])
    _write(recorder, tensors[-1])
    return tensors[0]


def _read_of_both(recorder: Recorder, tensors: Tensors) -> torch.Tensor:
    for tensor in tensors[:-1]:
        _write(recorder, tensor)
    return _add(recorder, tensors[-1])


def _read_after_cast(recorder: Recorder, tensors: Tensors) -> torch.Tensor:
    recorder.call(resolve("aten.gt_.Scalar"), tensors[0], 0)
    return _add(recorder, tensors[-1])


def _negated_after_cast(recorder: Recorder, tensors: Tensors) -> torch.Tensor:
    recorder.call(resolve("aten.gt_.Scalar"), tensors[0], 0)
    return recorder.call(resolve("aten.neg.default"), tensors[-1])  # type: ignore[no-any-return]


# What is written first, and what else is accessed; a third tensor is written in between.
FORMS: tuple[tuple[int, Form], ...] = (
    (2, _returned), (2, _read), (2, _read_before), (2, _written_again), (2, _read_after_cast),
    (2, _negated_after_cast), (3, _read_of_both),
)  # fmt: skip

Rank = tuple[int, int]  # the form's number, and which layout it is on
_PLAIN, _OWN = 10_000, 20_000  # where the places of plain layouts begin, and that of the program's own

Layout = tuple[tuple[int, ...], tuple[int, ...], int]
_WHOLE, _ROW, _COLUMN, _TRANSPOSED = ((2, 2), (2, 1), 0), ((2,), (1,), 0), ((2,), (2,), 0), ((2, 2), (1, 2), 0)
_FIRST, _SECOND, _TAIL = ((), (), 0), ((), (), 1), ((2,), (1,), 2)

# For each relation, plain ways for accesses to lie: the first write's, that of a write in between if the form has one, and
# the other access's. Those that need less come first: two shapes before one.
LAYOUTS: dict[str, tuple[tuple[Layout, ...], ...]] = {
    "disjoint": ((_TAIL, _FIRST), (_FIRST, _TAIL), (_FIRST, _SECOND), (_ROW, _TAIL)),
    "same": ((_FIRST, _FIRST), (_SECOND, _SECOND)),
    "must": ((_ROW, _ROW), (_WHOLE, _WHOLE)),
    "contained": ((_ROW, _SECOND), (_WHOLE, _TRANSPOSED), (_WHOLE, _COLUMN)),
    "partial": ((_SECOND, _ROW), (_ROW, _WHOLE), (_COLUMN, _WHOLE), (_ROW, _COLUMN), (_FIRST, _SECOND, _ROW)),
}


def skeletons(program: Program, relations: Collection[str] = ()) -> Iterator[tuple[Rank, Program]]:
    """The forms for what a program accesses, best rank first: one tensor alone, plain layouts, then its own layouts.

    The plain layouts are those of its hardest hazard, and of other `relations`, if any are given: easier ones first.
    """
    found = sorted(hazards(program), key=lambda hazard: hazard.hardness, reverse=True)
    alone = [Hazard("none", "same", access, access) for access in trail(program) if access.writes]
    dtype = program.values[(found or alone)[0].earlier.value].dtype if found or alone else ""
    for number, (count, form) in enumerate(FORMS):
        for place, candidate in enumerate(_own(program, alone, count, form)):
            if candidate is not None:
                yield (number, place), candidate
        for place, candidate in _plainly_laid({*relations, *(h.relation for h in found[:1])}, dtype, count, form):
            if candidate is not None:
                yield (number, place), candidate
        for candidate in _own(program, found, count, form):
            if candidate is not None:
                yield (number, _OWN), candidate


def plain(program: Program, relations: Collection[str]) -> Iterator[Program]:
    """The skeletons that are laid out plainly, best rank first."""
    return (candidate for rank, candidate in skeletons(program, relations) if _PLAIN <= rank[1] < _OWN)


def _own(program: Program, found: Sequence[Hazard], count: int, form: Form) -> Iterator[Program | None]:
    for hazard in found:
        for chosen in _chosen(program, hazard, count):
            yield built(program.storages[program.values[chosen[0]].storage], program.values, chosen, form)


def _plainly_laid(
    relations: Collection[str], dtype: str, count: int, form: Form
) -> Iterator[tuple[int, Program | None]]:
    for place, (relation, layout) in enumerate((name, one) for name in RELATIONS for one in LAYOUTS.get(name, ())):
        if dtype and relation in relations and len(layout) == count:
            chosen = [0] * count if relation == "same" else range(count)
            values = [Value(0, dtype, *where) for where in layout]
            yield _PLAIN + place, built(Storage(4 * itemsize(dtype)), values, chosen, form)


def _chosen(program: Program, hazard: Hazard, count: int) -> Iterator[tuple[int, ...]]:
    """The values that a form needs: the write's, that of another write for a form of three, the other access's."""
    first, last = (hazard.earlier, hazard.later) if hazard.earlier.writes else (hazard.later, hazard.earlier)
    if count == 2:
        yield first.value, last.value
        return
    home = program.values[first.value].storage
    written = dict.fromkeys(h.earlier.value for h in hazards(program) if h.earlier.writes)
    for other in written:
        if other != first.value and program.values[other].storage == home:
            yield other, first.value, last.value


def built(storage: Storage, values: Sequence[Value], chosen: Sequence[int], form: Form) -> Program | None:
    """A form on the geometry of the chosen values, which lie on one storage; None if eager refuses it."""
    kept = {i: msgspec.structs.replace(values[i], storage=0) for i in chosen}
    storage = msgspec.structs.replace(storage, fill=Iota(values[chosen[0]].dtype, FIRST))
    recorder = Recorder()
    tensors = memory.allocate(Inputs((storage,), tuple(kept.values()))).tensors
    places = dict(zip(kept, tensors, strict=True))
    for tensor in tensors:
        recorder.input(tensor, storage)
    try:
        result = form(recorder, [places[i] for i in chosen])
    except (RuntimeError, IndexError, ValueError):
        return None
    params = [Param(name, Ref(k)) for k, name in zip(range(len(tensors)), _NAMES, strict=False)]
    return recorder.program(params, recorder.ref(result))
