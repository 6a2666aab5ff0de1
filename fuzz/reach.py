"""What the strategies can draw within a compiler's limits, from their own tables, to tell what a run never reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product

import torch

from executor.limits import Limits
from fuzz.coverage import APART, OF_COMPILATION, OF_MEMORY, OVERLAPPING, SHARED, Coverage
from fuzz.hazards import KINDS, RELATIONS
from strategies import combined, indexed, lists, metadata, moves, pointwise, reductions, smooth, views
from strategies.dtypes import KNOWN, kind
from strategies.exact import FURTHER
from strategies.fitting import Pointwise
from strategies.spellings import FURTHER_VIEWS

_SHAPES = ((), (1,), (2,), (2, 2), (1, 2), (2, 2, 2))  # one of them fits each operator that some tensor fits
_VIEWS = views.VIEWS + views.MORE_VIEWS + FURTHER_VIEWS
# Operators that read whole numbers as indices, or truth values as a mask.
_INDEXING = ("index_", "put_", "scatter_", "gather", "index_select", "index.")
_MASKING = ("masked_", "where")


def families(limits: Limits, *, exact: bool) -> dict[str, tuple[str, ...]]:
    """The operators that programs within the limits may hold, by the family of statements that they belong to."""
    limits = limits if exact else smooth.within(limits)
    dtypes = [dtype for dtype, name in KNOWN.items() if limits.takes_dtype(name)]
    tables = {
        "views": [view.op for view in _VIEWS if _fits(view.fits, dtypes)],
        "in place": [op.inplace for op in _pointwise(dtypes, exact=exact)],
        "out of place": [op.pure for op in _pointwise(dtypes, exact=exact)],
        "out=": [pointwise.out_name(op) for op in pointwise.OUTS],
        "indexed and masked writes": [indexed.INDEX, *(write.op for write in indexed.WRITES)],
        "combined writes": [write.op for write in combined.WRITES] if exact else [],
        "lists": [write.op for write in lists.WRITES],
        "metadata": [change.op for change in metadata.CHANGES] if limits.metadata_mutation else [],
        "moves": [move.op for move in moves.MOVES if _fits(move.fits, dtypes)],
        "reductions": list(reductions.OPERATORS),
    }
    return {name: _taken(ops, limits, dtypes) for name, ops in tables.items()}


def reachable(limits: Limits, *, exact: bool) -> dict[str, tuple[str, ...]]:
    """For each field of `Coverage` that counts by name, the names that programs within the limits may give it.

    The features of compilations are among them: they are none of a target whose compilations are not known.
    """
    limits = limits if exact else smooth.within(limits)
    ops = families(limits, exact=exact).values()
    lies = ("disjoint", *OVERLAPPING) if limits.displaced_inputs else ("must",)
    shared = tuple(lie for lie in lies if limits.overlapping_inputs or lie not in OVERLAPPING)
    return {
        "operators": tuple(sorted({op for family in ops for op in family})),
        "dtypes": tuple(name for name in KNOWN.values() if limits.takes_dtype(name)),
        "inputs": (APART, *shared) if limits.aliased_inputs else (APART,),
        "dependences": tuple(f"{kind}, {lie}" for kind, lie in product(KINDS[1:], RELATIONS[1:])),
        "features": tuple(f for f in (*OF_MEMORY, *OF_COMPILATION) if f != SHARED or limits.aliased_inputs),
    }


def never(limits: Limits, coverage: Coverage, *, exact: bool) -> dict[str, tuple[str, ...]]:
    """What could have been drawn and was not; a field of which nothing could be known is left out."""
    found = {}
    for field, names in reachable(limits, exact=exact).items():
        counted: Mapping[str, int] = getattr(coverage, field)
        known = names if coverage.compiled else tuple(name for name in names if name not in OF_COMPILATION)
        found[field] = tuple(name for name in known if not counted.get(name))
    return {field: names for field, names in found.items() if names}


def _pointwise(dtypes: Iterable[torch.dtype], *, exact: bool) -> list[Pointwise]:
    kinds = {kind(dtype) for dtype in dtypes}
    table = pointwise.OPERATORS + pointwise.MORE_OPERATORS + (FURTHER if exact else smooth.OPERATORS)
    return [op for op in table if not kinds.isdisjoint(op.kinds)]


def _fits(fits: Callable[[torch.Tensor], bool], dtypes: Iterable[torch.dtype]) -> bool:
    return any(fits(torch.empty(shape, dtype=dtype)) for dtype in dtypes for shape in _SHAPES)


def _taken(ops: Iterable[str], limits: Limits, dtypes: Iterable[torch.dtype]) -> tuple[str, ...]:
    """The operators, each once, that are not banned and whose masks or indices may be inputs."""
    lacking = (() if torch.int64 in dtypes else _INDEXING) + (() if torch.bool in dtypes else _MASKING)
    kept = (op for op in ops if op and op not in limits.banned_ops and not op.removeprefix("aten.").startswith(lacking))
    return tuple(dict.fromkeys(kept))
