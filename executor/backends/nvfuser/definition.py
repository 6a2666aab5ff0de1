"""A region's body as an nvFuser `FusionDefinition`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from executor.backends.nvfuser.dtypes import NAMES, computed_in, number, promoted
from executor.backends.nvfuser.operators import OPERATORS, REDUCTIONS, Operand, arguments
from executor.backends.nvfuser.pointwise import POINTWISE, SELECTIONS
from executor.backends.nvfuser.views import Views, squeezed
from executor.facts import access, facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.backends.nvfuser.body import Body
    from executor.program import Call, Value


class Definition:
    """A definition under construction: an item of it for each value, in the value's dtype and shape."""

    def __init__(self, nvfuser: Any, fd: Any, values: tuple[Value, ...]) -> None:
        self.ops, self.values, self.views = fd.ops, values, Views(fd.ops)
        self._types = nvfuser.DataType
        self._items: list[Any] = [None] * len(values)
        self._computed: set[int] = set()  # by a formula, so that no other value has the same item
        self._roots: dict[int, int] = {}  # of what moves alone make: of what

    def dtype(self, name: str) -> Any:
        """NvFuser's object for a dtype."""
        return getattr(self._types, NAMES[name])

    def item(self, v: int) -> Any:
        """What stands for a value."""
        return self._items[v]

    def bind(self, inputs: list[Any]) -> None:
        """Lets items stand for the first values."""
        self._items[: len(inputs)] = inputs

    def put(self, v: int, item: Any, dtype: str | None) -> None:
        """Lets an item, of this dtype if that is known, stand for a value: cast to the value's dtype."""
        wanted = self.values[v].dtype
        self._items[v] = item if dtype == wanted else self.ops.cast(item, self.dtype(wanted))

    def cast(self, v: int, dtype: str) -> Any:
        """A value in another dtype."""
        return self._cast(self._items[v], self.values[v].dtype, dtype)

    def _cast(self, item: Any, old: str, new: str) -> Any:
        if old == new:
            return item
        return self.ops.ne(item, number(0, old)) if new == "bool" else self.ops.cast(item, self.dtype(new))

    def shape(self, v: int) -> list[int]:
        """The shape of a value's item: without dimensions of size 1."""
        return [n for n in self.values[v].shape if n != 1]

    def dims(self, v: int, dims: Sequence[int]) -> list[int]:
        """Where these dimensions of a value are in its item; those of size 1 are nowhere."""
        shape = self.values[v].shape
        return [sum(n != 1 for n in shape[:dim]) for dim in sorted(dims) if shape[dim] != 1]

    def aligned(self, item: Any, shape: tuple[int, ...], wanted: tuple[int, ...]) -> Any:
        """The item of a tensor of this shape, made to broadcast to another shape."""
        full = (1,) * (len(wanted) - len(shape)) + shape
        new = [n == 1 for n, m in zip(full, wanted, strict=True) if m != 1]
        return self.ops.broadcast(item, new) if any(new) else item

    def call(self, call: Call) -> None:
        """Appends a call of the region."""
        if access(self.values, call).address:
            operand = arguments(call)[_first(call)].value
            for r in call.results:
                self._items[r] = self.views.view(call, self._items[operand], self.values[operand], self.values[r])
                self._roots[r] = self._root(operand)
            return
        args = arguments(call)
        if call.op in OPERATORS:
            made = OPERATORS[call.op].make(self, call, args)
            for r, item in zip(call.results, made, strict=True):
                self.put(r, item, None)
                if call.op in REDUCTIONS and self.values[r].numel == self.values[call.operands[0]].numel:
                    self._roots[r] = self._root(call.operands[0])  # over dimensions of size 1
            return
        if self._moves(call):
            # No formula: a copy that is cast to the dtype of computation and back might be taken for its operand.
            (operand,) = call.operands
            self._items[call.results[0]], self._roots[call.results[0]] = self._items[operand], self._root(operand)
            return
        item, dtype = self._pointwise(call, args)
        # Of two numbers, nvFuser's `where` makes a double.
        self.put(call.results[0], item, None if call.op in _OF_NUMBERS else dtype)
        self._computed.add(call.results[0])

    def _moves(self, call: Call) -> bool:
        """Whether the result is the operand as it is."""
        operands = call.operands
        if not facts(call.op).move or len(operands) != 1:
            return False
        a, b = self.values[operands[0]], self.values[call.results[0]]
        return (a.dtype, a.shape) == (b.dtype, b.shape)

    def _root(self, v: int) -> int:
        return self._roots.get(v, v)

    def leaving(self, v: int, others: Sequence[int]) -> Any:
        """What leaves the fusion for a value: its item, if a formula computed it and nothing else that leaves is a move of it.

        Else a copy. With a copy between them, nvFuser may take a stored value and what is computed from it for two kernels,
        and compute the value anew in the second, from the input that the first has overwritten. Of a stored value and a
        copy of it, without one between them, it hands out only the first.
        """
        alone = v in self._computed and sum(self._root(other) == v for other in others) == 1
        return self._items[v] if alone else self.ops.set(self._items[v])

    def _pointwise(self, call: Call, args: dict[str, Any]) -> tuple[Any, str | None]:
        """The item and its dtype, if that is known."""
        result = self.values[call.results[0]]
        args = {name: arg for name, arg in args.items() if name not in _ELSEWHERE}
        if call.op in SELECTIONS:
            condition, formula = SELECTIONS[call.op]
            dtypes = {name: "bool" if name == condition else result.dtype for name in args}
            taken = {name: self._operand(arg, dtypes[name], result.shape) for name, arg in args.items()}
            # Of a number and a bool, nvFuser's `where` makes an integer.
            return formula(self.ops, result.dtype, **taken), None if result.dtype == "bool" else result.dtype
        entry = POINTWISE[call.op]
        common = common_dtype(call, self.values)
        dtype = computed_in(common)
        found = {}
        for name, arg in args.items():
            item = self._operand(arg, common, result.shape)
            found[name] = self._cast(item, common, dtype) if isinstance(arg, Operand) else item
        return entry.formula(self.ops, dtype, **found), "bool" if result.dtype == "bool" else dtype

    def _operand(self, arg: Any, dtype: str, shape: tuple[int, ...]) -> Any:
        """An argument of a pointwise operator: a tensor that broadcasts to the result's shape, a number, or what it is."""
        if isinstance(arg, Operand):
            return self.aligned(self.cast(arg.value, dtype), self.values[arg.value].shape, shape)
        return number(arg, computed_in(dtype)) if isinstance(arg, bool | int | float | complex) else arg


_OF_NUMBERS = frozenset({"aten.sign.default", "aten.where.Scalar"})
# Arguments that say how a result is laid out, and of which dtype it is; the result's value says so too.
_ELSEWHERE = frozenset({"dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format"})


def _first(call: Call) -> str:
    return next(name for name, arg in arguments(call).items() if isinstance(arg, Operand))


def common_dtype(call: Call, values: tuple[Value, ...]) -> str:
    """The dtype to which eager casts the operands of a pointwise call, before it computes."""
    entry = POINTWISE[call.op]
    if entry.operands == "truth":
        return "bool"
    if entry.operands == "result":
        return values[call.results[0]].dtype
    found = [values[a.value] if isinstance(a, Operand) else a for a in arguments(call).values() if a is not None]
    return promoted(found)


def define(nvfuser: Any, body: Body, *, early: bool) -> Any:
    """The `FusionDefinition` of a body, whose tensors have no dimensions of size 1. Its outputs: the body's, then, if stores are late, the values to store."""
    with nvfuser.FusionDefinition() as fd:
        made = Definition(nvfuser, fd, body.values)
        inputs = [
            fd.define_tensor(
                sizes=list(value.shape), strides=list(value.strides), dtype=made.dtype(value.dtype), static_sizes=True
            )
            for value in map(squeezed, body.values[: body.inputs])
        ]
        made.bind(inputs)
        for call in body.calls:
            made.call(call)
        leaving = (*body.outputs, *(v for _, v in body.early))
        for v in body.outputs:
            order = _stride_order(squeezed(body.values[v]))
            if order is not None:
                fd.add_output(fd.ops.stride_order(made.item(v), order))
            else:
                fd.add_output(made.leaving(v, leaving) if early else fd.ops.set(made.item(v)))
        for target, v in body.early:
            if early:
                fd.add_output(made.leaving(v, leaving), inputs[target])
            else:
                fd.add_output(fd.ops.set(made.item(v)))
    return fd


def _stride_order(value: Value) -> list[int] | None:
    """For each dimension its place in memory, that of the smallest stride first; None if that is row-major."""
    steps = list(value.strides)
    if steps == sorted(steps, reverse=True) or len(set(steps)) < len(steps):
        return None
    order = sorted(range(len(value.shape)), key=lambda d: (value.strides[d], -d))
    return [order.index(d) for d in range(len(value.shape))]
