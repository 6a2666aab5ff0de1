"""`thunder`: Lightning Thunder's `thunder.jit` on the CPU, with its default executors.

Thunder names what it does not support in its errors; that is where the limits come from. Like any compiler that is not
ours it is run under a time limit.

Inputs may require grad. As with torch.compile the backward pass is one function of all outputs, so that a leaf to which nothing flows
gets zeros, and what is kept for it is the compiler's choice.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import torch

from executor.errors import TargetError
from executor.limits import Limits
from executor.targets.base import Target, quiet

# Thunder 0.2.6 looks these methods up when it is imported, by `__name__`; torch 2.13 has removed them with named tensors.
_REMOVED = ("rename", "has_names", "align_as", "refine_names", "align_to")

_DTYPES = frozenset({
    "bool", "uint8", "int8", "int16", "int32", "int64", "bfloat16", "float16", "float32", "float64",
    "complex32", "complex64", "complex128",
})  # fmt: skip

_BANNED = frozenset({
    # "Unknown attribute fill_": Thunder's torch.Tensor has no such method.
    "aten.addmm_.default", "aten.bitwise_left_shift_.Tensor", "aten.bitwise_left_shift_.Tensor_Scalar",
    "aten.bitwise_right_shift_.Tensor", "aten.bitwise_right_shift_.Tensor_Scalar", "aten.clamp_max_.default",
    "aten.clamp_min_.default", "aten.conj_physical_.default", "aten.fill_.Scalar", "aten.fill_.Tensor",
    "aten.hypot_.default", "aten.index_fill_.int_Scalar", "aten.sgn_.default", "aten.sigmoid_.default",
    # "Exception encountered when doing automatic registration for unfold": it never succeeds.
    "aten.unfold.default",
    # "Trying to call function torch._ops.aten..., but it is not yet supported": these have no public spelling.
    "aten._conj_physical.default", "aten._neg_view.default", "aten.__lshift__.Scalar", "aten.__rshift__.Scalar",
    "aten.__ilshift__.Scalar", "aten.__irshift__.Scalar",
    "aten._foreach_add_.Scalar", "aten._foreach_add_.List", "aten._foreach_mul_.Scalar", "aten._foreach_neg_.default",
    "aten._foreach_zero_.default", "aten._foreach_copy_.default",
    # "got an unexpected keyword argument 'out'"
    "aten.add.out", "aten.sub.out", "aten.mul.out", "aten.neg.out", "aten.abs.out",
})  # fmt: skip


# The same error says that it does not know them. Assigning to `Tensor.data` it does not refuse.
_METADATA = frozenset({
    "aten.as_strided_.default", "aten.resize_.default", "aten.resize_as_.default", "aten.set_.source_Tensor",
    "aten.squeeze_.default", "aten.squeeze_.dim", "aten.squeeze_.dims", "aten.swapaxes_.default",
    "aten.swapdims_.default", "aten.t_.default", "aten.transpose_.default", "aten.unsqueeze_.default",
})  # fmt: skip


class Thunder(Target):
    """`thunder.jit(fn)`. Raises `TargetError` if Thunder is not installed."""

    unsafe = True
    limits = Limits(written_results=False, none_gradients=False, dtypes=_DTYPES, banned_ops=_BANNED | _METADATA)

    def __init__(self, name: str = "thunder", fuel: int | None = None, **options: Any) -> None:
        self.name, self._options, self._fuel = name, options, fuel
        self._thunder = _import()
        self.stages: Mapping[str, Target] = self._stages() if "/" not in name else {}

    def _stages(self) -> Mapping[str, Target]:
        """In-place operators made functional and run in order; with the alias updates; with the executors that fuse."""
        plain: dict[str, Any] = {"executors": [], "skip_inplace_alias_updates": True}
        return {
            "functionalization": Thunder(f"{self.name}/functionalization", **plain),
            "alias updates": Thunder(f"{self.name}/alias updates", executors=[]),
            "executors": self,
        }

    def compile(self, fn: Callable[..., Any], example_args: Sequence[Any]) -> Callable[..., Any]:  # noqa: ARG002
        """A function that compiles when it is called."""
        compiled = _Compiled(self._thunder.jit(fn, **self._options))
        return compiled if self._fuel is None else _Fuelled(compiled, self._thunder.get_executor("nvfuser"), self._fuel)

    def metrics(self, compiled: Callable[..., Any]) -> dict[str, int]:
        """`barriers`: the `update_aliases` in the trace that runs, each of which ends a fusion region."""
        assert isinstance(compiled, _Compiled)
        trace = self._thunder.last_traces(compiled.inner)[-1]
        return {"barriers": sum(call.sym.name == "update_aliases" for call in trace.bound_symbols)}

    def versions(self) -> dict[str, str]:
        """See `Target.versions`."""
        return {"torch": str(torch.__version__), "lightning-thunder": version("lightning-thunder")}

    def script(self) -> list[str]:
        """See `Target.script`."""
        return [
            "import torch",
            f"for name in {_REMOVED}:  # methods that torch has removed, and that Thunder's import looks up",
            "    def removed(self):",
            "        raise NotImplementedError",
            "    removed.__name__ = name",
            "    if not hasattr(torch.Tensor, name):",
            "        setattr(torch.Tensor, name, removed)",
            "import thunder",
            "compiled = thunder.jit(program)",
        ]

    def refusal(self, error: BaseException) -> str | None:
        """Thunder says `NotImplementedError`; of a method that it does not know "Unknown attribute"; of `out=` a TypeError.

        Of an operator without gradients it says that it has no transform.
        """
        text = str(error)
        known = (
            isinstance(error, NotImplementedError)
            or (isinstance(error, AttributeError) and text.startswith("Unknown attribute"))
            or (isinstance(error, TypeError) and text.endswith("unexpected keyword argument 'out'"))
            or (isinstance(error, RuntimeError) and text.startswith("Failed to find a gradient transform"))
        )
        return (str(error).splitlines() or [type(error).__name__])[0] if known else None


class _Compiled:
    """A jitted function that keeps Thunder's warnings to itself."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self.inner = inner

    def __call__(self, *args: Any) -> Any:
        with quiet():
            return self.inner(*args)


class _Fuelled:
    """A jitted function of which only the first so many regions are fused: NVFUSER_OPTIMIZATION_FUEL for it alone."""

    def __init__(self, compiled: Callable[..., Any], executor: Any, fuel: int) -> None:
        self._compiled, self._executor, self._fuel = compiled, executor, fuel

    def __call__(self, *args: Any) -> Any:
        self._executor.set_fuel(self._fuel)
        try:
            return self._compiled(*args)
        finally:
            self._executor.set_fuel(importlib.import_module("thunder.extend").FUEL_LEVEL.UNLIMITED)


def _import() -> Any:
    with quiet(), _removed_methods():
        try:
            return importlib.import_module("thunder")
        except ModuleNotFoundError as error:
            if error.name != "thunder":
                raise
            raise TargetError("target 'thunder' needs lightning-thunder: pip install 'aliasfuzz[thunder]'") from error
        except AttributeError as error:
            raise TargetError(
                f"target 'thunder': lightning-thunder {version('lightning-thunder')} cannot be imported with "
                f"torch {torch.__version__}: {error}"
            ) from error


@contextmanager
def _removed_methods() -> Iterator[None]:
    """Gives torch.Tensor the methods that Thunder's import wants, and takes them away again: only the import needs them."""
    missing = [name for name in _REMOVED if not hasattr(torch.Tensor, name)]
    for name in missing:
        setattr(torch.Tensor, name, _stub(name))
    try:
        yield
    finally:
        for name in missing:
            delattr(torch.Tensor, name)


def _stub(name: str) -> Callable[..., Any]:
    def removed(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"torch {torch.__version__} has removed Tensor.{name}")

    removed.__name__ = name  # Thunder finds the method by this, so a lambda would not do
    return removed
