"""What calls read and write: the corrections of `schema_fixes`, each run once, and representative operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from executor.args import Arg, List, Ref
from executor.errors import ProgramError
from executor.interpreter import flatten
from executor.memory import allocate, to_bytes
from executor.program import Call, Program, Storage, Value
from executor.schema import accesses, bound, effects, op_name, resolve
from executor.schema_fixes import HIDDEN_VIEWS, HIDDEN_WRITES, OVERWRITES
from tests.overloads import CALLS as OVERLOADS
from tests.overloads import record

Arguments = dict[str, Any]


def batch_norm() -> Arguments:
    stats = {name: torch.full((3,), 0.5) for name in ("weight", "bias", "running_mean", "running_var")}
    return {"input": torch.arange(12.0).view(4, 3), **stats, "training": True, "momentum": 0.5, "eps": 1e-5}


def vector() -> torch.Tensor:
    return torch.arange(1.0, 7.0)


# Arguments for each operator that a table names.
CALLS: dict[str, Any] = {
    "aten.native_batch_norm.default": batch_norm,
    "aten._unsafe_view.default": lambda: {"self": vector(), "size": [2, 3]},
    "aten.dropout.default": lambda: {"input": vector(), "p": 0.5, "train": False},
    "aten._foreach_copy_.default": lambda: {"self": [vector(), vector()], "src": [vector() + 1, vector() + 2]},
    "aten._foreach_zero_.default": lambda: {"self": [vector(), vector()]},
    "aten.copy_.default": lambda: {"self": vector(), "src": vector() + 1},
    "aten.fill_.Scalar": lambda: {"self": vector(), "value": 7},
    "aten.fill_.Tensor": lambda: {"self": vector(), "value": torch.tensor(7.0)},
    "aten.zero_.default": lambda: {"self": vector()},
}
NEED_CUDA = {"aten.cudnn_batch_norm.default", "aten.miopen_batch_norm.default"}
NAMED = sorted({*HIDDEN_WRITES, *HIDDEN_VIEWS, *OVERWRITES})


def arguments(name: str) -> Arguments:
    if name in NEED_CUDA:
        pytest.skip(f"{name} runs on CUDA or ROCm devices only")
    found: Arguments = CALLS[name]()
    return found


def written(given: Arguments, call: Any) -> set[str]:
    """The names of the arguments whose bytes differ after `call`."""
    before = {name: [to_bytes(tensor) for tensor in flatten(arg)] for name, arg in given.items()}
    call()
    return {name for name, arg in given.items() if before[name] != [to_bytes(tensor) for tensor in flatten(arg)]}


def test_every_operator_that_the_tables_name_is_run() -> None:
    assert set(NAMED) == {*CALLS, *NEED_CUDA}


@pytest.mark.parametrize("name", NAMED)
def test_exactly_the_claimed_arguments_are_written(name: str) -> None:
    given = arguments(name)
    assert written(given, lambda: resolve(name)(**given)) == set(effects(name).writes)


@pytest.mark.parametrize("name", NAMED)
def test_a_result_shares_memory_exactly_where_a_view_or_a_write_is_claimed(name: str) -> None:
    given = arguments(name)
    homes = {tensor.untyped_storage()._cdata for arg in given.values() for tensor in flatten(arg)}
    results = flatten(resolve(name)(**given))
    shares = any(tensor.untyped_storage()._cdata in homes for tensor in results)
    in_place = bool(results) and name not in HIDDEN_WRITES and bool(effects(name).writes)
    assert shares == (effects(name).views or in_place)


@pytest.mark.parametrize("name", sorted(HIDDEN_WRITES))
def test_the_schema_hides_the_write(name: str) -> None:
    schema = resolve(name)._schema
    assert not any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    assert set(HIDDEN_WRITES[name]) <= {a.name for a in schema.arguments}


@pytest.mark.parametrize("name", sorted(HIDDEN_VIEWS))
def test_the_schema_hides_the_view(name: str) -> None:
    assert all(ret.alias_info is None for ret in resolve(name)._schema.returns)


@pytest.mark.parametrize("name", sorted(OVERWRITES))
def test_an_overwriting_operator_does_not_read_what_it_overwrites(name: str) -> None:
    outcomes = set()
    for start in (0.0, -5.0, float("nan")):
        given = arguments(name)
        for tensor in flatten(given["self"]):
            tensor.fill_(start)
        resolve(name)(**given)
        outcomes.add(tuple(to_bytes(tensor) for tensor in flatten(given["self"])))
    assert len(outcomes) == 1
    assert effects(name).only_written == {"self"}


def run_twice_from(start: float, op: str, *args: Any, **kwargs: Any) -> bytes:
    out = torch.full((3, 4), start)
    resolve(op)(*args, out=out, **kwargs)
    return to_bytes(out)


@pytest.mark.parametrize(("op", "args"), [
    ("aten.add.out", (torch.ones(3, 4), torch.ones(3, 4))),
    ("aten.eye.m_out", (3, 4)),
    ("aten.cat.out", ([torch.ones(3, 2), torch.ones(3, 2)], 1)),
    ("aten.mm.out", (torch.ones(3, 2), torch.ones(2, 4))),
    ("aten.scatter.value_out", (torch.ones(3, 4), 0, torch.zeros(1, 4, dtype=torch.int64), 5)),
])  # fmt: skip
def test_an_out_argument_is_written_and_not_read(op: str, args: tuple[Any, ...]) -> None:
    assert run_twice_from(0.0, op, *args) == run_twice_from(float("nan"), op, *args)
    assert effects(op).writes == effects(op).only_written == {"out"}


def program_of(storages: list[int]) -> Program:
    """Values with ten elements each, value i on storage `storages[i]`."""
    values = tuple(Value(storage, "float32", (10,), (1,)) for storage in storages)
    return Program((Storage(40),) * (max(storages) + 1), values, (), (), None)


REPRESENTATIVE: list[tuple[str, tuple[Arg, ...], dict[str, Arg], tuple[int, ...], tuple[int, ...]]] = [
    ("aten.add.Tensor", (Ref(0), Ref(1)), {"alpha": 2}, (0, 1), ()),
    ("aten.add.Tensor", (Ref(0), Ref(0)), {}, (0,), ()),
    ("aten.add.Tensor", (Ref(1), 2), {}, (1,), ()),
    ("aten.add_.Tensor", (Ref(0), Ref(1)), {}, (0, 1), (0,)),
    ("aten.add_.Tensor", (Ref(0), Ref(0)), {}, (0,), (0,)),
    ("aten.add.out", (Ref(0), Ref(1)), {"out": Ref(2)}, (0, 1), (2,)),
    ("aten.add.out", (Ref(0), Ref(1)), {"out": Ref(0)}, (0, 1), (0,)),
    ("aten.copy_.default", (Ref(0), Ref(1)), {}, (1,), (0,)),
    ("aten.copy_.default", (Ref(0), Ref(0)), {}, (0,), (0,)),
    ("aten.fill_.Scalar", (Ref(0), 3), {}, (), (0,)),
    ("aten.fill_.Tensor", (Ref(0), Ref(1)), {}, (1,), (0,)),
    ("aten.zero_.default", (Ref(1),), {}, (), (1,)),
    ("aten.masked_fill_.Scalar", (Ref(0), Ref(1), 0), {}, (0, 1), (0,)),
    ("aten.index_put_.default", (Ref(0), List((None, Ref(1))), Ref(2)), {}, (0, 1, 2), (0,)),
    ("aten.cat.default", (List((Ref(2), Ref(0), Ref(2))),), {}, (2, 0), ()),
    ("aten._foreach_add_.Scalar", (List((Ref(0), Ref(1))), 1), {}, (0, 1), (0, 1)),
    ("aten._foreach_copy_.default", (List((Ref(0),)), List((Ref(1),))), {}, (1,), (0,)),
    ("aten.native_batch_norm.default", (Ref(0), None, None, Ref(1), Ref(2), True, 0.1, 1e-5), {}, (0, 1, 2), (1, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "args", "kwargs", "reads", "writes"), REPRESENTATIVE)
def test_reads_and_writes(
    op: str, args: tuple[Arg, ...], kwargs: dict[str, Arg], reads: tuple[int, ...], writes: tuple[int, ...]
) -> None:
    call = Call(op, args, tuple(kwargs.items()), ())
    assert accesses(program_of([0, 1, 2]), call) == (reads, writes)


@pytest.mark.parametrize("op", [
    "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.slice.Tensor", "aten.split.Tensor",
    "aten.unbind.int", "aten.expand.default", "aten.detach.default", "aten.view.dtype", "aten.contiguous.default",
])  # fmt: skip
def test_a_view_reads_nothing_and_a_copy_reads_its_operand(op: str) -> None:
    call = Call(op, (Ref(0),), (), (1,))
    assert accesses(program_of([0, 0]), call) == ((), ())
    assert accesses(program_of([0, 1]), call) == ((0,), ())


@pytest.mark.filterwarnings("ignore")
def test_no_operator_writes_what_it_does_not_claim() -> None:
    for expression in OVERLOADS:
        program = record(expression)
        memory = allocate(program.entry)
        before = [memory.contents(k).tobytes() for k in range(len(memory.bases))]
        program(*memory.tensors)
        changed = {k for k in range(len(memory.bases)) if memory.contents(k).tobytes() != before[k]}
        claimed = {program.values[i].storage for i in accesses(program, program.calls[0]).writes}
        assert changed <= claimed, expression


def test_arguments_are_bound_to_their_names() -> None:
    call = Call("aten.add.Tensor", (Ref(0), 2), (("alpha", 3),), ())
    assert bound(call) == (("self", Ref(0)), ("other", 2), ("alpha", 3))
    with pytest.raises(ProgramError, match=r"aten\.neg\.default takes 1 arguments, not 2"):
        bound(Call("aten.neg.default", (Ref(0), Ref(1)), (), ()))


def test_operators_are_found_by_name() -> None:
    assert resolve("aten.add_.Tensor") is torch.ops.aten.add_.Tensor
    assert op_name(resolve("aten.add_.Tensor")) == "aten.add_.Tensor"


@pytest.mark.parametrize("name", ["aten.add", "add", "aten.add.Tensor.x", ""])
def test_a_name_that_is_no_overload_is_refused(name: str) -> None:
    with pytest.raises(ProgramError, match=r"names no operator overload; one looks like 'aten\.add_\.Tensor'"):
        resolve(name)


@pytest.mark.parametrize("name", [
    "aten.add.Tensors", "aten.nosuch.default", "nosuch.add.Tensor", "aten.add.__doc__", "aten.view.", "_dir.x.y",
    "aten.add.overloads", "aten.__class__.mro", "..",
])  # fmt: skip
def test_an_operator_that_torch_lacks_is_refused(name: str) -> None:
    with pytest.raises(ProgramError, match="has no operator"):
        resolve(name)
