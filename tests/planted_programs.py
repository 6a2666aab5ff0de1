"""For each fault of `benchmarks/faults` a small program on which it shows: a function and what it is called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Example = tuple[Callable[..., Any], tuple[Any, ...]]


def ramp(*shape: int) -> torch.Tensor:
    """Distinct numbers from 1 on."""
    return torch.arange(1.0, torch.Size(shape).numel() + 1).reshape(shape)


def _add_and_read(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return b + 1


def _add_twice_and_read(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    b.mul_(2)
    return c + 1


def _patched_twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    b.mul_(2)
    c = a * 2
    return a + c


def _part_read_late(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    x.mul_(3)
    return y[0] * 2


def _add_and_multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    b.mul_(2)
    return a * c


def _flip_and_add(x: torch.Tensor) -> torch.Tensor:
    y = x.flip(0)
    x.add_(1)
    return y


def _list_and_part(x: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_([x], 1)
    x[0].mul_(2)
    return x + 1


def _part_put_back(x: torch.Tensor) -> torch.Tensor:
    kept = x[0].clone()
    x.add_(1)
    x[0].copy_(kept)
    return x


def _computed_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    y[0].mul_(2)
    return y, (x + 1) * 2


def _read_as_other(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    bits = y.view(torch.int32) * 2
    y.mul_(2)
    return bits, y


def _bits_around(x: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    y = bits * 2
    x.fill_(0)
    return y


def _bits_twice(x: torch.Tensor, bits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    before = bits * 2
    x.add_(1)
    return before, bits * 2 + 1


def _read_then_write(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    y = b + c
    c.fill_(0)
    return y


def _written_twice(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    c.copy_(b)
    d.fill_(5)
    return c


def _view_of_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return (b + 1)[0] * 2


def _three_stores(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    a.add_(1)
    b.mul_(2)
    c.mul_(3)


def _list_before_store(x: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    z = x * 2
    torch._foreach_copy_([c, d], [x, z])
    x.add_(1)
    return c


def _scaled_by_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    scaled = x * y.sum()
    x.add_(1)
    return scaled


def _part_over_all(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole, part = a.clone(), a[1:2]
    kept = part.clone()
    whole.copy_(part)
    a.copy_(kept)
    return a, b * 2 * 2 * 2


def _view_outlives(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    row = y[0]
    x.copy_((y * 2).t().clone())
    return row + x


def _tripled_copy(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.mul_(3)
    return x + y


def _lists(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_([x], 1)
    torch._foreach_add_([x], 1)
    return y


def _views(*views: Callable[[torch.Tensor], torch.Tensor], of: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(view(of) for view in views)


def _rows() -> tuple[torch.Tensor, ...]:
    return _views(lambda x: x[0], lambda x: x[1], of=ramp(2, 2) * 3)


def _row_of() -> tuple[torch.Tensor, ...]:
    return _views(lambda x: x[0], lambda x: x, of=ramp(2, 2))


def _bits() -> tuple[torch.Tensor, ...]:
    return _views(lambda x: x, lambda x: x.view(torch.int32), of=ramp(2))


def _turned() -> tuple[torch.Tensor, ...]:
    return _views(lambda x: x, lambda x: x.t(), of=ramp(2, 2))


def _windows(size: int, step: int = 1) -> tuple[torch.Tensor, ...]:
    return _views(lambda x: x[:size], lambda x: x[step : step + size], of=ramp(size + step))


def _complex() -> torch.Tensor:
    return torch.complex(ramp(2), ramp(2) * 3)


_z, _n, _m = _complex(), ramp(5), ramp(4)

EXAMPLES: dict[str, Example] = {
    "storage offset ignored": (_add_and_read, _rows()),
    "strides ignored": (_add_and_read, (_n[::2], _n[4:])),
    "partial overlap taken for none": (_add_and_read, _row_of()),
    "dtype size ignored": (_add_and_read, (_m[2:], _m[1:])),
    "bounds taken for containment": (_add_and_read, (_n[::2], _n[1:2])),
    "same elements taken for the same order": (_add_and_read, _turned()),
    "overlap by one element missed": (_add_and_read, _windows(3, 2)),
    "disjoint taken for identical": (_add_and_read, _rows()),
    "a reaching write missed": (_add_twice_and_read, (_n[:3], _n[1:4], _n)),
    "oldest write taken for the newest": (_add_twice_and_read, (_n, _n[:2], _n)),
    "a write hides what it covers in part": (_add_twice_and_read, (_m, _m[:2], _m[2:])),
    "only the first of several targets written": (
        lambda a, b: (y := b + 1, torch._foreach_add_([a, b], 1), y)[2], (ramp(2), ramp(3))
    ),
    "copies and casts taken not to read": (lambda x: (x[0].add_(1), x.clone())[1], (ramp(2, 2),)),
    "memory made by the program never changes": (lambda x: (y := x + 1, y[0].mul_(2), y * 3)[2], (ramp(2, 2),)),
    "forwarding without the cast": (lambda a: (a.gt_(0), a + 1)[1], (ramp(2),)),
    "forwarding without the broadcast": (lambda a, b: (a.copy_(b), a + 1)[1], (ramp(2, 2), ramp(2))),
    "offset within a written value ignored": (lambda x: (x.add_(1), x[1] + 1)[1], (ramp(2, 2),)),
    "step within a written value ignored": (lambda x: (x.add_(1), x[::2] + 1)[1], (ramp(3),)),
    "order of dimensions ignored in forwarding": (_add_and_read, _turned()),
    "conjugation lost in forwarding": (_add_and_read, (_z, _z.conj())),
    "results laid out like what was forwarded": (
        lambda a: (a.fill_(2), (a + 1).t().view(6) * 2)[1], (ramp(2, 3).t(),)
    ),
    "a copy within one storage dropped": (lambda a, b: a.copy_(b), _rows()),
    "homes merged crosswise": (_part_over_all, (ramp(3), ramp(2))),
    "equal reads merged across a write": (_bits_twice, _bits()),
    "fresh tensors merged": (lambda x: (x + 1, x + 1), (ramp(2),)),
    "oldest layer of a blend on top": (_add_twice_and_read, (_n[:3], _n[1:4], _n)),
    "nothing below a blend": (_add_and_read, _row_of()),
    "gaps of a layer closed": (_add_and_read, (_n[::2], _n[1:4])),
    "offset of a layer ignored": (_add_and_read, (_m[1], _m)),
    "memory under a blend read at entry": (_list_and_part, (ramp(2, 2),)),
    "conjugation lost in a blend": (_add_and_read, (_z[:1].conj(), _z)),
    "patch forgotten for a second reader": (_patched_twice, (_n, _n[1:2])),
    "other operand of a patch not restricted": (_add_and_multiply, (_n, _n[1:2], ramp(5))),
    "a hoisted part read too late": (_part_read_late, (ramp(4),)),
    "write-back forgotten": (lambda a: a.add_(1), (ramp(2)[1],)),
    "write-back of a stale value": (lambda a: a.add_(1).add_(1), (ramp(2),)),
    "a store dead for a later one that covers a part": (_add_twice_and_read, (_m, _m[:2], ramp(2))),
    "a store dead though it is read before the next": (_bits_around, _bits()),
    "inputs that are not returned need no write-back": (_add_and_read, (ramp(2), ramp(2))),
    "a value put back taken for no change": (_part_put_back, (ramp(2, 2),)),
    "a call dead for its first result": (lambda x: x.split(1)[1] + 1, (ramp(2),)),
    "a value that is still needed becomes memory": (_computed_twice, (ramp(2, 2),)),
    "a later store taken for the allocation": (_read_as_other, (ramp(2),)),
    "barrier dropped": (_add_and_read, _row_of()),
    "a write does not wait for reads": (_read_then_write, (*_row_of(), ramp(2, 2))),
    "a write does not wait for writes": (
        _written_twice, (*_row_of(), *_views(lambda x: x, lambda x: x[0], of=ramp(2, 2)))
    ),
    "ordered by data alone": (_add_and_read, _row_of()),
    "users of views wait for nothing": (_view_of_sum, _row_of()),
    "what only a view is taken of not handed out": (
        lambda x: (y := x * 2, x.add_(1), y[0])[2], (ramp(2, 2),)
    ),
    "write-backs in reverse": (_three_stores, (_n, _n[:3], _n[1:4])),
    "an input's memory handed out": (lambda x: x.clone(), (ramp(2),)),
    "early write-back beside reads of other positions": (_flip_and_add, (ramp(4),)),
    "early write-back beside other inputs": (
        lambda x, y: (x.copy_(y * 2 + x), x)[1], _views(lambda x: x[1:], lambda x: x[:-1], of=ramp(6))
    ),
    "early write-back before other loads": (lambda x, y: (x + 1, x.copy_(y * 2))[0], (ramp(3), ramp(3))),
    "early write-back before the host": (_list_before_store, (ramp(2), ramp(2), ramp(2))),
    "index maps taken for identities": (_flip_and_add, (ramp(4),)),
    "reductions taken for pointwise": (_scaled_by_sum, (ramp(4), ramp(3))),
    "cache key without the alias pattern": (_add_and_read, (ramp(2), ramp(2))),
    "cache key without offsets": (_add_and_read, _windows(2)),
    "cache key without strides": (_add_and_read, (_m[:2], _m)),
    "write-backs left out from the fourth call on": (lambda x, y: (x.add_(1), y.add_(1))[1], (ramp(2), ramp(3))),
    "a value let go after its first use": (_lists, (ramp(2), ramp(2))),
    "memory reused while a view of it is needed": (_view_outlives, (ramp(2, 2),)),
    "alias returned as a copy": (lambda x: x[0], (ramp(2),)),
    "results made contiguous": (lambda x: x.t() + 1, (ramp(2, 3),)),
    "an output is always a new object": (lambda x: x.add_(1), (ramp(2),)),
    "views returned without their offset": (lambda x: x[1], (ramp(2),)),
    "inputs of one size on one storage taken for one": (_add_and_read, _rows()),
    "inputs of two dtypes taken for one": (lambda a, b: b + 1, _bits()),
    "empty inputs taken for one": (lambda a, b: b + 1, (ramp(0), torch.ones(0, dtype=torch.int64))),
    "positions of inputs shifted by a number": (lambda n, a, b, c: c + 1, (3, _m, _m, ramp(3))),
    "writes known by name": (_add_and_read, _row_of()),
    "names that come up later are not ordered": (_add_and_read, _row_of()),
    "a copy taken for its source": (_tripled_copy, (ramp(2),)),
    "a write-back packs its target": (lambda a: a.add_(1), (_m[::2],)),
    "a broadcasting copy refused": (lambda a, b: a.copy_(b), (ramp(2, 2), ramp(2))),
}  # fmt: skip
