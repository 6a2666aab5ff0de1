"""Operators whose schemas do not tell the truth about memory, and what is true of them.

Each entry is run by `tests/test_schema.py`, which compares bytes and storages with what is claimed here.
"""

from __future__ import annotations

# Arguments that are written although the schema declares no write, by their names.
HIDDEN_WRITES: dict[str, tuple[str, ...]] = {
    "aten.native_batch_norm.default": ("running_mean", "running_var"),
    "aten.cudnn_batch_norm.default": ("running_mean", "running_var"),
    "aten.miopen_batch_norm.default": ("running_mean", "running_var"),
}

# Operators that change what a tensor object is without the tag `inplace_view`: this one is what assigning to `Tensor.data`
# does, and returns nothing.
SET_DATA = "aten.set_data.default"

# Calls whose result lies on their first argument's storage although the schema declares no alias. That of `dropout` is its
# argument where nothing is trained.
HIDDEN_VIEWS: frozenset[str] = frozenset({"aten._unsafe_view.default", "aten.dropout.default"})

# In-place operators that overwrite their first argument without reading it. (`out=` arguments are overwritten anyway.)
OVERWRITES: frozenset[str] = frozenset(
    {
        "aten._foreach_copy_.default",
        "aten._foreach_zero_.default",
        "aten.copy_.default",
        "aten.fill_.Scalar",
        "aten.fill_.Tensor",
        "aten.zero_.default",
    }
)
