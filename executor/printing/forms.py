"""The ways in which a call may be written: a subscript, a method, a function, or the operator verbatim.

They only offer: whether a form does what the operator does is decided in `executor.printing.calls`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from executor.args import Arg, List, Ref, Tuple
from executor.functions import FUNCTIONS
from executor.printing.arguments import source
from executor.schema import bound, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from executor.program import Call, Value

    Form = Callable[[Call, "Scope"], str | None]

_END = 2**63 - 1  # what a slice without an end has as its end
_SUBSCRIPTS = frozenset({"aten.select.int", "aten.slice.Tensor"})


class Scope(NamedTuple):
    """What a call's arguments refer to: a program's values, and the Python name of each that has one yet."""

    values: Sequence[Value]
    names: Mapping[int, str]


def subscript(calls: Sequence[Call], scope: Scope) -> str | None:
    """Selects and slices, each of the one before, as one subscript (`x[0, 1:3]`); None if they make none."""
    pieces: list[str] = []
    at = 0
    for call in calls:
        piece = _piece(call, scope, alone=len(calls) == 1) if call.op in _SUBSCRIPTS else None
        if piece is None or piece.dim < at:
            return None
        pieces += [":"] * (piece.dim - at) + [piece.text]
        at = piece.dim + piece.keeps
    return f"{source(calls[0].args[0], scope.names)}[{', '.join(pieces)}]"


class _Piece(NamedTuple):
    """A part of a subscript: its dimension, its text, and how many dimensions it leaves."""

    dim: int
    text: str
    keeps: int


def _piece(call: Call, scope: Scope, *, alone: bool) -> _Piece | None:
    """None where Python would not hand it on as it is: negative dimensions, and slices of everything in a tuple."""
    given = _arguments(call)
    tensor, dim = given["self"], given["dim"]
    if not isinstance(tensor, Ref) or not isinstance(dim, int):
        return None
    shape = scope.values[tensor.index].shape
    if not 0 <= dim < len(shape):
        return None
    if call.op == "aten.select.int":
        return _Piece(dim, source(given["index"], {}), 0) if isinstance(given["index"], int) else None
    start, end, step = given["start"], given["end"], given["step"]
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int)):
        return None
    if (start, step) == (0, 1) and end in (shape[dim], _END) and not (alone and dim == 0):
        return None
    ends = f"{start or ''}:{end if end != _END else ''}"
    return _Piece(dim, ends if step == 1 else f"{ends}:{step}", 1)


def _arguments(call: Call) -> dict[str, Arg]:
    """All arguments by their schema names, defaults filled in."""
    return _defaults(call.op) | dict(bound(call))


@lru_cache(maxsize=256)
def _defaults(op: str) -> dict[str, Arg]:
    return {a.name: a.default_value for a in resolve(op)._schema.arguments if a.has_default_value()}


def _one_subscript(call: Call, scope: Scope) -> str | None:
    return subscript((call,), scope)


def _narrow(call: Call, scope: Scope) -> str | None:
    given = _arguments(call)
    start, end = given["start"], given["end"]
    if not isinstance(start, int) or not isinstance(end, int) or given["step"] != 1 or not 0 <= start <= end < _END:
        return None
    return f"{source(given['self'], scope.names)}.narrow({source(given['dim'], {})}, {start}, {end - start})"


def _alias(call: Call, scope: Scope) -> str:
    return f"{source(call.args[0], scope.names)}[...]"


def _index(call: Call, scope: Scope) -> str | None:
    x, indices = call.args
    if not isinstance(indices, List | Tuple):
        return None
    items = [":" if item is None else source(item, scope.names) for item in indices.items]
    return f"{source(x, scope.names)}[{', '.join(items)}]"


def _spread(call: Call, scope: Scope) -> str | None:
    """`x.view(3, 4)` rather than `x.view([3, 4])`."""
    x, sizes, *rest = call.args
    if rest or call.kwargs or not isinstance(sizes, List | Tuple) or not sizes.items:
        return None
    items = ", ".join([source(item, scope.names) for item in sizes.items])
    return f"{source(x, scope.names)}.{_packet(call.op)}({items})"


def _to(call: Call, scope: Scope) -> str | None:
    return f"{source(call.args[0], scope.names)}.to({_listed((), call.kwargs, scope)}, copy=True)"


def _infix(symbol: str) -> Form:
    """`a + b`, which people write, and which compilers that trace Python take faster than the method."""

    def form(call: Call, scope: Scope) -> str | None:
        if call.kwargs or len(call.args) != 2 or not isinstance(call.args[0], Ref):
            return None
        first, second = (source(arg, scope.names) for arg in call.args)
        return f"{first} {symbol} {second}"

    return form


def _minus(call: Call, scope: Scope) -> str:
    return f"-{source(call.args[0], scope.names)}"


def _parts(call: Call, scope: Scope) -> str | None:
    """`a, b = tuple(x)`: Python goes over a tensor's first dimension by itself."""
    return f"tuple({source(call.args[0], scope.names)})" if len(call.args) == 1 and not call.kwargs else None


def _conj(call: Call, scope: Scope) -> str:
    return f"{source(call.args[0], scope.names)}.conj()"


def _apply(name: str) -> Form:
    """A custom autograd function, whose class is printed before the program."""
    return lambda call, scope: f"{name}.apply({_listed(call.args, call.kwargs, scope)})"


_TABLE: dict[str, tuple[Form, ...]] = {
    "aten._conj.default": (_conj,),
    "aten._to_copy.default": (_to,),
    "aten.add.Tensor": (_infix("+"),),
    "aten.alias.default": (_alias,),
    "aten.expand.default": (_spread,),
    "aten.index.Tensor": (_index,),
    "aten.mul.Tensor": (_infix("*"),),
    "aten.neg.default": (_minus,),
    "aten.permute.default": (_spread,),
    "aten.repeat.default": (_spread,),
    "aten.reshape.default": (_spread,),
    "aten.resize_.default": (_spread,),
    "aten.select.int": (_one_subscript,),
    "aten.slice.Tensor": (_one_subscript, _narrow),
    "aten.sub.Tensor": (_infix("-"),),
    "aten.unbind.int": (_parts,),
    "aten.view.default": (_spread,),
    **{op: (_apply(function.__name__),) for op, function in FUNCTIONS.items()},
}


@lru_cache(maxsize=4096)
def forms(op: str) -> tuple[Form, ...]:
    """The forms to try for this operator, the prettiest first; the verbatim one, which always fits, is left out."""
    found: list[Form] = list(_TABLE.get(op, ()))
    name, first = _packet(op), resolve(op)._schema.arguments[:1]
    if not op.startswith("aten.") or name.startswith("_"):
        return tuple(found)
    if first and first[0].name == "self" and hasattr(torch.Tensor, name):
        methods = [_method(name, pretty=True), _method(name, pretty=False)]
        found += methods if callable(getattr(torch.Tensor, name)) else [_property(name)]
    for path in (f"torch.{name}", f"torch.nn.functional.{name}", *_in_submodule(name)):
        if _exists(path):
            found += [_function(path, pretty=True), _function(path, pretty=False)]
    return tuple(found)


def _in_submodule(name: str) -> list[str]:
    """`torch.linalg.norm` for `linalg_norm`."""
    prefix, _, rest = name.partition("_")
    return [f"torch.{prefix}.{rest}"] if prefix in ("fft", "linalg", "special") else []


def _exists(path: str) -> bool:
    found: Any = torch
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    return callable(found)


def _method(name: str, *, pretty: bool) -> Form:
    def form(call: Call, scope: Scope) -> str | None:
        if not call.args or not isinstance(call.args[0], Ref):
            return None
        args, kwargs = _prettier(call) if pretty else (call.args, call.kwargs)
        return f"{source(args[0], scope.names)}.{name}({_listed(args[1:], kwargs, scope)})"

    return form


def _property(name: str) -> Form:
    return lambda call, scope: f"{source(call.args[0], scope.names)}.{name}"


def _function(path: str, *, pretty: bool) -> Form:
    def form(call: Call, scope: Scope) -> str:
        args, kwargs = _prettier(call) if pretty else (call.args, call.kwargs)
        return f"{path}({_listed(args, kwargs, scope)})"

    return form


def verbatim(call: Call, scope: Scope) -> str:
    """The operator by its own name: always right, and as pretty as it gets for private operators."""
    return f"torch.ops.{call.op}({_listed(call.args, call.kwargs, scope)})"


def _prettier(call: Call) -> tuple[Sequence[Arg], Sequence[tuple[str, Arg]]]:
    """Positional and keyword arguments: from the first flag on all by keyword (`keepdim=True`), pinning only if asked."""
    kwargs = tuple([pair for pair in call.kwargs if pair != ("pin_memory", False)])
    flags = [i for i, arg in enumerate(call.args) if isinstance(arg, bool)]
    if not flags:
        return call.args, kwargs
    schema = resolve(call.op)._schema.arguments
    count = next((i for i in flags if str(schema[i].type) == "bool"), len(call.args))
    named = [(schema[i].name, call.args[i]) for i in range(count, len(call.args))]
    return call.args[:count], (*named, *kwargs)


def _listed(args: Sequence[Arg], kwargs: Sequence[tuple[str, Arg]], scope: Scope) -> str:
    names = scope.names
    return ", ".join([source(arg, names) for arg in args] + [f"{name}={source(arg, names)}" for name, arg in kwargs])


def _packet(op: str) -> str:
    return op.split(".")[1]
