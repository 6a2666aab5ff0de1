"""Random programs over memory that is shared in hostile ways, and what one can observe of a run.

Beside what `strategies.programs` draws there are diagonals, unfolded windows, dtype-changing views, lazy conjugates and
calls without an out-of-place form.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from executor import interpreter
from executor.args import Ref
from executor.geometry import WriteKind, write_kind
from executor.memory import Memory, allocate, value_of
from executor.program import Inputs, Iota, Param, Program, Storage, Value, itemsize
from executor.recorder import Recorder, outputs_tree

A = torch.ops.aten
DTYPES = ("float32",) * 6 + ("int64", "int32", "bool", "complex64", "float16")


def random_program(seed: int, most_calls: int = 10) -> Program:
    """The program of this seed: 1 to `most_calls` calls on 1 to 4 inputs over 1 to 3 storages of up to 16 elements."""
    return _Generator(seed).program(most_calls)


class _Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.recorder = Recorder()

    def program(self, most_calls: int) -> Program:
        rng, recorder = self.random, self.recorder
        bases = [self._storage() for _ in range(rng.choice([1, 1, 2, 3]))]
        inputs = [recorder.input(*self._input(*rng.choice(bases))) for _ in range(rng.choice([1, 2, 2, 3, 4]))]
        count = rng.randint(1, most_calls)
        while len(recorder.calls) < count:
            rng.choices([self._view, self._write, self._pure], [33, 39, 28])[0]()
        outputs = [rng.randrange(len(recorder.values)) for _ in range(rng.choice([1, 1, 2, 3, 4]))]
        return recorder.program([Param(f"a{i}", Ref(v)) for i, v in enumerate(inputs)], outputs_tree(outputs))

    def _storage(self) -> tuple[torch.Tensor, Storage]:
        dtype, count = self.random.choice(DTYPES), self.random.choice([4, 6, 9, 12, 16])
        storage = Storage(count * itemsize(dtype), Iota(dtype))
        return allocate(Inputs((storage,), (Value(0, dtype, (count,), (1,)),))).tensors[0], storage

    def _input(self, base: torch.Tensor, storage: Storage) -> tuple[torch.Tensor, Storage]:
        rng, count = self.random, base.numel()
        rows = rng.choice([2, 3])
        start, step = rng.randrange(count), rng.choice([1, 2, 3])
        shapes: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
            ((count,), (1,), 0),
            ((rows, count // rows), rng.choice([(count // rows, 1), (1, rows)]), 0),
            ((rng.randint(1, (count - 1 - start) // step + 1),), (step,), start),
            ((), (), start),
            ((2, 2), (rng.choice([1, 2]), 1), rng.randrange(count - 3)),
        ]
        return base.as_strided(*rng.choice(shapes)), storage

    def _any(self) -> torch.Tensor:
        """A tensor, more often a late one."""
        tensors = self.recorder.tensors
        if self.random.random() < 0.6:
            return tensors[-1 - min(int(self.random.expovariate(0.35)), len(tensors) - 1)]
        return self.random.choice(tensors)

    def _try(self, op: Any, *args: Any, **kwargs: Any) -> None:
        """Records the call, unless eager refuses it."""
        try:
            self.recorder.call(op, *args, **kwargs)
        except (RuntimeError, IndexError, NotImplementedError):
            if self.recorder.refused is None:
                raise
            self.recorder.refused = None
            self.recorder.calls.pop()

    def _view(self) -> None:
        rng, t = self.random, self._any()
        choices: list[tuple[Any, tuple[Any, ...]]] = [(A.alias.default, (t,)), (A.unsqueeze.default, (t, 0))]
        if t.dim():
            dim = rng.randrange(t.dim())
            size = t.shape[dim]
            start = rng.randrange(size + 1)
            choices += [
                (A.slice.Tensor, (t, dim, start, rng.randint(start, size), rng.choice([1, 1, 2]))),
                (A.select.int, (t, dim, rng.randrange(max(size, 1)))),
                (A.view.default, (t, [-1])),
                (A.unfold.default, (t, dim, 2, 1)),
                (A.reshape.default, (t, [-1])),
            ]
            choices += [(A.expand.default, (t, [3 if i == dim else n for i, n in enumerate(t.shape)]))] * (size == 1)
        if t.dim() >= 2:
            a, b = rng.sample(range(t.dim()), 2)
            choices += [(A.transpose.int, (t, a, b)), (A.diagonal.default, (t, 0, a, b))]
        choices += [(A._conj.default, (t,)), (A.view_as_real.default, (t,))] * t.is_complex()
        if t.dtype == torch.float32 and rng.random() < 0.15:
            choices = [(A.view.dtype, (t, torch.int32))]
        op, args = rng.choice(choices)
        self._try(op, *args)

    def _write(self) -> None:
        rng, t = self.random, self._any()
        other = next((u for u in (self._any() for _ in range(8)) if _broadcasts(u, t)), t)
        same = other.untyped_storage()._cdata == t.untyped_storage()._cdata
        if write_kind(value_of(t, 0).footprint, [value_of(other, 0).footprint] * same) is not WriteKind.DEFINED:
            return
        number = rng.randrange(12)
        if number == 11:
            self._masked(t)
        elif number == 10 and t.dim() >= 2:
            self._try(A.fill_diagonal_.default, t, 7)
        else:
            choices: Sequence[tuple[Any, tuple[Any, ...]]] = (
                (A.add_.Tensor, (t, other)),
                (A.add_.Tensor, (t, other)),
                (A.mul_.Tensor, (t, other)),
                (A.add_.Tensor, (t, 1)),
                (A.fill_.Scalar, (t, rng.choice([0, 1, 3]))),
                (A.zero_.default, (t,)),
                (A.neg_.default, (t,)),
                (A.copy_.default, (t, other)),
                (A.copy_.default, (t, other)),
            )
            op, args = choices[number % len(choices)]
            self._try(op, *args)

    def _masked(self, t: torch.Tensor) -> None:
        if not t.is_complex():
            self._try(A.masked_fill_.Scalar, t, self.recorder.call(A.gt.Scalar, t, 2), 5)

    def _pure(self) -> None:
        rng, t, other = self.random, self._any(), self._any()
        choices: Sequence[tuple[Any, tuple[Any, ...], dict[str, Any]]] = (
            (A.clone.default, (t,), {}),
            (A.sum.default, (t,), {}),
            (A.neg.default, (t,), {}),
            (
                A._to_copy.default,
                (t,),
                {"dtype": t.dtype if t.is_complex() else rng.choice([torch.float32, torch.int64])},
            ),
            (A.zeros_like.default, (t,), {}),
            (A.add.Tensor, (t, other), {}),
            (A.add.Tensor, (t, other), {}),
        )
        op, args, kwargs = rng.choice(choices)
        self._try(op, *args, **kwargs)


def _broadcasts(tensor: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether the one can be copied to the other, no imaginary parts lost (which torch warns of)."""
    pairs = zip(reversed(tensor.shape), reversed(target.shape), strict=False)
    fits = tensor.dim() <= target.dim() and all(n in (1, m) for n, m in pairs)
    return fits and (target.is_complex() or not tensor.is_complex())


def meaning(program: Program, run: Callable[[list[torch.Tensor]], Any] | None = None) -> list[object]:
    """All that one sees of a run on the program's own inputs; of `interpreter.run` if nothing else is given.

    Outputs as text with their layout, each storage's bytes, where outputs lie, and which are the same object.
    """
    memory = allocate(program.entry)
    out = run(memory.tensors) if run is not None else interpreter.run(program, memory.tensors)
    leaves = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
    first: dict[int, int] = {}
    homes: dict[int, int] = {}
    found: list[object] = [bytes(memory.contents(i)) for i in range(len(memory.bases))]
    for leaf in leaves:
        found.append(
            (leaf.dtype, leaf.shape, leaf.stride(), leaf.storage_offset(), leaf.is_conj(), repr(leaf.tolist()))
        )
        found.append((first.setdefault(id(leaf), len(first)), _place(memory, leaf, homes)))
    return [*found, memory.damaged()]


def _place(memory: Memory, leaf: torch.Tensor, homes: dict[int, int]) -> object:
    inside = memory.locate(leaf)
    return ("input", inside) if inside is not None else homes.setdefault(leaf.untyped_storage()._cdata, len(homes))
