"""Operators that are no pointwise formulas: factories, reductions, softmax, normalisation.

Each has a rule that says why a call of it is not taken, and a function that puts it into a fusion definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from executor.args import to_python
from executor.backends.nvfuser.dtypes import computed_in, is_integral, number
from executor.schema import bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from executor.backends.nvfuser.definition import Definition
    from executor.program import Call, Value


class Operator(NamedTuple):
    """`make(definition, call, arguments)` gives one item for each result, in any floating dtype that holds it.

    `refusal(call, arguments, values)`: why the call is not taken; None if it is.
    """

    make: Callable[[Definition, Call, dict[str, Any]], list[Any]]
    refusal: Callable[[Call, dict[str, Any], Sequence[Value]], str | None] = lambda call, args, values: None


def arguments(call: Call) -> dict[str, Any]:
    """The call's arguments by name as Python objects; a tensor as the index of its value, wrapped in `Operand`."""
    return {name: to_python(arg, _OPERANDS) for name, arg in bound(call)}


class Operand(NamedTuple):
    """A tensor among the arguments."""

    value: int


class _Operands(list[Any]):
    """What `to_python` looks references up in: each becomes an `Operand`."""

    def __getitem__(self, index: Any) -> Any:
        return Operand(index)


_OPERANDS = _Operands()


def _full(d: Definition, call: Call, args: dict[str, Any]) -> list[Any]:
    result, shape = d.values[call.results[0]], d.shape(call.results[0])
    fill = args.get("fill_value", args.get("s", 0))
    if call.op.split(".")[1].removeprefix("new_").startswith("ones"):
        fill = 1
    return [d.ops.full(shape, number(fill, result.dtype), d.dtype(result.dtype))]


def _arange(d: Definition, call: Call, args: dict[str, Any]) -> list[Any]:
    result = d.values[call.results[0]]
    return [d.ops.iota(result.numel, int(args.get("start", 0)), int(args.get("step", 1)))]


def _whole_numbers(call: Call, args: dict[str, Any], values: Sequence[Value]) -> str | None:
    steps = [args.get("start", 0), args.get("step", 1)]
    if values[call.results[0]].numel < 2:
        return f"{call.op} of one element is a constant"
    if is_integral(values[call.results[0]].dtype) and all(isinstance(step, int) for step in steps):
        return None
    return f"{call.op} is taken for integers only"


def _dims(args: dict[str, Any], operand: Value) -> list[int]:
    found = args.get("dim")
    dims = [found] if isinstance(found, int) else list(found or range(len(operand.shape)))
    return sorted({dim % max(len(operand.shape), 1) for dim in dims})


def _reduce(d: Definition, name: str, item: Any, args: dict[str, Any], v: int) -> Any:
    dims = d.dims(v, _dims(args, d.values[v])) if d.values[v].shape else []
    return getattr(d.ops, name)(item, dims=dims) if dims else d.ops.set(item)


def _sum(d: Definition, call: Call, args: dict[str, Any]) -> list[Any]:
    v = args["self"].value
    item = d.cast(v, computed_in(d.values[call.results[0]].dtype))
    return [_reduce(d, "sum", item, args, v)]


def _mean(d: Definition, call: Call, args: dict[str, Any]) -> list[Any]:
    v = args["self"].value
    operand = d.values[v]
    count = math.prod(operand.shape[dim] for dim in _dims(args, operand)) if operand.shape else 1
    return [d.ops.div(_sum(d, call, args)[0], float(count))]


def _extremum(name: str) -> Operator:
    def make(d: Definition, call: Call, args: dict[str, Any]) -> list[Any]:
        v = args["self"].value
        return [_reduce(d, name, d.cast(v, computed_in(d.values[v].dtype)), args, v)]

    return Operator(make, _real)


def _real(call: Call, args: dict[str, Any], values: Sequence[Value]) -> str | None:
    operand = values[args["self"].value]
    if operand.dtype == "bool" or operand.dtype.startswith("complex"):
        return f"{call.op} is not taken for {operand.dtype}"
    return _repeats(call, args, operand)


def _repeats(call: Call, args: dict[str, Any], operand: Value) -> str | None:
    """NvFuser's segmenter fails for reductions over what was broadcast before."""
    dims = _dims(args, operand) if operand.shape else []
    if any(operand.shape[dim] > 1 and not operand.strides[dim] for dim in dims):
        return f"{call.op} reduces a dimension that is broadcast"
    return None


def _not_complex(call: Call, args: dict[str, Any], values: Sequence[Value]) -> str | None:
    operand, result = values[args["self"].value], values[call.results[0]]
    if (why := _repeats(call, args, operand)) is not None:
        return why
    found = next((v.dtype for v in (operand, result) if v.dtype.startswith("complex") or v.dtype == "bool"), None)
    if found == "bool" and operand.dtype == "bool" and result.dtype != "bool":
        return None
    return f"{call.op} is not taken for {found}" if found else None


def _softmax(d: Definition, call: Call, args: dict[str, Any]) -> list[Any]:
    v = args["self"].value
    item = d.cast(v, computed_in(d.values[call.results[0]].dtype))
    dims = d.dims(v, [args["dim"] % len(d.values[v].shape)])
    powers = d.ops.exp(d.ops.sub(item, d.ops.max(item, dims=dims, keepdim=True)))
    return [d.ops.div(powers, d.ops.sum(powers, dims=dims, keepdim=True))]


def _longer(call: Call, args: dict[str, Any], values: Sequence[Value]) -> str | None:
    shape = values[args["self"].value].shape
    return None if shape and shape[args["dim"]] > 1 else f"{call.op} of one element is 1"


def _normed(call: Call, args: dict[str, Any], values: Sequence[Value]) -> str | None:
    return None if math.prod(args["normalized_shape"]) > 1 else f"{call.op} of one element is 0"


def _layer_norm(d: Definition, call: Call, args: dict[str, Any]) -> list[Any]:
    v = args["input"].value
    operand = d.values[v]
    dtype, rank, outer = computed_in(operand.dtype), len(operand.shape), len(args["normalized_shape"])
    dims = d.dims(v, range(rank - outer, rank))
    item, count = d.cast(v, dtype), float(math.prod(args["normalized_shape"]))
    spread = [dim in dims for dim in range(len(d.shape(v)))]

    def mean(of: Any) -> Any:
        return d.ops.div(d.ops.sum(of, dims=dims), count)

    middle = mean(item)
    centred = d.ops.sub(item, d.ops.broadcast(middle, spread))
    rstd = d.ops.rsqrt(d.ops.add(mean(d.ops.mul(centred, centred)), args["eps"]))
    found = d.ops.mul(centred, d.ops.broadcast(rstd, spread))
    for name, op in (("weight", d.ops.mul), ("bias", d.ops.add)):
        if args.get(name) is not None:
            w = args[name].value
            found = op(found, d.aligned(d.cast(w, dtype), d.values[w].shape, operand.shape))
    return [found, middle, rstd]


def _overloads(names: str, operator: Operator) -> dict[str, Operator]:
    return dict.fromkeys((f"aten.{name}" for name in names.split()), operator)


OPERATORS: dict[str, Operator] = {
    **_overloads("full.default full_like.default new_full.default scalar_tensor.default", Operator(_full)),
    **_overloads("zeros.default zeros_like.default new_zeros.default", Operator(_full)),
    **_overloads("ones.default ones_like.default new_ones.default", Operator(_full)),
    **_overloads("arange.default arange.start arange.start_step", Operator(_arange, _whole_numbers)),
    **_overloads("sum.default sum.dim_IntList", Operator(_sum, _not_complex)),
    **_overloads("mean.default mean.dim", Operator(_mean, _not_complex)),
    **_overloads("amax.default max.default", _extremum("max")),
    **_overloads("amin.default min.default", _extremum("min")),
    **_overloads("_softmax.default", Operator(_softmax, _longer)),
    **_overloads("native_layer_norm.default", Operator(_layer_norm, _normed)),
}

# What each starts from: 0, or the smallest or the largest number.
REDUCTIONS: dict[str, str] = {
    **dict.fromkeys(("aten.sum.default", "aten.sum.dim_IntList", "aten.mean.default", "aten.mean.dim"), "sum"),
    **dict.fromkeys(("aten.amax.default", "aten.max.default"), "maximum"),
    **dict.fromkeys(("aten.amin.default", "aten.min.default"), "minimum"),
}
