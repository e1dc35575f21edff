"""A strided view of a buffer, and the views that change its shape and never its elements.

A view is storage plus shape, strides and offset, all in elements of the view's dtype. On chip, dimension 0 is the
partition dimension, its stride is the length of a partition row, and it stays where it is; behind a vector_select
dimension 0 is the indexed one and stays too. Nothing here touches values: a view ends as the Operand of an
instruction. Source: nki.language.NkiTensor, nki-language-guide (NKI 0.7).
"""

from __future__ import annotations

from math import prod
from typing import Any, Self

from nkismith.verify.simulator.dtypes import DTYPES, ITEMSIZE, DType, named
from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.rearrange import dense_strides, inferred, is_index, reshaped_strides, splits
from nkismith.verify.simulator.trace import MAX_ELEMENTS, Dynamic, Operand


class Storage:
    """The allocation behind views: buffer id, region, dtype, shape, address, and the compiled loop that made it."""

    __slots__ = ("address", "dtype", "id", "name", "region", "row", "scope", "shape", "space")

    def __init__(
        self,
        id: int,
        region: MemoryRegion,
        dtype: DType,
        shape: tuple[int, ...],
        name: str = "",
        scope: int = 0,
        address: tuple[int, ...] | None = None,
    ) -> None:
        self.id, self.region, self.dtype, self.shape, self.name = id, region, dtype, shape, name
        self.scope, self.address = scope, address
        self.space = region.space
        self.row = prod(shape[1:]) if self.space != "hbm" else prod(shape)


class View:
    """A strided view of storage in SBUF, PSUM or HBM, and its reshapes."""

    __slots__ = ("_dynamic", "_locked", "_operand", "_storage", "buffer", "dtype", "name", "offset", "shape", "strides")

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: DType
    buffer: MemoryRegion
    name: str
    _storage: Storage
    _dynamic: Dynamic | None  # the run-time term of the address
    _locked: int | None  # the dimension that the run-time term replaces
    _operand: Operand | None  # made once

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        storage: Storage,
        buffer: MemoryRegion | None = None,
        name: str = "",
        address: object = None,
    ) -> None:
        if type(storage) is not Storage:
            raise TypeError("tensors are made by nl.ndarray and its kin")
        self.shape = tuple(shape)
        self.dtype = named(dtype) or DType(dtype)
        self._storage = storage
        self.buffer = buffer or storage.region
        self.name = name or storage.name
        self.strides = dense_strides(self.shape)
        self.offset = 0
        self._dynamic = None
        self._locked = None
        self._operand = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def _on_chip(self) -> bool:
        return self._storage.space != "hbm"

    def _row(self) -> int:
        """Elements of a partition row (on chip) or of all (HBM), in this view's dtype."""
        storage = self._storage
        if self.dtype is storage.dtype:
            return storage.row
        return storage.row * ITEMSIZE[storage.dtype] // ITEMSIZE[self.dtype]

    def operand(self) -> Operand:
        """The region of the buffer that an instruction reads or writes."""
        found = self._operand
        if found is None:
            storage, pattern = self._storage, tuple(zip(self.strides, self.shape, strict=True))
            if storage.space == "hbm":
                found = Operand(storage.id, self.dtype, 0, 0, self.offset, pattern, self._dynamic)
            else:
                row = self._row()
                start, free = divmod(self.offset, row)
                if self.strides[0] != row and self.shape[0] > 1:
                    raise LegalityError(
                        "partition_stride",
                        f"partitions of {self.name!r} with stride {self.strides[0] // row}",
                        "partitions of an operand are consecutive: keep what belongs together in neighbouring ones",
                    )
                found = Operand(storage.id, self.dtype, start, self.shape[0], free, pattern[1:], self._dynamic)
            self._operand = found
        return found

    def _derive(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Self:
        view = object.__new__(type(self))
        view.shape, view.strides, view.offset = shape, strides, offset
        view.dtype, view._storage, view.buffer, view.name = self.dtype, self._storage, self.buffer, self.name
        view._dynamic, view._locked, view._operand = self._dynamic, self._locked, None
        return view

    def _addressed(self, term: Dynamic | None, locked: int | None = None) -> Self:
        """This view, which nobody else holds yet, with a run-time term."""
        self._dynamic, self._locked = term, locked
        return self

    def _as(self, dtype: DType) -> Self:
        """This view, which nobody else holds yet, as another dtype."""
        self.dtype = dtype
        return self

    def is_contiguous(self) -> bool:
        """True if the view covers storage in row-major order (on chip: in each partition)."""
        expected = 1
        for dim in range(self.ndim - 1, 0 if self._on_chip else -1, -1):
            if self.shape[dim] != 1 and self.strides[dim] != expected:
                return False
            expected *= self.shape[dim]
        return True

    def is_indirect(self) -> bool:
        """True if the view already has a run-time term."""
        return self._dynamic is not None

    def get_pattern(self) -> list[list[int]]:
        """[[stride, count], ...], outermost first."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    # -- other shapes over the same elements ----------------------------------------------------------------------

    def _check_dim(self, dim: int, lowest: int = 0) -> None:
        if not is_index(dim) or not lowest <= dim < self.ndim:
            raise LegalityError(
                "view_dim", f"dimension {dim!r} of a tensor of shape {self.shape}", f"{lowest}..{self.ndim - 1}"
            )

    def _fixed(self) -> int:
        """First dimension a view may rearrange: 1 on chip and behind a vector_select."""
        return 1 if self._on_chip or self._locked == 0 else 0

    def _check_gathered(self) -> None:
        if self._dynamic is not None and self._dynamic.kind == "gather":
            raise LegalityError(
                "indirect_view", "the columns behind indirect() cannot be rearranged", "arrange the index instead"
            )

    def permute(self, dims: tuple[int, ...]) -> Self:
        """Reorder dimensions; the partition dimension stays first."""
        dims = tuple(dims)
        if not all(map(is_index, dims)) or sorted(dims) != list(range(self.ndim)):
            raise LegalityError(
                "view_dim", f"permute({dims}) of a tensor of shape {self.shape}", "name every dimension once"
            )
        if self._fixed() and dims[0] != 0:
            raise LegalityError(
                "view_partition", f"permute({dims}) moves the partition dimension", "keep dimension 0 first"
            )
        self._check_gathered()
        return self._derive(tuple(self.shape[d] for d in dims), tuple(self.strides[d] for d in dims), self.offset)

    def broadcast(self, dim: int, size: int) -> Self:
        """Repeat a dimension of extent 1."""
        self._check_dim(dim)
        if self.shape[dim] != 1:
            raise LegalityError(
                "view_broadcast", f"dimension {dim} of shape {self.shape} has not extent 1", "select it first"
            )
        if dim < self._fixed():
            raise LegalityError(
                "view_partition", "the partition dimension of an on-chip tensor cannot be broadcast by a view",
                "multiply with a row of ones on TensorE, or load with a DMA whose source repeats",
            )  # fmt: skip
        if type(size) is not int or not 1 <= size <= MAX_ELEMENTS:
            raise LegalityError("view_broadcast", f"broadcast to size {size!r}", "a positive int")
        self._check_gathered()
        shape, strides = list(self.shape), list(self.strides)
        shape[dim], strides[dim] = size, 0
        return self._derive(tuple(shape), tuple(strides), self.offset)

    def expand_dim(self, dim: int) -> Self:
        """Insert a dimension of extent 1."""
        if not is_index(dim) or not self._fixed() <= dim <= self.ndim:
            raise LegalityError(
                "view_partition" if dim == 0 else "view_dim",
                f"expand_dim({dim!r}) of shape {self.shape}",
                f"{self._fixed()}..{self.ndim}",
            )
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(dim, 1)
        strides.insert(dim, self.strides[dim] * self.shape[dim] if dim < self.ndim else 1)
        return self._derive(tuple(shape), tuple(strides), self.offset)

    def squeeze_dim(self, dim: int) -> Self:
        """Drop a dimension of extent 1."""
        self._check_dim(dim, self._fixed())
        if self.shape[dim] != 1:
            raise LegalityError(
                "view_dim", f"squeeze_dim({dim}) of shape {self.shape}", "only a dimension of extent 1 goes"
            )
        if self._on_chip and self.ndim == 2:
            raise LegalityError(
                "view_dim", f"squeeze_dim({dim}) of shape {self.shape}", "on-chip tensors keep two dimensions"
            )
        keep = [d for d in range(self.ndim) if d != dim]
        return self._derive(tuple(self.shape[d] for d in keep), tuple(self.strides[d] for d in keep), self.offset)

    def reshape_dim(self, dim: int, shape: tuple[int, ...]) -> Self:
        """Split one dimension; one extent may be -1."""
        self._check_dim(dim)
        extents = inferred(tuple(shape), self.shape[dim])
        if extents == (self.shape[dim],):
            return self
        if dim < self._fixed():
            raise LegalityError(
                "view_partition", f"reshape_dim(0, {shape}) splits the partition dimension", "split a free one"
            )
        self._check_gathered()
        inner, parts = self.strides[dim], []
        for extent in reversed(extents):
            parts.append(inner)
            inner *= extent
        return self._derive(
            (*self.shape[:dim], *extents, *self.shape[dim + 1 :]),
            (*self.strides[:dim], *reversed(parts), *self.strides[dim + 1 :]),
            self.offset,
        )

    def flatten_dims(self, start_dim: int, end_dim: int) -> Self:
        """Merge dimensions start_dim .. end_dim (inclusive), which must lie densely in memory."""
        self._check_dim(start_dim, self._fixed())
        self._check_dim(end_dim, start_dim)
        merged = prod(self.shape[start_dim : end_dim + 1])
        strides = reshaped_strides(
            self.shape[start_dim : end_dim + 1], self.strides[start_dim : end_dim + 1], (merged,)
        )
        if strides is None:
            raise self._no_layout(f"flatten_dims({start_dim}, {end_dim})")
        return self._derive(
            (*self.shape[:start_dim], merged, *self.shape[end_dim + 1 :]),
            (*self.strides[:start_dim], *strides, *self.strides[end_dim + 1 :]),
            self.offset,
        )

    def reshape(self, *shape: Any) -> Self:
        """Another shape over the same elements, without a copy."""
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        extents = inferred(wanted, self.size)
        fixed = self._fixed()
        if fixed and (not extents or extents[0] != self.shape[0]):
            raise LegalityError(
                "view_partition", f"reshape({extents}) of shape {self.shape} changes the partition dimension",
                f"keep the first extent {self.shape[0]}",
            )  # fmt: skip
        strides = reshaped_strides(self.shape[fixed:], self.strides[fixed:], extents[fixed:])
        if strides is None:
            raise self._no_layout(f"reshape({extents})")
        return self._derive(extents, self.strides[:fixed] + strides, self.offset)

    def rearrange(self, src_pattern: tuple, dst_pattern: tuple, fixed_sizes: dict[str, int] | None = None) -> Self:
        """Split, reorder and merge named dimensions, as in einops."""
        groups, order = splits(self.shape, src_pattern, dst_pattern, fixed_sizes or {})
        view, dim = self, 0
        for extents in groups:
            view = view.reshape_dim(dim, extents)
            dim += len(extents)
        view = view.permute(tuple(n for group in order for n in group))
        for dim, group in enumerate(order):
            if len(group) > 1:
                view = view.flatten_dims(dim, dim + len(group) - 1)
        return view

    def view(self, dtype: object) -> Self:
        """The same bits as another dtype; the last dimension scales with the item size."""
        to = dtype_of(dtype)
        if self._dynamic is not None:
            raise LegalityError("indirect_view", "view(dtype) behind a run-time term", "reinterpret first")
        old, new = ITEMSIZE[self.dtype], ITEMSIZE[to]
        shape, strides, offset = list(self.shape), list(self.strides), self.offset
        if old != new:
            if strides[-1] != 1 and shape[-1] != 1:
                raise LegalityError(
                    "view_layout", f"view({to}) of strides {self.strides}", "the last dimension must be contiguous"
                )
            outer = strides[:-1] if len(strides) > 1 else []
            if (shape[-1] * old) % new or any(s * old % new for s in outer) or offset * old % new:
                raise LegalityError(
                    "view_layout", f"view({to}) of {self.dtype} shape {self.shape}",
                    f"rows and offsets must be multiples of {new} bytes",
                )  # fmt: skip
            shape[-1] = shape[-1] * old // new
            strides = [s * old // new for s in outer] + [1]
            offset = offset * old // new
        return self._derive(tuple(shape), tuple(strides), offset)._as(to)

    reinterpret_cast = view

    def _no_layout(self, what: str) -> LegalityError:
        return LegalityError(
            "view_layout", f"{what} of a view with shape {self.shape} and strides {self.strides}",
            "the elements do not lie in that order; copy into a new tile first",
        )  # fmt: skip


def dtype_of(dtype: object) -> DType:
    """The NKI dtype that `dtype` names. Raises LegalityError for anything else."""
    found = named(dtype)
    if found is None:
        raise LegalityError("dtype", f"unknown dtype {dtype!r}", f"use one of {', '.join(DTYPES)}")
    return found
