"""Going backward through compiled functions: in parts, several times, after writes, into `.grad`; and what eager refuses."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import pytest
import torch

from executor.autograd.joint import Joint
from executor.autograd.node import _Call
from executor.backends.eager import Eager
from executor.errors import ArgumentError, TraceError
from executor.jit import jit
from executor.pipeline import Aliases
from tests.gradient_behaviour import Made, Make, all_of, cotangent, equal, leaf, leaves, observed, plain


def check(fn: Callable[..., Any], make: Make, backward: Callable[..., Any] = all_of) -> Any:
    """Eager and compiled in all modes, twice each, show the same; returns it."""
    wanted = observed(fn, make, backward)
    for compiled in (*(jit(fn, aliases=mode) for mode in get_args(Aliases)), jit(fn, backend="eager")):
        for _ in range(2):
            found = observed(compiled, make, backward)
            assert equal(found, wanted), f"{found}, not {wanted}"
    return wanted


def two(a: torch.Tensor, b: torch.Tensor) -> Any:
    c = a * b
    d = c.exp2()
    c.add_(1)
    return c * a, d, b + 1, (a > b)


def each(outputs: Any, args: Any, looked_at: Any) -> Any:
    """Each output alone, the graph not retained, and what raises."""
    del args
    found: list[Any] = []
    for k, output in enumerate(outputs):
        if output.requires_grad:
            try:
                found.append(torch.autograd.grad(output, looked_at, cotangent(output, k), allow_unused=True))
            except RuntimeError as error:
                found.append(str(error)[:40])
    return found


def one_by_one(outputs: Any, args: Any, looked_at: Any) -> Any:
    """Each output alone, the graph retained, and then all, accumulating in `.grad`."""
    del args, looked_at
    sources = [output for output in outputs if output.requires_grad]
    for k, output in enumerate(sources):
        output.backward(cotangent(output, k), retain_graph=True)
    torch.autograd.backward(sources, [cotangent(output, k) for k, output in enumerate(sources)])
    return None


def twice(outputs: Any, args: Any, looked_at: Any) -> Any:
    """All outputs, twice, the graph not retained."""
    return [all_of(outputs, args, looked_at) for _ in range(2)]


def after_write(place: int) -> Callable[..., Any]:
    """All outputs, after the caller has written to one of the outputs and arguments."""

    def backward(outputs: Any, args: Any, looked_at: Any) -> Any:
        with torch.no_grad():
            [*outputs, *args][place].add_(1)
        return all_of(outputs, args, looked_at)

    return backward


FUNCTIONS: list[Callable[..., Any]] = [
    two,
    lambda a, b: (a + b, a - b),
    lambda a, b: (a * 2, b * 2, a * b),
    lambda a, b: ((c := a * b), c.view(2, 2), (c * b)),
    lambda a, b: ((a * b).relu_(), b.exp2()),
    lambda a, b: a[1:] * b[:-1],
    lambda a, b: torch.stack([a, b]).unbind(1),
]
BACKWARDS = [each, one_by_one, twice, *map(after_write, range(-2, 3))]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=range(len(FUNCTIONS)))
@pytest.mark.parametrize("backward", BACKWARDS, ids=range(len(BACKWARDS)))
def test_all_ways_to_go_backward(fn: Callable[..., Any], backward: Callable[..., Any]) -> None:
    check(fn, leaves((4,), (4,)), backward)


def test_what_is_written_between_forward_and_backward_raises_only_if_autograd_kept_it() -> None:
    kept = check(lambda a, b: a * b, leaves((4,), (4,)), after_write(1))
    assert kept[5] == (RuntimeError, "one of the variables needed for gradient")
    unneeded = check(lambda a, b: (a * 2).exp2() + b, leaves((4,), (4,)), after_write(1))
    assert unneeded[5][1].tolist() == [-2.0, 1.0, -1.0, 2.0]


def test_a_kept_tensor_that_the_function_writes_raises_when_it_goes_backward() -> None:
    def fn(a: torch.Tensor) -> Any:
        b = a * 2
        c = b * b
        b.add_(1)
        return b, c

    assert check(fn, leaves((4,)))[5] == (RuntimeError, "one of the variables needed for gradient")
    assert isinstance(check(fn, leaves((4,)), each)[5][0], tuple)  # b alone can go backward


def test_twice_without_retaining_raises_only_if_something_was_kept() -> None:
    assert check(lambda a: a * a, leaves((4,)), twice)[5] == (RuntimeError, "Trying to backward through the graph a s")
    assert len(check(lambda a: a + a, leaves((4,)), twice)[5]) == 2


def test_gradients_add_up_in_grad() -> None:
    def backward(outputs: Any, args: Any, looked_at: Any) -> None:
        del args
        looked_at[0].grad = torch.full((4,), 100.0)
        for _ in range(3):
            outputs[0].backward(torch.ones(4), retain_graph=True)

    assert check(lambda a: a * 2, leaves((4,)), backward)[6][0].tolist() == [106.0] * 4


def test_a_function_may_add_to_a_gradient_that_it_is_given() -> None:
    def make() -> Made:
        a, total = leaf(4), plain(4)
        return [a, total], [a]

    def fn(a: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            total.add_(a * 2)
            a.sub_(total)
        return a * total

    check(fn, make)


def test_a_leaf_is_written_without_grad_mode_and_used_with_it() -> None:
    def fn(a: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            a.add_(step, alpha=-2)
        return a * a

    def make() -> Made:
        a = leaf(4)
        return [a, plain(4, start=-3)], [a]

    check(fn, make)


def test_memory_written_through_a_detached_alias() -> None:
    def fn(a: torch.Tensor) -> Any:
        b = a * 2
        b.detach().add_(1)
        c = a.detach()[1:]
        return b, c, (a * 3).detach(), b * a

    check(fn, leaves((4,)))


def apply(function: Any, x: torch.Tensor) -> Any:
    """Calls a custom function; torch does not say what its `apply` takes."""
    return function.apply(x)


class Doubled(torch.autograd.Function):
    """Twice its argument, computed in place; its derivative is 5, so that no other can pass for it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        y = x * 1
        y[1:].mul_(2)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = ctx.saved_tensors[0]
        slope = x * 0
        slope.view(-1).add_(5)
        return grad * slope


class Written(torch.autograd.Function):
    """Writes its argument; its derivative is 7."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        x.mul_(3)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return grad * 7


class Seen(torch.autograd.Function):
    """A view of its argument, with a derivative of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return x[1:]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return torch.cat([grad, grad[:1]]) * 11


@pytest.mark.parametrize("fn", [
    lambda a: apply(Doubled, a) * a,
    lambda a: apply(Written, a * 2),
    lambda a: (b := a * 2, c := b[:2], apply(Written, b), c)[-1],
    partial(apply, Seen),
    lambda a: (apply(Seen, a)[1:], a[2:]),
    lambda a: (apply(Seen, a * 2), a * 3),
    lambda a: apply(Seen, a) * 2,
], ids=range(7))  # fmt: skip
def test_custom_functions(fn: Callable[..., Any]) -> None:
    check(fn, leaves((4,)))


def test_a_custom_function_writes_an_argument() -> None:
    def make() -> Made:
        root = leaf(6)
        base = root.clone()
        return [base[:4], base[2:]], [root]

    check(lambda a, b: (apply(Written, a), b * 2, b), make)


def test_a_derivative_that_raises() -> None:
    class Never(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
            raise RuntimeError("no derivative here")

    found = check(lambda a: (apply(Never, a), a * a), leaves((4,)), each)
    assert found[5][0] == "no derivative here"
    assert isinstance(found[5][1], tuple)


def test_what_can_go_backward_beside_what_cannot() -> None:
    def fn(a: torch.Tensor) -> Any:
        b = a + 10
        c = b + 2
        b.mul_(c)
        d = b + 10
        d.heaviside_(b)
        return b, d, c * c

    found = check(fn, leaves((4,)), each)
    assert [type(one) for one in found[5]] == [tuple, str, tuple]


def test_parameters_and_buffers_as_arguments() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU(inplace=True))
    x = torch.arange(12.0).view(4, 3)

    def train(fn: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        for layer in module:
            getattr(layer, "reset_parameters", lambda: None)()
        module.zero_grad()
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        out = fn(state, x)
        out.sum().backward()
        gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
        return out.detach(), gradients, [b.clone() for b in module.buffers()]

    def fn(state: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
        return torch.func.functional_call(module, state, (x,))

    compiled = jit(fn)
    assert equal(train(compiled), train(fn))
    assert equal(train(compiled), train(fn))
    assert compiled.cache_info().misses == 1


def test_a_parameter_that_is_no_argument_is_refused_by_name() -> None:
    module = torch.nn.Linear(3, 3)
    with pytest.raises(TraceError, match=r"the parameter 'weight' of the module from.*pass it as an argument"):
        jit(module.forward)(leaf(2, 3))
    weight = leaf(3)
    with pytest.raises(TraceError, match=r"'weight'.*pass it as an argument"):
        jit(lambda a: a * weight)(leaf(3))


def test_derivatives_of_derivatives_are_refused() -> None:
    a = leaf(4)
    (first,) = torch.autograd.grad(jit(lambda a: a**3)(a).sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()


def test_a_leaf_made_inside_is_refused() -> None:
    with pytest.raises(TraceError, match="returns a leaf that it makes itself"):
        jit(lambda a: a.detach().requires_grad_())(leaf(3))


def test_gradients_of_arguments_are_no_business_of_the_function() -> None:
    a = leaf(3)
    with pytest.raises(TraceError, match=r"reads or sets a tensor's `grad` at .*test_gradients_backward.py:\d+"):
        jit(lambda a: a * 2 if a.grad is None else a)(a)
    with pytest.raises(TraceError, match="adds to the gradient of an argument"):
        jit(lambda a: (a * a).sum().backward())(a)
    assert a.grad is None


def test_a_function_may_go_backward_itself() -> None:
    def fn(a: torch.Tensor) -> Any:
        (gradient,) = torch.autograd.grad((a * a).sum(), a)
        return gradient * a, a.detach().sub_(gradient)

    check(fn, leaves((4,)))


def test_views_as_another_dtype_are_refused() -> None:
    base = torch.ones(2, dtype=torch.complex64, requires_grad=True) * 2
    with pytest.raises(ArgumentError, match="is a view of a tensor of dtype"):
        jit(lambda a: a * 2)(torch.view_as_real(base))


def test_without_grad_mode_nothing_has_a_history() -> None:
    a = leaf(4)
    compiled = jit(lambda a: (a.add_(1), a * 2))
    with torch.no_grad():
        assert not compiled(a)[1].requires_grad
    assert a.tolist() == [2.0, 3.0, 4.0, 5.0]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        compiled(a)


def test_cotangents_in_any_layout() -> None:
    def backward(outputs: Any, args: Any, looked_at: Any) -> Any:
        del args
        wide = torch.arange(8.0)
        given = [torch.ones(()).expand(4), wide[::2], wide.flip(0)[:4], wide[3:7]]
        return [torch.autograd.grad(outputs[0], looked_at, g, retain_graph=True) for g in given]

    check(lambda a: (a * a)[:], leaves((4,)), backward)


def test_another_relation_between_inputs_is_compiled_anew() -> None:
    compiled = jit(lambda a, b: (a.mul_(2), b * 3))
    root = leaf(6)
    base = root.clone()
    apart = root.clone()
    for args in ([base[:4], base[2:]], [base[:4], apart[2:]], [base[:4], base[2:].detach()]):
        compiled(*args)
    assert compiled.cache_info() == (0, 3)


def test_nothing_is_left_when_results_are_dropped() -> None:
    compiled = jit(lambda a: (b := a * 2, c := b[:], c.tanh_(), a * b)[-1])
    gc.collect()
    before = len([thing for thing in gc.get_objects() if type(thing) in (Joint, _Call)])
    for _ in range(3):
        compiled(leaf(4)).sum().backward()
        jit(lambda a: (a * 2).exp() * a)(leaf(4))
    gc.collect()
    assert len([thing for thing in gc.get_objects() if type(thing) in (Joint, _Call)]) == before


def test_one_region_each_way() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        b = a * 2
        c = b[:]
        c.tanh_()
        return a * b

    check(fn, leaves((4,)))
    compiled = jit(fn, backend=Eager())
    compiled(leaf(4)).sum().backward()
    assert compiled.last is not None
    assert compiled.last_backward is not None
    assert (compiled.last.regions, compiled.last.barriers) == (1, 0)
    assert (compiled.last_backward.regions, compiled.last_backward.barriers) == (1, 0)
