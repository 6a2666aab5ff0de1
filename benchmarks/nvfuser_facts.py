"""Small experiments on nvFuser: each fact on which a rule of the backend or the memory model rests, tried again.

    python -m benchmarks.nvfuser_facts [--only TEXT] [--write docs/nvfuser.md]

Each runs in a process of its own under a time limit, since some make the compiler hang or the GPU fault. The table says what
was found; `--write` puts it into the document. Where there is no GPU or no nvFuser, every row says that it was not run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

SECONDS = 60.0
BEGIN, END = "<!-- facts: begin -->", "<!-- facts: end -->"
Experiment = Callable[[], str]
EXPERIMENTS: dict[str, tuple[Experiment, str]] = {}


def fact(name: str, rule: str) -> Callable[[Experiment], Experiment]:
    """Registers an experiment, and what the backend makes of it."""

    def register(run: Experiment) -> Experiment:
        EXPERIMENTS[name] = (run, rule)
        return run

    return register


def run(build: Callable[..., None], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Runs the fusion that `build` defines on these inputs."""
    from nvfuser_direct import FusionDefinition

    with FusionDefinition() as fd:
        build(fd, *[fd.from_pytorch(tensor) for tensor in inputs])
    made: list[torch.Tensor] = fd.execute(list(inputs))
    torch.cuda.synchronize()
    return made


def right(*pairs: tuple[torch.Tensor, torch.Tensor]) -> str:
    """Whether what was found is what should be."""
    return "right" if all(torch.equal(found, wanted) for found, wanted in pairs) else "**wrong**"


def ramp(*shape: int) -> torch.Tensor:
    """Small integers as float32."""
    return (torch.arange(torch.Size(shape).numel(), device="cuda") % 61 - 30.0).view(shape)


def written_back(
    x: torch.Tensor, value: Callable[[Any, Any], Any], wanted: Callable[[torch.Tensor], torch.Tensor]
) -> str:
    """A value of `x` stored into `x` by the kernel itself."""
    expected = wanted(x.clone())
    run(lambda fd, t: fd.add_output(fd.ops.set(value(fd, t)), t), [x])
    return right((x, expected))


def at_sizes(sizes: Sequence[int], trial: Callable[[int], str], times: int = 5) -> str:
    """An experiment at several sizes, several times each."""
    found = {size: [trial(size) for _ in range(times)].count("right") for size in sizes}
    return ", ".join(f"{size}: right {count} of {times}" for size, count in found.items())


@fact("early store to a contiguous input", "allowed")
def contiguous_target() -> str:
    return written_back(ramp(33, 7), lambda fd, t: fd.ops.add(t, 1.0), lambda x: x + 1)


@fact("early store to `base[:, 2:7]`", "refused: targets have to be dense")
def strided_target() -> str:
    base = ramp(8, 9)
    expected = base.clone()
    expected[:, 2:7] += 1
    view = base[:, 2:7]
    run(lambda fd, t: fd.add_output(fd.ops.set(fd.ops.add(t, 1.0)), t), [view])
    return right((base, expected))


@fact("early store to a transposed dense input", "allowed")
def transposed_target() -> str:
    return written_back(ramp(33, 7).t(), lambda fd, t: fd.ops.add(t, 1.0), lambda x: x + 1)


@fact("early store of `T.t()` to T", "refused: every element is read by the thread that overwrites it")
def transposed_self() -> str:
    def trial(n: int) -> str:
        return written_back(ramp(n, n), lambda fd, t: fd.ops.permute(t, [1, 0]), lambda x: x.t().clone())

    return at_sizes((33, 128, 2048), trial)


@fact("early store of T shifted by one", "refused, likewise")
def shifted_self() -> str:
    def trial(n: int) -> str:
        def value(fd: Any, t: Any) -> Any:
            return fd.ops.cat([fd.ops.slice(t, [0], [1]), fd.ops.slice(t, [0], [n - 1])])

        return written_back(ramp(n), value, lambda x: torch.cat([x[:1], x[:-1]]))

    return at_sizes((33, 1 << 20), trial)


@fact("early store of `T + 1`, `T * sum(T)` returned", "refused: what waits for a reduction may load its target again")
def beside_its_sum() -> str:
    def trial(n: int) -> str:
        x = torch.ones(n, device="cuda")
        expected = (x + 1, x * x.sum())

        def build(fd: Any, t: Any) -> None:
            fd.add_output(fd.ops.set(fd.ops.add(t, 1.0)), t)
            fd.add_output(fd.ops.mul(t, fd.ops.sum(t)))

        (out,) = run(build, [x])
        return right((x, expected[0]), (out, expected[1]))

    return at_sizes((64, 4096, 1 << 22), trial)


@fact("early store of `set(sin(T))`, `set(cos(sin(T)))` returned", "refused: it takes two kernels")
def recomputed() -> str:
    return _beside_its_cosine(copied=True)


@fact("the same without the copies", "values leave a fusion as they are where they can")
def not_recomputed() -> str:
    return _beside_its_cosine(copied=False)


def _beside_its_cosine(*, copied: bool) -> str:
    def trial(n: int) -> str:
        x = ramp(n)

        def build(fd: Any, t: Any) -> None:
            made = fd.ops.sin(t)
            out = fd.ops.cos(made)
            fd.add_output(fd.ops.set(out) if copied else out)
            fd.add_output(fd.ops.set(made) if copied else made, t)

        expected = (torch.sin(x), torch.cos(torch.sin(x)))
        (out,) = run(build, [x])
        near = all(torch.allclose(a, b, atol=1e-5) for a, b in zip((x, out), expected, strict=True))
        return "right" if near else "**wrong**"

    return at_sizes((64, 4096, 1 << 22), trial)


@fact(
    "early store of `T - mean(T)`",
    "refused: nvFuser copies it by a kernel of its own, as all that comes after a broadcast",
)
def without_its_mean() -> str:
    def trial(shape: tuple[int, ...], dims: list[int]) -> str:
        x = ramp(*shape)
        expected = x - x.mean(dims, keepdim=True)

        def build(fd: Any, t: Any) -> None:
            mean = fd.ops.div(fd.ops.sum(t, dims=dims), float(torch.Size([shape[d] for d in dims]).numel()))
            wide = fd.ops.broadcast(mean, [d in dims for d in range(len(shape))])
            fd.add_output(fd.ops.sub(t, wide), t)

        run(build, [x])
        return "right" if torch.allclose(x, expected, atol=1e-3) else "**wrong**"

    cases = [((8192, 8192), [1]), ((8, 300000), [1]), ((8192, 8192), [0]), ((300000, 8), [0]), ((4096, 4096), [0, 1])]
    found = {f"{a}x{b} over {dims}": [trial((a, b), dims) for _ in range(5)].count("right") for (a, b), dims in cases}
    return ", ".join(f"{name}: right {count} of 5" for name, count in found.items())


@fact("early store of `T + 1`, `set(T)` returned", "refused: a copy of the target may be the target")
def pre_image() -> str:
    x = ramp(64)
    expected = x.clone()

    def build(fd: Any, t: Any) -> None:
        fd.add_output(fd.ops.set(t))
        fd.add_output(fd.ops.set(fd.ops.add(t, 1.0)), t)

    (out,) = run(build, [x])
    shared = out.untyped_storage()._cdata == x.untyped_storage()._cdata
    return f"{right((out, expected))}{', the output is the input itself' if shared else ''}"


@fact("sum over a dimension of size 1, returned", "the host copies outputs that share memory with an input")
def reduction_that_moves() -> str:
    x = ramp(1, 5)
    (out,) = run(lambda fd, t: fd.add_output(fd.ops.sum(t, dims=[0])), [x])
    shared = out.untyped_storage()._cdata == x.untyped_storage()._cdata
    return f"{right((out, x.sum(0)))}, {'the input itself' if shared else 'memory of its own'}"


@fact("two copies of one computed value returned", "the host copies outputs that share memory with another output")
def outputs_that_share() -> str:
    def build(fd: Any, t: Any) -> None:
        made = fd.ops.add(t, 1.0)
        fd.add_output(fd.ops.set(made))
        fd.add_output(fd.ops.permute(made, [1, 0]))

    first, second = run(build, [ramp(8, 4)])
    return "they share memory" if first.untyped_storage()._cdata == second.untyped_storage()._cdata else "apart"


@fact("early store of a broadcast value", "refused: the compiler would raise")
def broadcast_value() -> str:
    value, target = ramp(4), ramp(3, 4)

    def build(fd: Any, v: Any, t: Any) -> None:
        fd.add_output(fd.ops.set(fd.ops.broadcast_in_dim(v, [3, 4], [1])), t)

    run(build, [value, target])
    return right((target, value.expand(3, 4)))


@fact("early store to an expanded input", "refused: targets have to be dense")
def expanded_target() -> str:
    base = ramp(4)
    expected = base + 1
    run(lambda fd, t: fd.add_output(fd.ops.set(fd.ops.add(t, 1.0)), t), [base.expand(3, 4)])
    return f"{right((base, expected))}: the write is {'lost' if torch.equal(base, ramp(4)) else 'made'}"


@fact("float32 value stored early to a float16 input", "values are cast first")
def other_dtype() -> str:
    x = ramp(8).half()
    expected = x + 1
    run(lambda fd, t: fd.add_output(fd.ops.cast(fd.ops.add(t, 1.0), _dtype("Float")), t), [x])
    return right((x, expected))


def _dtype(name: str) -> Any:
    from nvfuser_direct import DataType

    return getattr(DataType, name)


@fact("one value stored early to two inputs", "each store gets a `set` of its own")
def two_targets() -> str:
    a, b = ramp(8), ramp(8) * 2
    expected = a + b

    def build(fd: Any, x: Any, y: Any) -> None:
        made = fd.ops.add(x, y)
        fd.add_output(fd.ops.set(made), x)
        fd.add_output(fd.ops.set(made), y)

    run(build, [a, b])
    return right((a, expected), (b, expected))


@fact("two inputs that overlap, one stored early", "refused: another input overlaps the target")
def overlapping_inputs() -> str:
    def trial(n: int) -> str:
        base = ramp(n + 1)
        low, high = base[:-1], base[1:]
        expected = high * 2

        def build(fd: Any, x: Any, y: Any) -> None:
            fd.add_output(fd.ops.set(fd.ops.add(x, 1.0)), x)
            fd.add_output(fd.ops.mul(y, 2.0))

        (out,) = run(build, [low, high])
        return right((out, expected))

    return at_sizes((8, 1 << 20), trial)


@fact("`T + S` returned, `T + 10` stored early to T; S is the same memory", "refused: S may be loaded after the store")
def two_names() -> str:
    def trial(n: int) -> str:
        x = ramp(n)
        expected = (x * 2, x + 10)

        def build(fd: Any, t: Any, s: Any) -> None:
            fd.add_output(fd.ops.add(t, s))
            fd.add_output(fd.ops.add(t, 10.0), t)

        (out,) = run(build, [x, x.view(-1)])
        return right((out, expected[0]), (x, expected[1]))

    return at_sizes((8, 4096, 1 << 20), trial)


@fact("`T + 1` returned, `S * 2` stored early to T", "refused: T may be loaded after the store")
def loaded_late() -> str:
    def trial(n: int) -> str:
        x, y = ramp(n), ramp(n) * 3
        expected = (x + 1, y * 2)

        def build(fd: Any, t: Any, s: Any) -> None:
            fd.add_output(fd.ops.mul(s, 2.0), t)
            fd.add_output(fd.ops.add(t, 1.0))

        (out,) = run(build, [x, y])
        return right((out, expected[0]), (x, expected[1]))

    return at_sizes((8, 4096, 1 << 20), trial)


@fact("`set(T + 1)` returned, `T + 1` stored early", "a value leaves as it is only if no copy of it does")
def beside_its_copy() -> str:
    def build(fd: Any, t: Any) -> None:
        made = fd.ops.add(t, 1.0)
        fd.add_output(fd.ops.set(made))
        fd.add_output(made, t)

    x = ramp(64)
    expected = x + 1
    made = run(build, [x])
    return f"{len(made)} of 1 outputs handed out, the store is {right((x, expected))}"


@fact(
    "a bool cast to bfloat16, from which more is computed in float32", "where the compiler fails, calls run one by one"
)
def cast_twice() -> str:
    from nvfuser_direct import DataType

    x = ramp(3) > 0

    def build(fd: Any, t: Any) -> None:
        half = fd.ops.cast(t, DataType.BFloat16)
        a, b = fd.ops.cast(half, DataType.Float), fd.ops.cast(half, DataType.Float)
        fd.add_output(fd.ops.cast(fd.ops.add(a, fd.ops.mul(fd.ops.sub(b, a), 0.0)), DataType.BFloat16))

    (out,) = run(build, [x])
    return right((out, x.to(torch.bfloat16)))


@fact("sum over the rows of a product of two broadcasts", "likewise")
def sum_of_broadcasts() -> str:
    def trial(n: int) -> str:
        x, y = ramp(2, n), ramp(2, n) + 31

        def build(fd: Any, a: Any, b: Any) -> None:
            wide = fd.ops.mul(fd.ops.broadcast(a, [True, False, False]), fd.ops.broadcast(b, [False, True, False]))
            fd.add_output(fd.ops.sum(wide, dims=[2]))

        (out,) = run(build, [x, y])
        return right((out, (x * y[:, None]).sum(2)))

    return _by_outcome({n: _tried(partial(trial, n)) for n in (3, 4, 5, 8, 33)})


@fact("`slice` by a step", "left to the host")
def stepped_slice() -> str:
    (out,) = run(lambda fd, t: fd.add_output(fd.ops.slice(t, [0], [8], [2])), [ramp(8)])
    return right((out, ramp(8)[::2]))


@fact("`index_select` of an `index_select`, then `where`", "not used")
def nested_selects() -> str:
    index = torch.arange(4096, device="cuda")

    def build(fd: Any, t: Any, i: Any) -> None:
        once = fd.ops.index_select(t, i, 0)
        twice = fd.ops.index_select(fd.ops.add(once, 1.0), i, 0)
        fd.add_output(fd.ops.where(fd.ops.lt(fd.ops.iota(4096), 100), twice, t))

    (out,) = run(build, [ramp(4096), index])
    return right((out, torch.where(index < 100, ramp(4096) + 1, ramp(4096))))


@fact("a part moved over another in one fusion (slice, pad, `where`)", "left to the host")
def moved_part() -> str:
    def trial(offset: int) -> str:
        x = ramp(60 + offset)[offset:].view(3, 5, 4)
        expected = x + 2
        expected[:2] = (x + 2)[1:]

        def build(fd: Any, t: Any) -> None:
            made = fd.ops.add(t, 2.0)
            part = fd.ops.pad(fd.ops.reshape(fd.ops.slice(made, [1, 0, 0], [3, 5, 4]), [40]), [0, 20])
            found = fd.ops.where(fd.ops.lt(fd.ops.iota(60), 40), part, fd.ops.reshape(made, [60]))
            fd.add_output(fd.ops.neg(fd.ops.reshape(found, [3, 5, 4])))

        (out,) = run(build, [x])
        return right((out, -expected))

    return ", ".join(f"input offset {offset}: {trial(offset)}" for offset in (0, 1, 4))


@fact("a slice at an odd offset between kernels", "refused: slices of computed values begin at multiples of 16 bytes")
def odd_slice() -> str:
    x = ramp(2)

    def build(fd: Any, t: Any) -> None:
        made = fd.ops.neg(t)
        last = fd.ops.broadcast(fd.ops.squeeze(fd.ops.slice(made, [1], [2]), [0]), [True])
        found = fd.ops.where(fd.ops.eq(fd.ops.iota(2), 1), fd.ops.neg(last), made)
        fd.add_output(fd.ops.sum(found))
        fd.add_output(made)

    total, _ = run(build, [x])
    return right((total, -x[0] + x[1]))


@fact("`amax` over a broadcast dimension", "refused")
def reduced_broadcast() -> str:
    x = ramp(3)

    def build(fd: Any, t: Any) -> None:
        spread = fd.ops.broadcast_in_dim(fd.ops.add(t, 1.0), [3, 3], [1])
        fd.add_output(fd.ops.max(spread, dims=[0]))
        fd.add_output(fd.ops.add(t, 1.0))

    out, _ = run(build, [x])
    return right((out, x + 1))


@fact(
    "sum and maximum of the same few elements",
    "only reductions of the first kind are taken",
)
def two_reductions() -> str:
    def trial(n: int) -> str:
        def build(fd: Any, t: Any) -> None:
            fd.add_output(fd.ops.sum(t, dims=[0]))
            fd.add_output(fd.ops.max(t, dims=[0]))

        return _tried(lambda: right(*zip(run(build, [ramp(n)]), (ramp(n).sum(), ramp(n).max()), strict=True)))

    return _by_outcome({n: trial(n) for n in (2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65)})


@fact("the same, over rows and columns", "refused likewise")
def two_reductions_of_many() -> str:
    def trial(shape: tuple[int, int], dim: int) -> str:
        x = ramp(*shape)

        def build(fd: Any, t: Any) -> None:
            fd.add_output(fd.ops.sum(t, dims=[dim]))
            fd.add_output(fd.ops.max(t, dims=[dim]))

        return _tried(lambda: right(*zip(run(build, [x]), (x.sum(dim), x.amax(dim)), strict=True)))

    shapes = [
        ((n, m), dim) for n, m in ((2, 2), (3, 3), (4, 33), (33, 4), (8, 8), (300, 3), (3, 300)) for dim in (0, 1)
    ]
    return _by_outcome({f"{n}x{m} over {dim}": trial((n, m), dim) for (n, m), dim in shapes})


@fact("an element picked from a computed value and spread beside it", "picks of computed values are left to the host")
def picked_and_spread() -> str:
    def trial(n: int) -> str:
        def build(fd: Any, t: Any) -> None:
            made = fd.ops.add(t, 10.0)
            first = fd.ops.squeeze(fd.ops.slice(made, [0], [1]), [0])
            fd.add_output(fd.ops.sub(fd.ops.broadcast(first, [True]), made))

        return _tried(lambda: right((run(build, [ramp(n)])[0], ramp(n)[:1] - ramp(n))))

    return _by_outcome({n: trial(n) for n in (2, 33, 4096)})


@fact("the same of an input", "picks of inputs are made by the host, which costs nothing")
def picked_input() -> str:
    def build(fd: Any, t: Any) -> None:
        first = fd.ops.squeeze(fd.ops.slice(t, [0], [1]), [0])
        fd.add_output(fd.ops.sub(fd.ops.broadcast(first, [True]), t))

    return _tried(lambda: right((run(build, [ramp(33)])[0], ramp(33)[:1] - ramp(33))))


@fact("a slice of what is computed from constants alone", "parts of what may be a broadcast are left to the host")
def sliced_constants() -> str:
    def trial(shape: tuple[int, ...], stop: int) -> str:
        def build(fd: Any, t: Any) -> None:
            zeros = fd.ops.full(list(shape), 0.0, _dtype("Float"))
            made = fd.ops.mul(zeros, zeros)
            part = fd.ops.slice(made, [0] * len(shape), [stop, *shape[1:]])
            fd.add_output(fd.ops.set(made))
            fd.add_output(fd.ops.add(part, 1.0))

        wanted = torch.zeros(shape, device="cuda")
        return _tried(lambda: right(*zip(run(build, [ramp(4)]), (wanted, wanted[:stop] + 1), strict=True)))

    return _by_outcome(
        {f"{shape}, first {stop}": trial(shape, stop) for shape, stop in (((4, 3), 3), ((8,), 4), ((8,), 1))}
    )


@fact("`where` of the number False and a bool", "such results are cast")
def where_of_bools() -> str:
    x = ramp(4) > 0
    (out,) = run(lambda fd, t: fd.add_output(fd.ops.where(t, False, t)), [x])  # noqa: FBT003
    return f"result is {out.dtype}"


@fact("signs of `neg(0)`, `abs(0)`, `abs(-0)`, `abs(0) + 0` (eager: -, +, +, +)", "0 is added to what `abs` gives")
def signs_of_zero() -> str:
    def sign(build: Callable[[Any, Any], Any], zero: float = 0.0) -> str:
        x = torch.full((4,), zero, device="cuda")
        (out,) = run(lambda fd, t: fd.add_output(build(fd, t)), [x])
        return "-" if torch.signbit(out).all() else "+"

    return ", ".join([
        sign(lambda fd, t: fd.ops.neg(t)),
        sign(lambda fd, t: fd.ops.abs(t)),
        sign(lambda fd, t: fd.ops.abs(t), -0.0),
        sign(lambda fd, t: fd.ops.add(fd.ops.abs(t), 0.0)),
    ])  # fmt: skip


@fact(
    "host evaluation (`fd.validate`) of the part moved over another",
    "the second oracle of `pipeline:nvfuser:validated`",
)
def validated_part() -> str:
    from nvfuser_direct import FusionDefinition

    x = ramp(3, 5, 4)
    with FusionDefinition() as fd:
        made = fd.ops.add(fd.from_pytorch(x), 2.0)
        part = fd.ops.pad(fd.ops.reshape(fd.ops.slice(made, [1, 0, 0], [3, 5, 4]), [40]), [0, 20])
        found = fd.ops.where(fd.ops.lt(fd.ops.iota(60), 40), part, fd.ops.reshape(made, [60]))
        fd.add_output(fd.ops.neg(fd.ops.reshape(found, [3, 5, 4])))
    try:
        fd.validate([x])
    except RuntimeError as error:
        return "differs from the kernel's" if "Validation error in output" in str(error) else "fails"
    return "no difference seen"


@fact("host evaluation of complex numbers, and of `logical_or` of doubles", "passed over")
def validated_complex() -> str:
    from nvfuser_direct import FusionDefinition

    def trial(x: torch.Tensor, build: Callable[[Any, Any], Any]) -> str:
        with FusionDefinition() as fd:
            fd.add_output(build(fd, fd.from_pytorch(x)))
        return "right" if len(fd.validate([x])) == 1 else "no output"

    return ", ".join([
        _tried(lambda: trial(ramp(4).to(torch.complex64), lambda fd, t: fd.ops.add(t, 1.0))),
        _tried(lambda: trial(ramp(4).double(), lambda fd, t: fd.ops.logical_or(fd.ops.ne(t, 0.0), fd.ops.ne(t, 0.0)))),
    ])  # fmt: skip


@fact("`pad` of bool", "left to the host")
def padded_bool() -> str:
    x = ramp(4) > 0
    (out,) = run(lambda fd, t: fd.add_output(fd.ops.pad(t, [1, 1])), [x])
    return right((out, torch.nn.functional.pad(x.int(), [1, 1]).bool()))


@fact("float16 `add`", "results are cast after each operator")
def half_add() -> str:
    (out,) = run(lambda fd, t: fd.add_output(fd.ops.add(t, t)), [ramp(8).half()])
    return f"result is {out.dtype}"


@fact("`x * y + z` on arbitrary float32 against eager", "fma is switched off, so that eager's rounding is kept")
def contraction() -> str:
    x, y, z = (torch.randn(1 << 16, device="cuda") for _ in range(3))
    (out,) = run(lambda fd, a, b, c: fd.add_output(fd.ops.add(fd.ops.mul(a, b), c)), [x, y, z])
    return "bit for bit equal" if torch.equal(out, x * y + z) else "differs in the last bits"


@fact("uint8, int8, int16 inputs", "left to the host")
def small_integers() -> str:
    return ", ".join(f"{t}: {_tried(partial(_identity, t))}" for t in (torch.uint8, torch.int8, torch.int16))


def _identity(dtype: torch.dtype) -> str:
    x = ramp(4).to(dtype)
    return right((run(lambda fd, t: fd.add_output(fd.ops.set(t)), [x])[0], x))


@fact("expanded input (stride 0)", "allowed")
def expanded_input() -> str:
    x = ramp(4).expand(3, 4)
    (out,) = run(lambda fd, t: fd.add_output(fd.ops.add(t, 1.0)), [x])
    return right((out, x + 1))


@fact("input whose elements overlap (a window)", "allowed")
def window_input() -> str:
    x = ramp(8).unfold(0, 3, 1)
    (out,) = run(lambda fd, t: fd.add_output(fd.ops.add(t, 1.0)), [x])
    return right((out, x + 1))


@fact("time to compile 1 and 20 pointwise operators", "fusions are kept for the whole process, by structure")
def compile_time() -> str:
    def chain(count: int) -> float:
        def build(fd: Any, t: Any) -> None:
            for _ in range(count):
                t = fd.ops.sin(t)
            fd.add_output(t)

        start = time.perf_counter()
        run(build, [ramp(count * 100)])
        return time.perf_counter() - start

    chain(3)
    return f"{chain(1):.2f} s, {chain(20):.2f} s"


def _by_outcome(found: dict[Any, str]) -> str:
    """Outcomes, each with what had it."""
    return "; ".join(
        f"{', '.join(str(what) for what, it in found.items() if it == outcome)}: {outcome}"
        for outcome in dict.fromkeys(found.values())
    )


def _tried(run: Experiment) -> str:
    try:
        return run()
    except Exception as error:  # noqa: BLE001 - that it raises is the outcome
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = next((line for line in lines if line.startswith("Expected")), lines[0] if lines else "")
        return f"{type(error).__name__}: {said[:150]}".replace("|", "/")


def outcomes(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each experiment's outcome, found in a process of its own, several at once."""
    lacking = unavailable()
    if lacking:
        yield from ((name, f"not run: {lacking}") for name in names)
        return
    command = [sys.executable, "-m", "benchmarks.nvfuser_facts", "--run"]
    running = [(n, subprocess.Popen([*command, n], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)) for n in names]
    until = time.monotonic() + SECONDS
    for name, process in running:
        try:
            text = process.communicate(timeout=max(until - time.monotonic(), 0.1))[0].decode()
            found = text.rpartition("outcome: ")[2].strip() if "outcome: " in text else ""
            yield name, found or f"the process ended with exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            yield name, f"**hangs**: no result within {SECONDS:g} s"


def unavailable() -> str:
    """Why nothing can be run here; empty if it can."""
    from executor.backends.nvfuser.loading import nvfuser
    from executor.errors import TargetError

    try:
        nvfuser()
    except TargetError as error:
        return str(error)
    return ""


def table(names: Sequence[str]) -> str:
    """The outcomes as a table."""
    where = f"{torch.cuda.get_device_name()}, torch {torch.__version__}" if torch.cuda.is_available() else "no GPU"
    rows = [f"| {name} | {found} | {EXPERIMENTS[name][1]} |" for name, found in outcomes(names)]
    return "\n".join(
        [f"On: {where}.", "", "| experiment | outcome | what the backend does |", "| --- | --- | --- |", *rows]
    )


def main() -> None:
    """Prints the table, or writes it into a document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--run")
    options = parser.parse_args()
    if options.run:
        print(f"outcome: {_tried(EXPERIMENTS[options.run][0])}", flush=True)
        return
    text = table([name for name in EXPERIMENTS if options.only in name])
    print(text)
    if options.write:
        before, _, rest = options.write.read_text().partition(BEGIN)
        options.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
