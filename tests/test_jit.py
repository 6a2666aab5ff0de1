"""`jit`: what the compiled function does, when it compiles anew, and what it refuses by name."""

from __future__ import annotations

import random
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from executor.errors import ArgumentError, TraceError
from executor.guards import guard
from executor.jit import CacheInfo, Compiled, jit
from executor.memory import describe

Build = Callable[[], tuple[torch.Tensor, torch.Tensor]]


def whole() -> torch.Tensor:
    return torch.arange(1.0, 13.0)


def add_and_subtract(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a.add_(b)
    b.mul_(2)
    return a - b, a


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    x = whole().view(3, 4)
    return x[0], x[2]


def apart() -> tuple[torch.Tensor, torch.Tensor]:
    return whole()[:4], whole()[8:]


def same() -> tuple[torch.Tensor, torch.Tensor]:
    x = whole()
    return x[:4], x[:4]


def twice() -> tuple[torch.Tensor, torch.Tensor]:
    x = whole()[:4]
    return x, x


PATTERNS: list[Build] = [rows, apart, same, twice]


def check(compiled: Compiled, fn: Callable[..., Any], build: Build) -> None:
    ours, theirs = build(), build()
    got, wanted = compiled(*ours), fn(*theirs)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert [ours[0] is tensor for tensor in got] == [theirs[0] is tensor for tensor in wanted]


@pytest.mark.parametrize("backend", ["eager", "weak_memory"])
def test_another_alias_pattern_never_gets_the_first_ones_code(backend: Any) -> None:
    compiled = jit(add_and_subtract, backend=backend)
    for order in (PATTERNS, PATTERNS[::-1], PATTERNS):
        for build in order:
            check(compiled, add_and_subtract, build)
    assert compiled.cache_info() == CacheInfo(hits=8, misses=4)


def test_a_shift_on_the_same_storage_is_another_pattern() -> None:
    compiled = jit(add_and_subtract, backend="eager")
    for start in (4, 6, 8, 4):

        def independent(start: int = start) -> tuple[torch.Tensor, torch.Tensor]:
            return whole()[:4], whole()[start : start + 4]

        def together(start: int = start) -> tuple[torch.Tensor, torch.Tensor]:
            x = whole()
            return x[:4], x[start : start + 4]

        check(compiled, add_and_subtract, independent)
        check(compiled, add_and_subtract, together)
    assert compiled.cache_info() == CacheInfo(hits=2, misses=6)


def test_fresh_data_of_the_same_layout_is_a_hit() -> None:
    compiled = jit(torch.add, backend="eager")
    assert compiled(torch.ones(3), torch.ones(3)).tolist() == [2, 2, 2]
    assert compiled(torch.zeros(3), torch.ones(3)).tolist() == [1, 1, 1]
    assert compiled.cache_info() == CacheInfo(hits=1, misses=1)


def test_numbers_none_and_unused_tensors_shift_no_positions() -> None:
    def fn(k: int, nothing: None, unused: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        del nothing, unused
        a.add_(b, alpha=k)
        return a - b

    compiled = jit(fn, backend="eager")
    for k in (1, 3, 1):
        for build in PATTERNS:
            ours, theirs = build(), build()
            got = compiled(k, None, torch.ones(2), *ours)
            assert got.equal(fn(k, None, torch.ones(2), *theirs))
            assert ours[0].equal(theirs[0])
    assert compiled.cache_info() == CacheInfo(hits=4, misses=8)


def test_keyword_arguments() -> None:
    compiled = jit(add_and_subtract, backend="eager")
    a, b = rows()
    compiled(a, b=b)
    a, b = rows()
    result = compiled(b=b, a=a)[0]
    assert result.tolist() == add_and_subtract(*rows())[0].tolist()
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        compiled(a, b, c=1)


def test_trees_in_and_out() -> None:
    def fn(tree: dict[str, Any], scale: float) -> dict[str, Any]:
        first, (second, _) = tree["first"], tree["rest"]
        first.mul_(scale)
        return {"sum": [first + second], "same": (first, tree["none"])}

    compiled = jit(fn, backend="eager")
    x = whole()
    got = compiled({"first": x[:4], "rest": (x[2:6], 7), "none": None}, 2.0)
    y = whole()
    y[:4].mul_(2)
    assert got["sum"][0].equal(y[:4] + y[2:6])
    assert got["same"][1] is None
    assert got["same"][0].data_ptr() == x.data_ptr()
    assert x.equal(y)


@pytest.mark.parametrize(
    ("first", "second"), [(0.0, -0.0), (1, 1.0), (1, True), (2.0, 3.0), (1, "1"), (0, None)], ids=repr
)
def test_arguments_that_differ_compile_anew(first: object, second: object) -> None:
    compiled = jit(lambda x, _: x * 2, backend="eager")
    for argument in (first, second, first, second):
        compiled(torch.ones(2), argument)
    assert compiled.cache_info() == CacheInfo(hits=2, misses=2)


def test_the_sign_of_a_zero_reaches_the_program() -> None:
    compiled = jit(lambda x, s: x * s, backend="eager")
    assert not torch.signbit(compiled(torch.ones(1), 0.0)).item()
    assert torch.signbit(compiled(torch.ones(1), -0.0)).item()


def test_nan_is_a_hit() -> None:
    compiled = jit(lambda x, s: x * s, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(1), float("nan")).isnan().item()
    assert compiled.cache_info() == CacheInfo(hits=2, misses=1)


def test_the_ambient_state_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = jit(lambda x: (torch.zeros(2), x @ x), backend="eager")
    zeros, product = compiled(torch.eye(2))
    assert (zeros.dtype, product.dtype) == (torch.float32, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(torch.eye(2))[1].dtype == torch.bfloat16
    with torch.autocast("cpu", torch.float16):
        assert compiled(torch.eye(2))[1].dtype == torch.float16
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)
    compiled(torch.eye(2))
    assert compiled.cache_info().misses == 4


def test_unrelated_empty_tensors_are_not_grouped() -> None:
    key = guard((torch.empty(0), torch.empty(0)), {})[0]
    one = torch.empty(0)
    assert key != guard((one, one[:]), {})[0]
    check(jit(add_and_subtract, backend="eager"), add_and_subtract, lambda: (torch.empty(0), torch.empty(0)))


def test_lazy_conjugate_and_negative_bits_are_part_of_the_key() -> None:
    z = torch.complex(torch.ones(3), torch.arange(3.0))
    compiled = jit(lambda x: x + 1, backend="eager")
    plain = compiled(z.clone())
    assert compiled(z.conj()).equal(plain.conj())
    assert compiled(z.conj().imag).equal(1 - z.imag)
    assert compiled.cache_info() == CacheInfo(hits=0, misses=3)


def test_parameters_without_gradients_are_taken() -> None:
    weight = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    assert jit(lambda w: w * 2, backend="eager")(weight).tolist() == [2, 2, 2]


class Marked(torch.Tensor):
    """A tensor subclass."""


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (([1, {"k": torch.ones(1).to_sparse()}],), {}, r"args\[0\]\[1\]\['k'\] is not a dense tensor"),
        ((torch.ones(1).as_subclass(Marked),), {}, r"args\[0\] is a Marked; tensor subclasses are not supported"),
        ((torch.ones(1).to_sparse(),), {}, r"args\[0\] is not a dense tensor \(layout torch\.sparse_coo\)"),
        (([{1, 2}],), {}, r"args\[0\]\[0\] is \{1, 2\} of type set; a compiled function takes tensors"),
        ((np.ones(1),), {}, r"args\[0\] is .* of type ndarray"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_for_is_refused_by_name(args: Any, kwargs: Any, message: str) -> None:
    compiled = jit(lambda *_, **__: None, backend="eager")
    with pytest.raises(ArgumentError, match=message):
        compiled(*args, **kwargs)
    assert compiled.cache_info() == CacheInfo(hits=0, misses=0)


def test_memory_shared_behind_torchs_back_is_refused() -> None:
    array = np.arange(6.0)
    a, b = torch.from_numpy(array[:4]), torch.from_numpy(array[2:])
    with pytest.raises(ArgumentError, match="different torch storages over the same memory"):
        jit(torch.add, backend="eager")(a, b)
    a, b = torch.from_numpy(array[:3]), torch.from_numpy(array[3:])
    assert jit(torch.add, backend="eager")(a, b).tolist() == [3, 5, 7]


def test_eagers_refusal_comes_after_the_same_writes() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        return a.add_(a.t())

    compiled = jit(fn, backend="eager")
    ours, theirs = whole()[:9].view(3, 3), whole()[:9].view(3, 3)
    with pytest.raises(RuntimeError, match="single memory location"):
        compiled(ours)
    with pytest.raises(RuntimeError, match="single memory location"):
        fn(theirs)
    assert ours.equal(theirs)
    assert compiled.last is not None
    assert compiled.last.program.raises == "RuntimeError"


def test_a_refusal_that_depends_on_data_is_not_cached() -> None:
    compiled = jit(lambda a, i: a[i], backend="eager")
    with pytest.raises(IndexError):
        compiled(whole(), torch.tensor([99]))
    assert compiled(whole(), torch.tensor([3])).tolist() == [4]
    with pytest.raises(IndexError):
        compiled(whole(), torch.tensor([99]))


def test_what_no_program_can_hold_is_refused() -> None:
    with pytest.raises(TraceError, match="item"):
        jit(lambda a: a * a.sum().item(), backend="eager")(whole())


def test_the_functions_own_exception_passes_through() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        raise KeyError(a.shape)

    with pytest.raises(KeyError):
        jit(fn)(whole())


def test_unknown_backends_and_modes_are_named_with_the_choices() -> None:
    with pytest.raises(ArgumentError, match=r"backend is 'cuda'; it can be .*'eager'"):
        jit(add_and_subtract, backend="cuda")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="aliases is 'none'; it can be 'barrier' or 'blend' or 'auto'"):
        jit(add_and_subtract, aliases="none")  # type: ignore[arg-type]


def test_last_is_what_served_the_last_call() -> None:
    compiled = jit(add_and_subtract, backend="eager")
    served = [compiled.last]
    for build in (rows, twice, rows):
        compiled(*build())
        served.append(compiled.last)
    before, first, second, third = served
    assert before is None
    assert first is not None
    assert second is not None
    assert third is first
    assert second.program.twins == ((1, 0),)
    assert first.program.twins == ()
    assert [call.op for call in first.program.calls] == ["aten.add_.Tensor", "aten.mul_.Tensor", "aten.sub.Tensor"]


def test_the_compiled_function_carries_the_functions_name() -> None:
    compiled: Any = jit(add_and_subtract)
    assert (compiled.__name__, compiled.__wrapped__) == ("add_and_subtract", add_and_subtract)


def random_view(base: torch.Tensor, rng: random.Random) -> torch.Tensor:
    start, length, step = rng.randrange(6), rng.randrange(4), rng.randrange(1, 3)
    view = base[start : start + length : step]
    return view.view(torch.int32) if rng.random() < 0.3 else view


def random_arguments(rng: random.Random) -> tuple[torch.Tensor, ...]:
    bases = [torch.zeros(12), torch.zeros(12)]
    args: list[torch.Tensor] = []
    for _ in range(3):
        again = args and rng.random() < 0.2
        args.append(rng.choice(args) if again else random_view(rng.choice(bases), rng))
    return tuple(args)


def test_keys_are_equal_exactly_where_the_geometry_is() -> None:
    rng = random.Random(5)
    by_key: dict[Any, Any] = {}
    by_geometry: dict[Any, Any] = {}
    for _ in range(4000):
        args = random_arguments(rng)
        key, tensors = guard(args, {})
        inputs = describe(tensors, fill=False)
        geometry = inputs.values, inputs.twins
        assert by_key.setdefault(key, geometry) == geometry
        assert by_geometry.setdefault(geometry, key) == key
    assert 100 < len(by_key) < 4000  # some calls met an earlier one's key, most did not


def test_the_key_of_four_inputs_takes_at_most_15_microseconds() -> None:
    x = whole()
    args = x[:4], x[2:6], whole(), whole()[::2]
    # Rounds of half a millisecond, so that some are not interrupted on a busy machine.
    assert min(timeit.repeat(lambda: hash(guard(args, {})[0]), number=100, repeat=200)) < 15e-4
