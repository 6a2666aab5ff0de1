"""Programs whose inputs require grad: which ones do, what autograd lets a statement do, and how the caller goes backward.

While such a program is drawn its calls run under autograd, so that the graph itself tells which values carry gradients, and which
are views that autograd would not let be written. A statement that eager would refuse is not made: its operands stand for its
results, as with operators that are banned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import torch

from executor.args import refs
from executor.interpreter import flatten
from executor.limits import Limits
from executor.memory import allocate
from executor.program import Backward, Inputs, Iota, Program
from executor.schema import changes_metadata, effects
from strategies.draws import Draw, below, choice
from strategies.dtypes import EXACT, Range, kind, symmetric
from strategies.scope import Operand, Scope

# Not made of values that carry gradients. Gradients of ties are fractions; `as_strided` and views as another dtype have none for
# some of their elements; in place, logical operators leave the gradient of what they overwrite; lists that are copied, and `out=`, have none.
NOT_DIFFERENTIABLE = frozenset({
    "aten.maximum.default", "aten.minimum.default", "aten.amax.default", "aten.amin.default", "aten.as_strided.default",
    "aten.view.dtype", "aten._foreach_copy_.default", "aten.logical_not_.default", "aten.logical_or_.default",
    "aten.scatter_.reduce", "aten.scatter_.value_reduce", "aten.add.out", "aten.sub.out", "aten.mul.out", "aten.neg.out", "aten.abs.out",
})  # fmt: skip
# Differentiable for real numbers only.
NOT_COMPLEX = frozenset({"aten.slice_scatter.default", "aten.select_scatter.default"})
_WITHOUT_DERIVATIVE = frozenset({"heaviside", "floor_divide", "foreach_maximum", "foreach_minimum"})  # in torch
DTYPES = ("float32", "float32", "float64")  # of inputs that may require grad: in others gradients soon end
_Meta = torch._C._autograd.CreationMeta  # noqa: SLF001 (no public way)


class GradScope(Scope):
    """A scope some of whose inputs require grad.

    `careless`: what the backward pass needs may be written, so that eager refuses it.
    """

    def __init__(self, limits: Limits, *, careless: bool) -> None:
        super().__init__(limits)
        self.careless = careless
        self._saved: dict[int, torch.UntypedStorage] = {}  # kept, so that their addresses stay unique
        # Views made when their bases had no gradient: until they are read after that, eager takes them for leaves.
        self._without: set[int] = set()

    def operands(self) -> Sequence[int]:
        """Those that carry gradients twice, and then all."""
        every = range(self.count)
        return [*(2 * [i for i in every if self.carries(i)]), *every]

    def returnable(self) -> Sequence[int]:
        """The caller goes backward from those that are computed from others and carry gradients: they come first, and often."""
        every = [i for i in super().returnable() if usable(self.tensor(i)) and not severed(self.tensor(i))]
        return [*(4 * [i for i in every if self.carries(i) and not self.tensor(i).is_leaf]), *every]

    def carries(self, index: int) -> bool:
        """Whether the value has a gradient."""
        tensor = self.tensor(index)
        return tensor.requires_grad and usable(tensor)

    def writable(self) -> list[int]:
        """Values that an in-place op on plain operands may write."""
        return [
            i for i in super().writable() if self._may_write(self.tensor(i), gradients=self.tensor(i).requires_grad)
        ]

    def emit(self, op: str, *args: Operand, range: Range | None = None, **kwargs: Any) -> list[int]:  # noqa: A002
        """See `Scope.emit`; a call that autograd refuses, or that is not exact under it, is passed over."""
        tensors = flatten([*args, *kwargs.values()])
        if not self._accepts(op, args, kwargs, tensors):
            return [self.recorder.ref(tensor).index for tensor in flatten(args)]
        with torch.autograd.graph.saved_tensors_hooks(self._save, _lost):
            results = super().emit(op, *args, range=range, **kwargs)
        self._without.update(id(self.tensor(i)) for i in results if not self.tensor(i).requires_grad)
        if torch.is_grad_enabled() and self._reads(op, tensors, results):
            self._without.difference_update(id(tensor) for tensor in tensors if tensor.requires_grad)
        return results

    def _reads(self, op: str, tensors: Sequence[torch.Tensor], results: Sequence[int]) -> bool:
        """Whether the call has asked autograd for its operands' gradients: not one that gave an operand as it is."""
        given = set() if effects(op).writes else set(map(id, tensors))
        return any(found.requires_grad and id(found) not in given for found in map(self.tensor, results))

    def add_input(self, tensor: torch.Tensor, fill: Iota) -> int:
        """See `Scope.add_input`."""
        if not tensor.requires_grad:
            self._without.add(id(tensor))
        return super().add_input(tensor, fill)

    def keeps(self, index: int) -> bool:
        """Whether the backward pass needs something of the value's memory."""
        return self.tensor(index).untyped_storage()._cdata in self._saved

    def _save(self, tensor: torch.Tensor) -> None:
        """Notes that the backward pass needs a tensor; nothing else, since nothing goes backward while programs are drawn."""
        storage = tensor.untyped_storage()
        self._saved[storage._cdata] = storage

    def _accepts(
        self, op: str, args: Sequence[Operand], kwargs: dict[str, Any], tensors: Sequence[torch.Tensor]
    ) -> bool:
        if changes_metadata(op) or not all(map(usable, tensors)):
            return False
        if torch.is_grad_enabled() and any(map(severed, tensors)):
            return False
        given = any(tensor.requires_grad for tensor in tensors)
        carried = given and torch.is_grad_enabled()
        if (given and op == "aten.view.dtype") or (carried and not self._exact(op, tensors)):
            return False
        effect = effects(op)
        named = dict(zip(effect.names, args, strict=False)) | kwargs
        written = flatten([named[name] for name in effect.writes if name in named])
        bases = [id(tensor._base) for tensor in written if tensor._base is not None]
        if carried and len(set(bases)) < len(bases):
            return False  # the first one's write would make the next one late, see `_without`
        return all(self._may_write(tensor, gradients=carried) for tensor in written)

    def _exact(self, op: str, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether the operator's gradients are there, and exact; if that matters, it does not write what it needs for them."""
        if op in NOT_DIFFERENTIABLE or op.split(".")[1].strip("_") in _WITHOUT_DERIVATIVE:
            return False
        if op in NOT_COMPLEX and any(tensor.is_complex() for tensor in tensors):
            return False
        kept = op == "aten.mul_.Tensor" and any(tensor.requires_grad for tensor in tensors[1:])
        return self.careless or not kept

    def _may_write(self, tensor: torch.Tensor, *, gradients: bool) -> bool:
        """Whether eager lets the tensor be written, and the backward pass does not need it; see `check_inplace` in torch."""
        if not self.careless and tensor.untyped_storage()._cdata in self._saved:
            return False
        if not (gradients and torch.is_grad_enabled()):
            return True
        base = tensor._base
        if base is None:
            return not (tensor.requires_grad and tensor.is_leaf)
        late = tensor.requires_grad and id(tensor) in self._without
        return _meta(tensor) == _Meta.DEFAULT and not late and not (tensor.requires_grad and base.is_leaf)


def _lost(_: None) -> torch.Tensor:
    raise AssertionError("nothing goes backward while programs are drawn")


def _meta(tensor: torch.Tensor) -> torch._C._autograd.CreationMeta:
    """How a view was made."""
    return torch._C._autograd._get_creation_meta(tensor)  # noqa: SLF001


def _odd(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a view of which autograd does not follow its base: one of several, or made under `no_grad`."""
    return tensor._base is not None and _meta(tensor) != _Meta.DEFAULT


def usable(tensor: torch.Tensor) -> bool:
    """Whether autograd lets the tensor be used: not if it is one of several views whose base was written since.

    Asking for the grad_fn of another view would make a new one, and so make a difference.
    """
    if _odd(tensor):
        try:
            _ = tensor.grad_fn
        except RuntimeError:
            return False
    return True


def severed(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a view, made under `no_grad`, of one that requires grad: torch calls it a leaf, but it is none."""
    return _odd(tensor) and tensor.requires_grad and tensor.is_leaf


def draw_required(draw: Draw, scope: Scope, indices: Sequence[int], twins: Sequence[tuple[int, int]]) -> Inputs | None:
    """The drawn inputs of a scope, some of which require grad: one at least; None if none can."""
    values = [scope.recorder.values[i] for i in indices]
    storages = tuple(scope.recorder.storages)
    eldest = dict(twins)
    fits = [
        k for k, value in enumerate(values)
        if k not in eldest and _may_require(storages[value.storage].fill, value.dtype, lazy=value.conj or value.neg)
    ]  # fmt: skip
    if not fits:
        return None
    draw.begin()
    names = ("leaf", "leaf", "rooted", "") if scope.limits.rooted_inputs else ("leaf", "leaf", "")
    kinds = {k: choice(draw, names) for k in fits}
    if not any(kinds.values()):
        kinds[fits[0]] = "leaf"
    kind = [kinds.get(eldest.get(k, k), "") for k in range(len(values))]
    leaves, rooted = ([k for k, name in enumerate(kind) if name == wanted] for wanted in ("leaf", "rooted"))
    return Inputs(storages, tuple(values), tuple(twins), tuple(leaves), tuple(rooted))


def _may_require(fill: Any, dtype: str, *, lazy: bool) -> bool:
    return isinstance(fill, Iota) and fill.dtype == dtype and dtype in DTYPES and not lazy


def opened(draw: Draw, limits: Limits, inputs: Inputs) -> GradScope:
    """A scope in which these inputs are given."""
    draw.begin()
    scope = GradScope(limits, careless=below(draw, 24) == 23)
    held = allocate(msgspec.structs.replace(inputs, twins=()))  # each input is a value of its own
    for tensor, value in zip(held.tensors, inputs.values, strict=True):
        fill = inputs.storages[value.storage].fill
        assert isinstance(fill, Iota), "drawn inputs count up"
        scope.add_input(tensor, fill)
    return scope


@contextlib.contextmanager
def perhaps_without(draw: Draw, scope: Scope) -> Iterator[None]:
    """Now and then the block's statements stand under `no_grad`."""
    if isinstance(scope, GradScope) and below(draw, 8) == 7:
        with torch.no_grad():
            yield
    else:
        yield


def draw_detached(draw: Draw, scope: Scope) -> list[int]:
    """A value without its gradient, on the same memory."""
    operand = below(draw, scope.count)
    return scope.emit("aten.detach.default", scope.tensor(operand))


def draw_scaled(draw: Draw, scope: Scope) -> list[int]:
    """A product with what is computed of a value that has no gradient, or of one that is detached: a weight, or a mask.

    The backward pass needs that factor. It may be computed anew there, but not from what the caller can have written since.
    """
    operand = choice(draw, scope.operands())
    tensor, own = scope.tensor(operand), scope.range(operand)
    if kind(tensor.dtype) != "f" or not scope.takes("aten.neg.default") or not scope.takes("aten.mul.Tensor"):
        return [operand]
    grown = {i: symmetric(own.magnitude * scope.range(i).magnitude) for i in scope.alike(tensor.shape, tensor.dtype)}
    fits = [i for i, found in grown.items() if found.within(EXACT[tensor.dtype])]
    if not fits:
        return [operand]
    chosen = source = choice(draw, fits)
    if scope.tensor(source).requires_grad:
        source = scope.emit("aten.detach.default", scope.tensor(source))[0]
    factor = scope.emit("aten.neg.default", scope.tensor(source), range=symmetric(scope.range(source).magnitude))[0]
    return scope.emit("aten.mul.Tensor", tensor, scope.tensor(factor), range=grown[chosen])


def _writable(scope: GradScope, program: Program) -> list[int]:
    """The positions of results that the caller may write; thrice those where going backward is not refused after that."""
    results = [*refs(program.outputs), *program.inputs]
    return [*range(len(results)), *2 * [k for k, index in enumerate(results) if not scope.keeps(index)]]


def with_backward(draw: Draw, scope: GradScope, program: Program, inputs: Inputs) -> Program:
    """The program with these inputs, and with how its caller goes backward: more often than not once, from all results."""
    draw.begin()
    limits = scope.limits
    plan = Backward(
        seed=below(draw, 3),
        left_out=(below(draw, 3),) if below(draw, 4) == 3 else (),
        functional=below(draw, 3) == 2,
        passes=2 if below(draw, 6) == 5 and limits.retained_graphs else 1,
        apart=below(draw, 6) == 5 and limits.retained_graphs,
        written=choice(draw, _writable(scope, program)) if below(draw, 4) == 3 and limits.written_results else None,
    )
    return msgspec.structs.replace(
        program, leaves=inputs.leaves, rooted=inputs.rooted, backward=plan if plan != Backward() else None
    )
