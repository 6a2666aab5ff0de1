"""Metamorphic relations: in eager a program and its rewriting agree by construction, and a difference is seen where there is one."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import Phase, given, settings

from executor.args import Ref, refs
from executor.limits import Limits
from executor.program import Call, Program
from executor.tracing import trace
from executor.validate import validate_geometry
from fuzz.relations import RELATIONS, RelationError, chosen, rewriting, rewritten
from fuzz.relations.agreement import disagreements
from fuzz.relations.base import Relation
from fuzz.rewriting import without
from fuzz.runs import Run, run
from fuzz.subjects import of_program
from strategies.programs import programs

DRAWN = settings(max_examples=200, deadline=None, database=None, phases=(Phase.generate,))


def eager(program: Program) -> Run:
    subject = of_program(program, source=False)
    return run(subject.reference, *subject.ways[0].build())


def differences(relation: Relation, program: Program, other: Program) -> list[str]:
    return [str(found) for found in disagreements(relation, program, other, eager(program), eager(other))]


def test_programs_and_their_rewritings_agree_in_eager() -> None:
    applied = Counter[str]()

    @DRAWN
    @given(programs())
    def check(program: Program) -> None:
        first = eager(program)
        for name, relation in RELATIONS.items():
            if relation.applies(program):
                other = relation.rewrite(program, random.Random(program.digest))
                assert other is not None
                validate_geometry(other)
                assert disagreements(relation, program, other, first, eager(other)) == []
                applied[name] += 1

    check()
    assert min(applied[name] for name in RELATIONS) > 2, applied


def shift(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    c = a[1:]
    c.add_(b)
    d = b * 2
    return a, d


def shifted() -> Program:
    x = torch.arange(8.0) + 1
    return trace(shift, x[:5], x[:1])


def apart() -> Program:
    x = torch.arange(8.0) + 1
    return trace(shift, x[:4], x[5:])


@pytest.mark.parametrize(("name", "what"), [
    ("copied-write", r"d = c \+ b\n    c.copy_\(d\)"),
    ("one-as-strided", r"c = a.as_strided\(\[4\], \[1\], 1\)\n"),
    ("swapped-statements", r"d = b \* 2\n    c = a\[1:\]\n    c.add_\(b\)|c = a\[1:\]\n    d = b \* 2"),
    ("permuted-parameters", r"def program\(b, a\):"),
    ("alias-returned", r"e = .*\n    return a, d, e"),
])  # fmt: skip
def test_what_is_rewritten(name: str, what: str) -> None:
    program = shifted() if name != "swapped-statements" else apart()
    other = rewritten(program, name)
    assert other is not None
    assert re.search(what, str(other)), str(other)
    assert differences(RELATIONS[name], program, other) == []


def test_a_noop_view_is_taken_in_many_ways() -> None:
    made = {str(RELATIONS["noop-view"].rewrite(shifted(), random.Random(seed))) for seed in range(200)}
    views = {line.split(" = ")[1] for text in made for line in text.splitlines() if " = " in line}
    assert {"c[:]", "c.unsqueeze(0)", "c.as_strided([4], [1], 1)", "c.permute(0)"} <= views, views


def test_inputs_that_share_no_element_part() -> None:
    relation = RELATIONS["inputs-apart"]
    assert not relation.applies(shifted())
    other = rewritten(apart(), relation.name)
    assert other is not None
    assert [value.storage for value in other.entry.values] == [0, 1]
    assert differences(relation, apart(), other) == []


def test_inputs_do_not_part_where_one_reaches_the_other() -> None:
    def reach(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        b.zero_()
        return a.as_strided((8,), (1,), 0) + 1

    x = torch.arange(8.0) + 1
    assert not RELATIONS["inputs-apart"].applies(trace(reach, x[:4], x[5:]))


def test_a_padded_base_is_longer_and_as_strided_follows() -> None:
    def window(a: torch.Tensor) -> torch.Tensor:
        return a.as_strided((2,), (2,), 3) + 1

    program = trace(window, torch.arange(8.0)[2:])
    other = rewritten(program, "padded-base")
    assert other is not None
    (value,), (before,) = other.entry.values, program.entry.values
    moved = value.offset - before.offset
    assert moved >= 4
    assert f"a.as_strided([2], [2], {3 + moved})" in str(other)
    assert other.entry.storages[0].nbytes >= 32 + 4 * moved + 16
    assert differences(RELATIONS["padded-base"], program, other) == []


def test_one_tensor_passed_twice_stays_so_in_another_order() -> None:
    x = torch.ones(2)
    program = trace(lambda a, b, c: a.add_(b) + c, x, torch.zeros(2), x)
    for seed in range(8):
        other = RELATIONS["permuted-parameters"].rewrite(program, random.Random(seed))
        assert other is not None
        validate_geometry(other)
        assert len(other.twins) == 1
        assert differences(RELATIONS["permuted-parameters"], program, other) == []


def test_what_eager_refuses_and_what_changes_metadata_is_left_alone() -> None:
    changed = trace(lambda a, b: a.t_().add_(b), torch.ones(2, 2), torch.ones(2))
    assert not any(relation.applies(changed) for relation in RELATIONS.values())
    with pytest.raises(ValueError, match="noop-view does not apply"):
        RELATIONS["noop-view"].rewrite(changed, random.Random(0))


def test_a_lost_write_shows() -> None:
    broken = without(shifted(), {1})
    (found,) = differences(RELATIONS["copied-write"], shifted(), broken)[:1]
    assert found.startswith("relation: output 0: expected [1.0, 3.0, 4.0, 5.0, 6.0], got [1.0, 2.0, 3.0, 4.0, 5.0]"), (
        found
    )


def returned(program: Program, op: str) -> Program:
    """The program whose first output is a result of this operator on it."""
    index, fresh = next(refs(program.outputs)), len(program.values)
    call = Call(op, (Ref(index),), (), (fresh,))
    value = program.values[index]
    storages = program.storages
    if op == "aten.clone.default":
        value = msgspec.structs.replace(value, storage=len(storages), offset=0)
        storages = (*storages, msgspec.structs.replace(storages[0], nbytes=value.numel * value.itemsize, fill=None))
    outputs = msgspec.structs.replace(program.outputs, items=(Ref(fresh), *program.outputs.items[1:]))  # type: ignore[union-attr,type-var]
    return msgspec.structs.replace(
        program, storages=storages, values=(*program.values, value), calls=(*program.calls, call), outputs=outputs
    )


def test_another_object_and_another_place_show() -> None:
    relation = RELATIONS["copied-write"]
    view, copy = returned(shifted(), "aten.alias.default"), returned(shifted(), "aten.clone.default")
    (found,) = differences(relation, shifted(), view)
    assert found == "relation: output 0: expected the object of input 0, got the object of output 0"
    assert len(differences(relation, shifted(), copy)) == 2
    assert len(differences(RELATIONS["inputs-apart"], shifted(), copy)) == 1


def test_only_a_share_of_programs_is_rewritten_always_the_same() -> None:
    drawn = [trace(lambda a, n=n: a.add_(n), torch.ones(3)) for n in range(200)]
    found = [rewriting(program, chosen("all/8")) for program in drawn]
    assert found == [rewriting(program, chosen("all/8")) for program in drawn]
    assert 10 < len([one for one in found if one is not None]) < 45
    assert len({one.relation for one in found if one is not None}) > 2
    assert rewriting(drawn[0], chosen("none")) is None


def test_rewritings_stay_within_the_limits() -> None:
    choice = chosen("one-as-strided")
    assert rewriting(shifted(), choice) is not None
    assert rewriting(shifted(), choice, Limits(banned_ops=frozenset({"aten.as_strided.default"}))) is None


def test_the_document_names_all_relations_and_what_they_keep() -> None:
    text = (Path(__file__).parents[1] / "docs" / "relations.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \|.*\| (same|differs) \|$", text, re.MULTILINE))
    assert rows == {name: "same" if relation.aliases else "differs" for name, relation in RELATIONS.items()}


def test_names_are_chosen() -> None:
    assert chosen("all") == (tuple(RELATIONS), 1)
    assert chosen("all/8") == (tuple(RELATIONS), 8)
    assert chosen("none") == ((), 1)
    assert chosen("padded-base, noop-view,padded-base") == (("padded-base", "noop-view"), 1)
    for share in ("all/0", "all/x"):
        with pytest.raises(RelationError, match=f"such as all/8, not '{share}'"):
            chosen(share)
    with pytest.raises(RelationError, match=r"no relation 'nop'; there are copied-write, .*, or all or none"):
        chosen("nop")
