"""The targets: each does what eager does on small aliasing programs, leaves the process as it was, and says what it can't."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from executor import printing, targets
from executor.errors import TargetError
from executor.limits import Limits
from executor.schema import resolve
from executor.targets.base import Adapter, Target
from executor.tracing import trace

Tensors = tuple[torch.Tensor, ...]
Build = Callable[[], Tensors]

RIGHT = ("null", "pipeline:eager", "aot_eager", "functionalize", pytest.param("thunder", marks=pytest.mark.thunder))


def matrix() -> torch.Tensor:
    return torch.arange(12.0).view(3, 4)


def one() -> Tensors:
    return (matrix(),)


def two() -> Tensors:
    return matrix(), matrix() + 20


def rows() -> Tensors:
    x = matrix()
    return x[0], x[2]


def whole_and_row() -> Tensors:
    x = matrix()
    return x, x[1]


def same_twice() -> Tensors:
    x = matrix()
    return x, x


def view_of_fresh(a: torch.Tensor) -> Any:
    y = a + 1
    y[1].mul_(3)
    return y, y[:, 1]


def write_through_a_view(a: torch.Tensor) -> Any:
    a[:, 1:3].mul_(2)
    return a.sum(0)


def write_a_transpose(a: torch.Tensor) -> Any:
    a.t().add_(1)
    return a * 2


def copy_between_rows(a: torch.Tensor) -> Any:
    a[0].copy_(a[2])
    return a[0] + a[1]


def write_both(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.add_(b)
    b.sub_(1)
    return a * b


def write_whole_and_part(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.mul_(2)
    b.add_(1)
    return a.sum(0), b * 3


def read_then_write(a: torch.Tensor) -> Any:
    before = a + 0
    a.zero_()
    return before, a + 1


def write_a_diagonal(a: torch.Tensor) -> Any:
    y = a.clone()
    y.diagonal().mul_(-1)
    return y


def return_a_view(a: torch.Tensor) -> Any:
    return a[1], a.t()


def same_result_twice(a: torch.Tensor) -> Any:
    y = a.neg()
    return y, y


def scatter(a: torch.Tensor) -> Any:
    a.index_put_((torch.tensor([2, 0]),), a[:2] * 10)
    return a.flip(0)


PROGRAMS: list[tuple[Callable[..., Any], Build]] = [
    (view_of_fresh, one), (write_through_a_view, one), (write_a_transpose, one), (copy_between_rows, one),
    (write_both, two), (read_then_write, one), (write_a_diagonal, one), (return_a_view, one), (same_result_twice, one),
    (scatter, one),
]  # fmt: skip


def prepared(name: str, fn: Callable[..., Any], build: Build) -> tuple[Target, Callable[..., Any]]:
    target, program = targets.get(name), trace(fn, *build())
    assert target.limits.refuse(program) is None
    return target, target.compile(printing.load(program), build())


def layout(results: Any, inputs: Tensors) -> list[Any]:
    """Where results and inputs lie: values, strides, offsets and who shares storages or is the same object."""
    leaves = [*(results if isinstance(results, tuple) else (results,)), *inputs]
    homes = [leaf.untyped_storage()._cdata for leaf in leaves]
    return [
        (leaf.tolist(), leaf.stride(), leaf.storage_offset(), homes.index(home), list(map(id, leaves)).index(id(leaf)))
        for leaf, home in zip(leaves, homes, strict=True)
    ]


def agree(compiled: Callable[..., Any], fn: Callable[..., Any], build: Build) -> bool:
    ours, theirs = build(), build()
    return layout(compiled(*ours), ours) == layout(fn(*theirs), theirs)


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize(("fn", "build"), PROGRAMS, ids=[fn.__name__ for fn, _ in PROGRAMS])
def test_small_aliasing_programs_do_what_eager_does(name: str, fn: Callable[..., Any], build: Build) -> None:
    compiled = prepared(name, fn, build)[1]
    assert agree(compiled, fn, build)
    assert agree(compiled, fn, build)


@pytest.mark.parametrize("name", ["null", "pipeline:eager", "aot_eager"])
def test_aliased_inputs_and_a_later_call_with_another_pattern(name: str) -> None:
    assert agree(prepared(name, write_whole_and_part, whole_and_row)[1], write_whole_and_part, whole_and_row)
    compiled = prepared(name, write_both, same_twice)[1]
    for build in (same_twice, two, same_twice):
        assert agree(compiled, write_both, build)


def test_functionalize_is_right_on_inputs_that_share_a_storage_without_overlap() -> None:
    assert agree(prepared("functionalize", write_both, rows)[1], write_both, rows)


@pytest.mark.parametrize(
    ("fn", "build", "reason"),
    [
        (write_whole_and_part, whole_and_row, "inputs a and b overlap"),
        (lambda a: a.neg_(), one, "an output lies on the storage of input a, which is written"),
        (lambda a: a.as_strided((2, 2), (1, 1)) + 0, one, "a result of aten.as_strided.default overlaps itself"),
    ],
)
def test_functionalize_refuses_what_its_documentation_does_not_promise(
    fn: Callable[..., Any], build: Build, reason: str
) -> None:
    assert targets.get("functionalize").limits.refuse(trace(fn, *build())) == reason


@pytest.mark.thunder
def test_thunders_bug_of_two_views_with_equal_counts_shows() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(b)
        return a - b

    ours = rows()
    assert prepared("thunder", fn, rows)[1](*ours).tolist() == [0.0] * 4  # it takes b for a
    assert fn(*rows()).tolist() == [0, 1, 2, 3]


@pytest.mark.thunder
def test_thunder_counts_its_barriers() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        a.tanh_()
        return a.mul(a)

    for body, positive in ((fn, True), (lambda a: a.mul(a), False)):
        target, compiled = prepared("thunder", body, one)
        compiled(*one())
        assert (target.metrics(compiled)["barriers"] > 0) is positive


@pytest.mark.thunder
def test_thunders_stubs_are_gone_after_its_import() -> None:
    missing = [name for name in ("rename", "has_names", "align_as") if name not in dir(torch._C.TensorBase)]
    assert targets.get("thunder").name == "thunder"
    assert not any(hasattr(torch.Tensor, name) for name in missing)


def argument(kind: str, name: str) -> Any:
    """Some argument of this schema type that the in-place operators below take."""
    if kind == "Tensor":
        return torch.tensor([1, 0]) if name == "index" else torch.ones(()) if name == "value" else torch.ones(2, 2)
    if kind == "Optional[str]":
        return "floor"
    return 0 if name in ("dimension", "dim") else 1


def call_of(op: str) -> tuple[Callable[..., Any], Tensors]:
    """A function that calls this operator, and its tensors."""
    overload = resolve(op)
    needed = [a for a in overload._schema.arguments if not a.has_default_value()]
    arguments = [argument(str(a.type), a.name) for a in needed if not a.kwarg_only]
    kwargs: dict[str, Any] = {a.name: "floor" for a in overload._schema.arguments if a.name == "rounding_mode"}
    if op.endswith(".out"):
        return (lambda *given: overload(*given[:-1], out=given[-1])), (*arguments, arguments[0].clone())
    if "_foreach_" in op:
        return _foreach(overload, [str(a.type) for a in needed])
    integral, complex_ = "shift" in op or "and_" in op or "or_" in op, "conj" in op
    dtype = torch.int64 if integral else torch.complex64 if complex_ else torch.float32
    tensors = tuple(a if a.ndim == 1 else a.to(dtype) for a in arguments if isinstance(a, torch.Tensor))

    def fn(*given: torch.Tensor) -> Any:
        left = list(given)
        return overload(*[left.pop(0) if isinstance(a, torch.Tensor) else a for a in arguments], **kwargs)

    return fn, tensors


def _foreach(overload: Any, types: list[str]) -> tuple[Callable[..., Any], Tensors]:
    """A function that calls an operator on lists of one tensor each, and a number if it takes one."""
    lists = types.count("List[Tensor]")
    numbers = [1] * (len(types) - lists)

    def fn(*given: torch.Tensor) -> Any:
        return overload(*[[tensor] for tensor in given], *numbers)

    return fn, tuple(torch.ones(3) for _ in range(lists))


def bans(name: str) -> list[str]:
    module = pytest.importorskip(f"executor.targets.{name}")
    return sorted(module._BANNED)


@pytest.mark.thunder
@pytest.mark.parametrize("op", bans("thunder"))
def test_thunder_refuses_what_is_banned_for_it(op: str) -> None:
    target = targets.get("thunder")
    fn, tensors = call_of(op)
    program = trace(fn, *tensors)
    assert [call.op for call in program.calls] == [op]
    assert target.limits.refuse(program) == f"{op} is not supported"
    with pytest.raises((NotImplementedError, AttributeError, TypeError)) as error:
        target.compile(printing.load(program), tensors)(*tensors)
    assert target.refusal(error.value) is not None


@pytest.mark.parametrize("op", bans("functionalize"))
def test_functionalize_refuses_what_is_banned_for_it(op: str) -> None:
    target = targets.get("functionalize")
    fn, tensors = call_of(op)
    with pytest.raises(RuntimeError) as error:
        target.compile(fn, tensors)(*tensors)
    assert str(target.refusal(error.value)).startswith("Found a custom (non-ATen) operator whose output has alias")


def test_functionalize_refuses_a_write_through_as_strided_of_a_view() -> None:
    target = targets.get("functionalize")
    tensors = [torch.zeros(3)]
    with pytest.raises(RuntimeError) as error:
        target.compile(lambda a: a[1:].as_strided([1], [1], 0).add_(1), tensors)(*tensors)
    assert "where view 1 was an as_strided() call" in str(target.refusal(error.value))


def test_functionalize_refuses_to_resize_a_view_to_a_larger_size() -> None:
    target = targets.get("functionalize")
    tensors = [torch.zeros(3)]
    with pytest.raises(RuntimeError) as error:
        target.compile(lambda a: a[1:].resize_(9).add_(1), tensors)(*tensors)
    assert target.refusal(error.value) == "Attempted to resize a view tensor to a larger size"


@pytest.mark.thunder
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "complex64", "uint16"])
def test_thunder_takes_the_dtypes_that_it_has(dtype: str) -> None:
    program = trace(lambda a: a[1:], torch.zeros(3, dtype=getattr(torch, dtype)))
    target = targets.get("thunder")
    compiled = target.compile(printing.load(program), ())
    if target.limits.refuse(program) is None:
        assert compiled(torch.ones(3, dtype=getattr(torch, dtype))).tolist() == [1, 1]
    else:
        with pytest.raises(Exception, match=r"KeyError: torch\.uint16"):
            compiled(torch.ones(3, dtype=torch.uint16))


@pytest.mark.parametrize("name", ["functionalize", "aot_eager", pytest.param("thunder", marks=pytest.mark.thunder)])
def test_a_crash_is_no_refusal(name: str) -> None:
    target = targets.get(name)
    assert target.refusal(RuntimeError("Attempting to reshape a.shape=(4,)")) is None
    assert target.refusal(AttributeError("'NoneType' object has no attribute 'x'")) is None


def test_aot_eager_compiles_anew_past_dynamos_recompile_limit() -> None:
    compiled = prepared("aot_eager", write_through_a_view, one)[1]
    limit = torch._dynamo.config.recompile_limit
    for columns in range(3, 3 + limit + 2):

        def wider(n: int = columns) -> Tensors:
            return (torch.arange(2.0 * n).view(2, n),)

        assert agree(compiled, write_through_a_view, wider)
    assert torch._dynamo.config.recompile_limit == limit


def shape_environments() -> int:
    gc.collect()
    return sum(type(found).__name__ == "ShapeEnv" for found in gc.get_objects())


def test_aot_eager_keeps_nothing_of_earlier_programs() -> None:
    target = targets.get("aot_eager")
    for _ in range(2):
        assert agree(prepared("aot_eager", write_both, rows)[1], write_both, rows)
    target.reset()
    before = shape_environments()
    for _ in range(4):
        prepared("aot_eager", write_both, rows)[1](*rows())
    leaked = shape_environments() - before
    target.reset()
    assert shape_environments() <= before
    assert leaked > 0  # else torch no longer needs `torch_memory`


@pytest.mark.slow
def test_inductor() -> None:
    for fn, build in PROGRAMS[:3]:
        assert agree(prepared("inductor", fn, build)[1], fn, build)


STATE = """
import os, random, sys, threading
import torch
from executor import printing, targets
from executor.tracing import trace

def state():
    return {
        "grad": torch.is_grad_enabled(), "dtype": torch.get_default_dtype(), "rng": torch.get_rng_state().tolist(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()), "python rng": random.getstate(),
        "deterministic": torch.are_deterministic_algorithms_enabled(), "matmul": torch.get_float32_matmul_precision(),
        "hooks": (sys.excepthook, sys.displayhook, sys.gettrace()), "recursion": sys.getrecursionlimit(),
        "names": sorted(set(dir(torch.Tensor))), "filters": list(__import__("warnings").filters),
    }

def fn(a, b):
    a.add_(b)
    return a * 2

def inputs():
    x = torch.arange(8.0)
    return x[:4], torch.ones(4)

program = trace(fn, *inputs())
before = state()
for name in sys.argv[1:]:
    compiled = targets.get(name).compile(printing.load(program), inputs())
    assert compiled(*inputs()).tolist() == [2, 4, 6, 8], name
    targets.get(name).reset()
    for key, value in state().items():
        assert value == before[key], (name, key)
sys.exit(17)
"""


def test_targets_print_nothing_and_leave_the_process_as_it_was() -> None:
    names = ["null", "pipeline:eager", "functionalize", "aot_eager"]
    names += ["thunder"] if find_spec("thunder") else []
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", STATE, *names],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (17, "", "")


@pytest.mark.parametrize("name", [*RIGHT, "pipeline"])
def test_scripts_compile_a_function_named_program(name: str) -> None:
    target = targets.get(name)
    lines = target.script()
    namespace: dict[str, Any] = {"program": printing.load(trace(write_both, *two()))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("\n".join(lines), namespace)  # noqa: S102 - what the target says a script does
        assert agree(namespace["compiled"], write_both, two)
    ours = "aliasfuzz" in "".join(lines)
    assert ours is name.startswith("pipeline")


def test_versions_name_torch_and_the_compiler() -> None:
    assert targets.versions(targets.get("aot_eager")) == {"torch": torch.__version__}


@pytest.mark.thunder
def test_versions_of_thunder() -> None:
    assert targets.versions(targets.get("thunder")).keys() == {"torch", "lightning-thunder"}


def test_names_lists_all_and_get_returns_the_same_object() -> None:
    assert {"null", "pipeline:eager", "aot_eager", "inductor", "functionalize", "thunder"} <= set(targets.names())
    assert targets.DEFAULT in targets.names()
    for name in ("null", "aot_eager"):
        assert targets.get(name) is targets.get(name)
        assert targets.get(name).name == name


def test_an_unknown_target_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TargetError, match=r"there is no target 'tunder'; there are null, .*aot_eager.*thunder"):
        targets.get("tunder")


@pytest.fixture
def fresh() -> Iterator[None]:
    targets.get.cache_clear()
    yield
    targets.get.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_a_target_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "thunder", None)
    with pytest.raises(TargetError, match=r"needs lightning-thunder: pip install 'aliasfuzz\[thunder\]'"):
        targets.get("thunder")


THIRD_PARTY = """
from executor.limits import Limits

class Plain:
    name = "plain"
    def compile(self, fn, example_args):
        return fn

class Picky(Plain):
    name = "picky"
    unsafe = True
    limits = Limits(aliased_inputs=False)
    def metrics(self, compiled):
        return {"kernels": 3}
    def script(self):
        return ["compiled = program"]

plain = Plain()
def make():
    return Picky()
def fail():
    raise OSError("no device")
class Nothing:
    name = "nothing"
"""

ENTRY_POINTS = """[aliasfuzz.targets]
plain = zz_party:plain
picky = zz_party:make
class = zz_party:Plain
broken = zz_missing:target
failing = zz_party:fail
nothing = zz_party:Nothing
null = zz_party:plain
"""


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: None) -> Iterator[Path]:
    del fresh
    (tmp_path / "zz_party.py").write_text(THIRD_PARTY)
    install(tmp_path, "party", ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("zz_party", None)


def install(folder: Path, package: str, points: str) -> None:
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


@pytest.mark.usefixtures("third_party")
def test_a_third_partys_target_gets_the_defaults() -> None:
    target = targets.get("plain")
    assert (target.name, target.unsafe, target.needs_source) == ("plain", False, True)
    assert target.limits == Limits(metadata_mutation=False, gradients=False)
    assert target.compile(len, ())([1]) == 1
    assert target.metrics(len) == {}
    assert target.versions() == {"torch": torch.__version__}
    assert target.refusal(NotImplementedError()) is None
    target.reset()
    with pytest.raises(TargetError, match="target 'plain' says no way to use it from a script"):
        target.script()


@pytest.mark.usefixtures("third_party")
def test_what_a_third_partys_target_has_is_used() -> None:
    target = targets.get("picky")
    assert (target.unsafe, target.limits.aliased_inputs, target.metrics(len)) == (True, False, {"kernels": 3})
    assert target.script() == ["compiled = program"]


@pytest.mark.usefixtures("third_party")
def test_a_broken_entry_point_is_named_and_hides_no_other() -> None:
    assert {"broken", "plain", "picky"} <= set(targets.names())
    with pytest.raises(
        TargetError,
        match=r"'broken' of the entry point 'zz_missing:target' of party cannot be loaded: "
        r"ModuleNotFoundError: No module named 'zz_missing'",
    ):
        targets.get("broken")
    with pytest.raises(TargetError, match=r"'failing' of the entry point .* cannot be loaded: OSError: no device"):
        targets.get("failing")
    with pytest.raises(TargetError, match=r"is no target: it needs a `name` \(a string\) and `compile"):
        targets.get("nothing")
    with pytest.raises(TargetError, match=r"'class' of .* calls itself 'plain': the names must agree"):
        targets.get("class")
    assert targets.get("plain").name == "plain"


@pytest.mark.usefixtures("third_party")
def test_our_own_targets_cannot_be_replaced() -> None:
    assert type(targets.get("null")).__module__ == "executor.targets.null"
    assert targets.names().count("null") == 1


def test_two_packages_that_claim_one_name_are_both_named(third_party: Path) -> None:
    install(third_party, "rival", "[aliasfuzz.targets]\nplain = zz_party:plain\n")
    with pytest.raises(
        TargetError, match=r"'plain' is claimed by .* of party and .* of rival|of rival and .* of party"
    ):
        targets.get("plain")


def test_adapt_takes_objects_and_leaves_targets_alone() -> None:
    null = targets.get("null")
    assert targets.adapt(null) is null

    class Mine:
        name = "mine"

        def compile(self, fn: Callable[..., Any], example_args: Any) -> Callable[..., Any]:
            del example_args
            return fn

    assert isinstance(targets.adapt(Mine()), Adapter)
    with pytest.raises(TargetError, match="is no target"):
        targets.adapt(object())


def test_without_a_compiler_inductor_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    del fresh
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(TargetError, match="Inductor needs a C\\+\\+ compiler, and no-such-compiler cannot be found"):
        targets.get("inductor")
