"""Checks one call of a program against its operator's schema, and its results against what is in scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from executor.args import Arg, Const, Device, List, Number, Ref, Tuple, constant, refs
from executor.errors import ProgramError
from executor.schema import bound, changes_metadata, resolve
from executor.validate.metadata import check_change
from executor.validate.results import check_results
from executor.validate.scope import check_floats, fail

if TYPE_CHECKING:
    from executor.program import Call
    from executor.validate.scope import Scope

# What an argument of each schema type may be. A Python number stands for a tensor too, as in `x.add_(2)`.
_LEAVES: dict[str, tuple[type, ...]] = {
    "Tensor": (Ref, bool, int, float, Number),
    "Device": (Device,),
    "Layout": (Const,),
    "MemoryFormat": (Const,),
    "ScalarType": (Const,),
    "bool": (bool,),
    "float": (int, float, Number),
    "int": (int,),
    "number": (bool, int, float, Number),
    "str": (str,),
}
_CONSTANTS = {"Layout": torch.layout, "MemoryFormat": torch.memory_format, "ScalarType": torch.dtype}


def check_call(where: str, call: Call, scope: Scope, *, refused: bool) -> None:
    """Raises `ProgramError` if the call breaks a rule; else defines its results. `refused`: eager raises here."""
    try:
        op = resolve(call.op)
    except ProgramError as error:
        raise ProgramError(f"{where}: {error}") from error
    _check_names(where, call)
    schema = {argument.name: argument for argument in op._schema.arguments}
    for name, arg in bound(call):
        spot = f"{where}: argument {name!r}"
        check_floats(spot, arg)
        kind = str(schema[name].real_type)
        # One number stands for a list of a fixed length: `int[2] stride`.
        item = (
            kind.removeprefix("Optional[").removeprefix("List[").rstrip("]")
            if getattr(schema[name], "N", None)
            else kind
        )
        if not (_accepts(kind, arg) or _accepts(item, arg)):
            fail(spot, f"{_brief(arg)} does not fit", f"the schema says {kind}")
        for index in refs(arg):
            scope.check_use(spot, index)
    if refused and not call.results:
        return
    if changes_metadata(call.op):
        check_change(where, call, scope)
    else:
        check_results(where, call, scope)


def _check_names(where: str, call: Call) -> None:
    schema = resolve(call.op)._schema.arguments
    positional = [a.name for a in schema if not a.kwarg_only]
    if len(call.args) > len(positional):
        fail(where, f"{len(call.args)} positional arguments", f"it takes {len(positional)}: {', '.join(positional)}")
    given = positional[: len(call.args)]
    for name, _ in call.kwargs:
        if name not in [a.name for a in schema]:
            fail(where, f"there is no argument {name!r}", f"it takes {', '.join(a.name for a in schema)}")
        if name in given:
            fail(where, f"argument {name!r} is given twice", "give it once, by position or by name")
        given.append(name)
    missing = [a.name for a in schema if a.name not in given and not a.has_default_value()]
    if missing:
        fail(where, f"argument {missing[0]!r} is missing", "it has no default")


def _accepts(kind: str, arg: Arg) -> bool:
    """Whether an argument fits a schema type such as "Optional[List[int]]"."""
    if kind.startswith("Optional["):
        return arg is None or _accepts(kind[len("Optional[") : -1], arg)
    if kind.startswith("List["):
        return isinstance(arg, List | Tuple) and all(_accepts(kind[len("List[") : -1], item) for item in arg.items)
    return isinstance(arg, _LEAVES.get(kind, ())) and _is_known(kind, arg)


def _is_known(kind: str, arg: Arg) -> bool:
    """Whether torch knows the constant or device, and Python the number, that an argument names."""
    try:
        if isinstance(arg, Const):
            return isinstance(constant(arg.name), _CONSTANTS[kind])
        if isinstance(arg, Device):
            torch.device(arg.name)
        if isinstance(arg, Number):
            return complex(arg.text).imag == 0 or kind != "float"
    except (RuntimeError, ValueError):
        return False
    return True


def _brief(arg: Arg) -> str:
    if isinstance(arg, Ref):
        return f"value {arg.index}"
    if isinstance(arg, Const):
        return f"torch.{arg.name}"
    if isinstance(arg, List | Tuple):
        return f"a sequence of {', '.join([_brief(item) for item in arg.items]) or 'nothing'}"
    return repr(arg)
