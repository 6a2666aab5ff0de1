"""Real memory for a program's inputs: one guarded buffer per storage, every view rebuilt on it.

Cloning each argument alone would sever the very aliasing under test, so whole storages are cloned, once each. A guard
band lies before and after each storage, outside what torch knows of, and shows writes out of bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
import torch

from executor.args import constant
from executor.errors import ArgumentError
from executor.program import Fill, Inputs, Iota, Literal, Storage, Value, contiguous_strides, itemsize

GUARD = 64  # bytes on each side; also the alignment, torch's own
_PATTERN = bytes([0xA5]) * GUARD


class Memory:
    """Storages with guard bands, and the tensors on them.

    `tensors[k]` is input k; the same object stands twice where one tensor is passed twice. Storages that are not
    `guarded` are torch's own, which can be resized. `leaves` are the tensors that gradients flow to: the inputs that are
    leaves of autograd's graph, in order, then the hidden roots of those that are `rooted`, in order of their storages.
    """

    def __init__(
        self,
        contents: Sequence[bytes],
        dtypes: Sequence[str],
        inputs: Inputs,
        *,
        guarded: bool = True,
    ) -> None:
        self._guarded = guarded
        self._buffers: list[np.ndarray] = []
        self.bases: list[torch.Tensor] = []
        for data, dtype, storage in zip(contents, dtypes, inputs.storages, strict=True):
            self._allocate(data, constant(dtype), storage.device)
        self.tensors = [on_base(self.bases[value.storage], value) for value in inputs.values]
        for position in inputs.leaves:
            self.tensors[position] = self.tensors[position].detach().requires_grad_()
        roots = self._root(inputs.values, inputs.rooted)
        for later, earlier in inputs.twins:
            self.tensors[later] = self.tensors[earlier]
        later_ones = dict(inputs.twins)
        self.leaves = [self.tensors[position] for position in inputs.leaves if position not in later_ones] + roots

    def _root(self, values: Sequence[Value], rooted: Sequence[int]) -> list[torch.Tensor]:
        """The hidden roots, once these inputs are views of their clones, which lie on the storages' memory."""
        roots: list[torch.Tensor] = []
        clones: dict[int, torch.Tensor] = {}
        with torch.enable_grad():
            for storage in sorted({values[position].storage for position in rooted}):
                base = self.bases[storage]
                roots.append(base.clone().requires_grad_())
                clones[storage] = base.detach().copy_(roots[-1])
            for position in rooted:
                base = clones[values[position].storage]
                if values[position].torch_dtype != base.dtype:
                    raise ArgumentError(f"rooted input {position} has not its storage's dtype, {base.dtype}")
                self.tensors[position] = on_base(base, values[position])
        return roots

    def _allocate(self, data: bytes, dtype: torch.dtype, device: str) -> None:
        raw = np.empty(len(data) + 3 * GUARD, dtype=np.uint8)
        skip = -raw.ctypes.data % GUARD
        buffer = raw[skip : skip + len(data) + 2 * GUARD]
        buffer[:GUARD] = buffer[GUARD + len(data) :] = 0xA5
        buffer[GUARD : GUARD + len(data)] = np.frombuffer(data, dtype=np.uint8)
        self._buffers.append(buffer)
        if len(data) % dtype.itemsize:  # the last bytes are no element, yet belong to the storage
            dtype = torch.uint8
        count = len(data) // dtype.itemsize
        base = (
            torch.frombuffer(buffer, dtype=dtype, count=count, offset=GUARD) if count else torch.empty(0, dtype=dtype)
        )
        base = base if self._guarded else base.clone()
        self.bases.append(base if device == "cpu" else base.to(device))

    def contents(self, storage: int) -> np.ndarray:
        """The bytes of a storage now, as a uint8 array; not a copy if it lies on the CPU."""
        base = self.bases[storage]
        if base.is_cpu and self._guarded:
            return self._buffers[storage][GUARD:-GUARD]
        home = base.untyped_storage()  # shorter than it was, perhaps
        raw = torch.empty(0, dtype=torch.uint8, device=base.device)
        return raw.set_(home, 0, (min(home.nbytes(), base.nbytes),), (1,)).cpu().numpy()

    def damaged(self) -> list[int]:
        """The storages beside which something was written out of bounds. Only guarded CPU storages show it."""
        return [
            i
            for i, buffer in enumerate(self._buffers)
            if buffer[:GUARD].tobytes() != _PATTERN or buffer[-GUARD:].tobytes() != _PATTERN
        ]

    def locate(self, tensor: torch.Tensor) -> int | None:
        """The storage in whose memory the tensor's first byte lies, by address; None if in none, or it has no bytes."""
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return None
        address = storage.data_ptr()
        for i, base in enumerate(self.bases):
            start = base.data_ptr()
            if base.device == tensor.device and start <= address < start + base.nbytes:
                return i
        return None


def on_base(base: torch.Tensor, value: Value) -> torch.Tensor:
    """The tensor that `value` describes, on the storage of the flat tensor `base`."""
    dtype = value.torch_dtype
    if base.dtype != dtype:
        whole = base.numel() * base.itemsize // dtype.itemsize * dtype.itemsize // base.itemsize
        base = base[:whole].view(dtype)
    # Also where the value is the whole base: each value is a tensor object of its own, or two inputs become twins.
    base = base.as_strided(value.shape, value.strides, value.offset)
    if value.conj:
        base = base.conj()
    if value.neg:
        base = torch._neg_view(base)
    return base


def allocate(inputs: Inputs, *, guarded: bool = True) -> Memory:
    """Fresh memory with the contents that `inputs` asks for."""
    storages = inputs.storages
    return Memory(
        [_contents(s.fill, s.nbytes) for s in storages],
        [s.fill.dtype if s.fill else "uint8" for s in storages],
        inputs,
        guarded=guarded,
    )


def _contents(fill: Fill | None, nbytes: int) -> bytes:
    if fill is None:
        return bytes(nbytes)
    # Literals are not kept: 0.0 and -0.0 are equal as keys.
    return _counted(fill, nbytes) if isinstance(fill, Iota) else _filled(fill, nbytes)


def _filled(fill: Fill, nbytes: int) -> bytes:
    flat = fill_tensor(fill, nbytes // itemsize(fill.dtype))
    return to_bytes(flat) + bytes(nbytes % itemsize(fill.dtype))


_counted = lru_cache(maxsize=1024)(_filled)


def fill_tensor(fill: Fill, count: int) -> torch.Tensor:
    """The first `count` elements of a storage with these contents, as a flat tensor."""
    dtype: torch.dtype = constant(fill.dtype)
    if isinstance(fill, Literal):
        values = [complex(v) if isinstance(v, str) else v for v in fill.values]
        return torch.tensor(
            values if dtype.is_complex else [v.real if isinstance(v, complex) else v for v in values], dtype=dtype
        )
    steps = torch.arange(count, dtype=torch.int64)
    ramp = (steps % fill.period if fill.period else steps) + fill.start
    if dtype == torch.bool:
        return ramp % 3 == 0
    if dtype.is_complex:
        return torch.complex(ramp.double(), (ramp.flip(0) if count else ramp).double()).to(dtype)
    return ramp.to(dtype)


def to_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor's elements in row-major order, lazy conjugates and negatives made real."""
    cpu = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # A tensor of one element is contiguous whatever its stride, but is viewed as bytes with stride 1 only.
    flat = cpu.as_strided((cpu.numel(),), (1,))
    return flat.view(torch.uint8).numpy().tobytes() if cpu.numel() else b""


def literal_tensor(storage: Storage, value: Value) -> torch.Tensor:
    """A fresh tensor for one of a program's constants."""
    if storage.fill is None:
        raise ArgumentError("a constant's storage has contents; this one's `fill` is None")
    base = fill_tensor(storage.fill, storage.nbytes // itemsize(storage.fill.dtype)).to(storage.device)
    return on_base(base, value)


def literal(tensor: torch.Tensor) -> Literal:
    """The contents of the tensor's whole storage, written out in its dtype; as bytes where its dtype would lose some."""
    flat = storage_tensor(tensor)
    written = Literal(dtype_name(tensor.dtype), tuple(_plain(value) for value in flat.tolist()))
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    raw.set_(tensor.untyped_storage(), 0, (tensor.untyped_storage().nbytes(),), (1,))
    if to_bytes(fill_tensor(written, flat.numel())) == to_bytes(raw):
        return written
    return Literal("uint8", tuple(raw.tolist()))


def _plain(value: bool | int | float | complex) -> bool | int | float | str:  # noqa: FBT001 (an element may be a bool)
    if isinstance(value, complex) or (isinstance(value, float) and (value != value or value in (np.inf, -np.inf))):
        return repr(value)
    return value


def storage_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A flat tensor of the same dtype over all of the tensor's storage; bytes that make no whole element are left out."""
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.itemsize
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (count,), (1,))


@lru_cache(maxsize=64)
def dtype_name(dtype: torch.dtype) -> str:
    """The dtype's name without "torch."."""
    return str(dtype).removeprefix("torch.")


def value_of(tensor: torch.Tensor, storage: int) -> Value:
    """The geometry of a tensor that lies on the storage with this index."""
    return Value(
        storage,
        dtype_name(tensor.dtype),
        tuple(tensor.shape),
        tensor.stride(),
        int(tensor.storage_offset()),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def describe(tensors: Sequence[torch.Tensor], *, fill: bool = True) -> Inputs:
    """How the tensors lie on their storages, with these storages' contents as literals unless `fill` is False.

    Tensors without memory (no elements anywhere on their storage) each get a storage of their own. A tensor that
    requires grad is among the leaves or the rooted ones, as it is a leaf to autograd or not.
    """
    homes: dict[int, int] = {}
    storages: list[Storage] = []
    values: list[Value] = []
    twins: list[tuple[int, int]] = []
    for position, tensor in enumerate(tensors):
        key = tensor.untyped_storage()._cdata
        if key not in homes:
            homes[key] = len(storages)
            storages.append(
                Storage(tensor.untyped_storage().nbytes(), literal(tensor) if fill else None, str(tensor.device))
            )
        earlier = next((i for i, other in enumerate(tensors[:position]) if other is tensor), None)
        if earlier is not None:
            twins.append((position, earlier))
        values.append(value_of(tensor, homes[key]))
    leaves = tuple(i for i, tensor in enumerate(tensors) if tensor.requires_grad and tensor.is_leaf)
    rooted = tuple(i for i, tensor in enumerate(tensors) if tensor.requires_grad and not tensor.is_leaf)
    return Inputs(tuple(storages), tuple(values), tuple(twins), leaves, rooted)


def clone(
    tensors: Sequence[torch.Tensor], inputs: Inputs | None = None, *, twins: bool = True, guarded: bool = True
) -> Memory:
    """Guarded copies of the tensors' storages, with the same tensors on them; the originals stay as they are.

    `inputs` is how the tensors lie, as `describe` says, if that is known. Without `twins`, a tensor that stands there twice
    becomes two tensor objects.
    """
    inputs = inputs or describe(tensors, fill=False)
    data: list[bytes] = [b""] * len(inputs.storages)
    dtypes = ["uint8"] * len(inputs.storages)
    for tensor, value in zip(tensors, inputs.values, strict=True):
        if not data[value.storage]:
            raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            raw.set_(tensor.untyped_storage(), 0, (inputs.storages[value.storage].nbytes,), (1,))
            data[value.storage], dtypes[value.storage] = to_bytes(raw), value.dtype
    for position in inputs.rooted:
        dtypes[inputs.values[position].storage] = inputs.values[position].dtype
    inputs = inputs if twins else msgspec.structs.replace(inputs, twins=())
    return Memory(data, dtypes, inputs, guarded=guarded)


def whole(storage: int, dtype: str, count: int) -> Value:
    """The value that is a storage's `count` elements, flat."""
    return Value(storage, dtype, (count,), contiguous_strides((count,)))
