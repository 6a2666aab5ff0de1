"""How one call is written in Python, with public `torch` names only.

Of the forms that fit its shape, the prettiest is taken that reaches the same operator with the same arguments; at last
the operator verbatim (`torch.ops.aten.add.Tensor(...)`), which is public too. So no table has to know how torch resolves
overloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from executor.args import Arg, Const, Device, Number, Ref, children
from executor.printing.dispatching import same_dispatch
from executor.printing.forms import Scope, forms, verbatim

if TYPE_CHECKING:
    from executor.printing.forms import Form
    from executor.program import Call


def spell(call: Call, scope: Scope) -> str:
    """The Python expression that does what `call` does."""
    kinds = (*[_kind(arg, scope) for arg in call.args], *[(name, _kind(arg, scope)) for name, arg in call.kwargs])
    for number, form in enumerate(forms(call.op)):
        text = form(call, scope)
        if text is not None and _fits(number, call, scope, kinds):
            return text
    return verbatim(call, scope)


_KNOWN: dict[tuple[Any, ...], bool] = {}
_MOST_KNOWN = 1 << 14  # far more than there are; a bound all the same


def _fits(number: int, call: Call, scope: Scope, kinds: tuple[Any, ...]) -> bool:
    """Whether form `number` dispatches as the operator does; the answer depends on the arguments' kinds alone."""
    key = (call.op, number, kinds)
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = _compare(forms(call.op)[number], call, scope)
    return _KNOWN[key]


def _compare(form: Form, call: Call, scope: Scope) -> bool:
    kwargs = tuple((name, _on_cpu(arg)) for name, arg in call.kwargs)
    here = msgspec.structs.replace(call, args=tuple(map(_on_cpu, call.args)), kwargs=kwargs)
    renamed = Scope(scope.values, {i: f"t{i}" for i in call.operands})
    text = form(here, renamed)
    values = {name: scope.values[i] for i, name in renamed.names.items()}
    return text is not None and same_dispatch(text, verbatim(here, renamed), values)


def _on_cpu(arg: Arg) -> Arg:
    """Devices that this machine may lack become the one that it has."""
    return Device("cpu") if isinstance(arg, Device) else arg


def _kind(arg: Arg, scope: Scope) -> Any:
    """What torch's argument parser can tell apart about an argument."""
    if isinstance(arg, Ref):
        value = scope.values[arg.index]
        return value.dtype, not value.shape
    if isinstance(arg, Const | str):
        return arg
    if isinstance(arg, Number):
        return Number, "j" in arg.text
    parts = children(arg)
    return (type(arg), *[_kind(part, scope) for part in parts]) if parts else type(arg)
