"""NkiTensor: a view of a buffer, as kernels see it.

A view is storage plus shape, strides and offset, all in elements of the view's dtype. On chip, dimension 0 is the
partition dimension and its stride is the length of a partition row. Nothing here touches values: a view ends as
the Operand of an instruction. Source: nki.language.NkiTensor, nki-aps, nki-language-guide (NKI 0.7).
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from nkismith.verify.simulator.dtypes import DTYPES, ITEMSIZE, DType, named
from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.rearrange import rearranged
from nkismith.verify.simulator.scalars import NkiScalar, VirtualRegister, combine
from nkismith.verify.simulator.trace import Dynamic, Operand

MAX_DIMS = 5  # one partition and four free dimensions on chip; HBM patterns may have more


class DynamicSlice(NamedTuple):
    """nl.ds(start, size): `size` elements from `start`, which may be a run-time scalar."""

    start: Any
    size: int


class Storage:
    """The allocation behind views: buffer id, region, dtype, shape, and the compiled loop that made it."""

    __slots__ = ("dtype", "id", "name", "region", "row", "scope", "shape", "space")

    def __init__(self, id: int, region: MemoryRegion, dtype: DType, shape: tuple[int, ...], name: str, scope: int):
        self.id, self.region, self.dtype, self.shape, self.name, self.scope = id, region, dtype, shape, name, scope
        self.space = region.space
        self.row = prod(shape[1:]) if self.space != "hbm" else prod(shape)


def refuse(rule: str, what: str, fix: str = "") -> LegalityError:
    """A LegalityError whose line the recorder fills in."""
    return LegalityError(rule, what, fix)


class NkiTensor:
    """A view of storage in SBUF, PSUM or HBM."""

    __slots__ = ("_dynamic", "_locked", "_storage", "buffer", "dtype", "name", "offset", "shape", "strides")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        storage: Storage,
        buffer: MemoryRegion | None = None,
        name: str = "",
        address: object = None,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = named(dtype) or DType(dtype)
        self._storage = storage
        self.buffer = buffer or storage.region
        self.name = name or storage.name
        strides, step = [], 1
        for extent in reversed(self.shape):
            strides.append(step)
            step *= extent
        self.strides = tuple(reversed(strides))
        self.offset = 0
        self._dynamic: Dynamic | None = None
        self._locked: int | None = None

    # -- what a view is -------------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def address(self) -> object:
        """Author-given (partition, byte) address of the storage, or None."""
        return None

    @property
    def data(self) -> NkiTensor:
        """The view itself; tile grids share this attribute."""
        return self

    @property
    def _on_chip(self) -> bool:
        return self._storage.space != "hbm"

    def _row(self) -> int:
        """Elements of a partition row (on chip), in this view's dtype."""
        storage = self._storage
        if self.dtype is storage.dtype or ITEMSIZE[self.dtype] == ITEMSIZE[storage.dtype]:
            return storage.row
        return storage.row * ITEMSIZE[storage.dtype] // ITEMSIZE[self.dtype]

    def operand(self) -> Operand:
        """The region of the buffer that an instruction reads or writes."""
        storage = self._storage
        if storage.space == "hbm":
            return Operand(
                storage.id, self.dtype, 0, 0, self.offset, tuple(zip(self.strides, self.shape, strict=True)),
                self._dynamic,
            )  # fmt: skip
        row = self._row()
        start, free = divmod(self.offset, row) if row else (0, 0)
        pattern = tuple(zip(self.strides[1:], self.shape[1:], strict=True))
        return Operand(storage.id, self.dtype, start, self.shape[0], free, pattern, self._dynamic)

    def _derive(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> NkiTensor:
        view = object.__new__(NkiTensor)
        view.shape, view.strides, view.offset = shape, strides, offset
        view.dtype, view._storage, view.buffer, view.name = self.dtype, self._storage, self.buffer, self.name
        view._dynamic, view._locked = self._dynamic, self._locked
        return view

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

    # -- indexing -------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> NkiTensor:
        keys = key if type(key) is tuple else (key,)
        shape, strides, offset = self.shape, self.strides, self.offset
        if any(k is Ellipsis for k in keys):
            at = next(i for i, k in enumerate(keys) if k is Ellipsis)
            keys = keys[:at] + (slice(None),) * (len(shape) - len(keys) + 1) + keys[at + 1 :]
        if len(keys) > len(shape):
            raise refuse("index_bounds", f"{len(keys)} indices on a tensor of shape {shape}", "drop an index")
        on_chip = self._storage.space != "hbm"
        out_shape, out_strides = [], []
        dynamic: list[tuple[Any, int, int]] = []
        for dim, k in enumerate(keys):
            extent, stride = shape[dim], strides[dim]
            if type(k) is slice:
                start, stop, step = _slice_bounds(k, extent, dim, shape)
                offset += start * stride
                out_shape.append((stop - start + step - 1) // step)
                out_strides.append(stride * step)
            elif type(k) is int or (hasattr(k, "__index__") and not isinstance(k, NkiScalar | VirtualRegister)):
                index = int(k)
                if index < 0:
                    index += extent
                if not 0 <= index < extent:
                    raise refuse(
                        "index_bounds", f"index {k} in dimension {dim} of a tensor of shape {shape}",
                        f"use 0 .. {extent - 1}",
                    )  # fmt: skip
                self._check_unlocked(dim)
                offset += index * stride
                if on_chip and dim == 0:
                    out_shape.append(1)
                    out_strides.append(stride)
            elif isinstance(k, DynamicSlice):
                if isinstance(k.start, int):
                    start, stop, _ = _slice_bounds(slice(k.start, k.start + k.size), extent, dim, shape)
                    offset += start * stride
                else:
                    dynamic.append((k.start, stride, extent - k.size + 1))
                    self._check_dynamic(dim)
                out_shape.append(k.size)
                out_strides.append(stride)
            elif isinstance(k, NkiScalar | VirtualRegister):
                dynamic.append((k, stride, extent))
                self._check_dynamic(dim)
            elif k is None:
                out_shape.append(extent)
                out_strides.append(stride)
            else:
                raise refuse(
                    "index_type", f"index of type {type(k).__name__} in dimension {dim}",
                    "index with ints, slices, Ellipsis, nl.ds or an NkiScalar; gather with .vector_select or .ap",
                )  # fmt: skip
            if out_shape and dim == self._locked and (out_shape[-1] != extent):
                self._check_unlocked(dim)
        out_shape.extend(shape[len(keys) :])
        out_strides.extend(strides[len(keys) :])
        if on_chip and len(out_shape) < 2:  # the last free dimension stays, with extent 1
            out_shape.append(1)
            out_strides.append(1)
        elif not out_shape:
            out_shape, out_strides = [1], [1]
        view = self._derive(tuple(out_shape), tuple(out_strides), offset)
        if dynamic:
            view._dynamic = self._scalar_term(dynamic)
        return view

    def __setitem__(self, key: Any, value: Any) -> None:
        from nkismith.verify.simulator.language.move import assign

        assign(self[key], value)

    def _check_unlocked(self, dim: int) -> None:
        if dim == self._locked:
            raise refuse(
                "indirect_view", f"dimension {dim} is addressed at run time and cannot be sliced or selected",
                "slice before .vector_select/.ap",
            )  # fmt: skip

    def _check_dynamic(self, dim: int) -> None:
        if self._dynamic is not None:
            raise refuse(
                "indirect_view", "the view already has a run-time term; an access has one",
                "combine the offsets with scalar arithmetic first",
            )  # fmt: skip
        if dim == 0 and self._on_chip:
            raise refuse(
                "dynamic_partition", "a run-time index on the partition dimension of an on-chip tensor",
                "index a free dimension, or move the data with a DMA",
            )  # fmt: skip

    def _scalar_term(self, terms: list[tuple[Any, int, int]]) -> Dynamic:
        if len(terms) == 1:
            scalar, stride, limit = terms[0]
            return Dynamic("scalar", scalar.ref, None, stride, limit)
        return Dynamic("scalar", combine([(s, stride) for s, stride, _ in terms]).ref, None, 1, 0)

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Elements start .. end-1 of one dimension, every step-th."""
        self._check_dim(dim)
        if not (0 <= start < end <= self.shape[dim] and step >= 1):
            raise refuse(
                "index_bounds", f"slice({dim}, {start}, {end}, {step}) of a tensor of shape {self.shape}",
                f"0 <= start < end <= {self.shape[dim]} and step >= 1",
            )  # fmt: skip
        self._check_unlocked(dim)
        key = [slice(None)] * self.ndim
        key[dim] = slice(start, end, step)
        return self[tuple(key)]

    def select(self, dim: int, index: Any) -> NkiTensor:
        """One element of a dimension, which goes; `index` may be an int, a scalar, or a 1x1 SBUF tile."""
        self._check_dim(dim)
        key: list[Any] = [slice(None)] * self.ndim
        if not isinstance(index, NkiTensor):
            key[dim] = index
            return self[tuple(key)]
        self._check_dynamic(dim)
        if index.size != 1 or index._storage.space != "sbuf":
            raise refuse(
                "index_tile", f"run-time index of shape {index.shape} in {index._storage.space}", "use a 1x1 SBUF tile"
            )
        key[dim] = 0
        view = self[tuple(key)]
        view._dynamic = Dynamic("scalar", None, index.operand(), self.strides[dim], self.shape[dim])
        return view

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Row p of the result is row vector_offset[p] of this HBM tensor."""
        if dim != 0:
            raise refuse("indirect_dim", f"vector_select on dimension {dim}", "only dimension 0 is supported")
        if self._on_chip:
            raise refuse("indirect_space", f"vector_select on a tensor in {self._storage.space}", "index an HBM tensor")
        if self._dynamic is not None:
            self._check_dynamic(0)
        rows = vector_offset.shape[0]
        view = self._derive((rows, *self.shape[1:]), self.strides, self.offset)
        view._dynamic = Dynamic("vector", None, vector_offset.operand(), self.strides[0], self.shape[0])
        view._locked = 0
        return view

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Columns at the run-time offsets in `index`, the same for every partition of a group (NeuronCore-v4)."""
        if self._dynamic is not None or not self._on_chip:
            raise refuse("indirect_view", "indirect() needs an on-chip view without a run-time term", "start from one")
        count = index.size if num_elem is None else num_elem
        view = self._derive((self.shape[0], count), (self.strides[0], 1), self.offset)
        extent = 1 + sum(s * (n - 1) for s, n in zip(self.strides[1:], self.shape[1:], strict=True))
        view._dynamic = Dynamic("gather", None, index.operand(), 1, extent, 16)
        view._locked = 1
        return view

    # -- views ----------------------------------------------------------------------------------------------------

    def _check_dim(self, dim: int, lowest: int = 0) -> None:
        if not lowest <= dim < self.ndim:
            raise refuse("view_dim", f"dimension {dim} of a tensor of shape {self.shape}", f"{lowest}..{self.ndim - 1}")

    def _fixed(self) -> int:
        """First dimension a view may rearrange: 1 on chip and behind a vector_select."""
        return 1 if self._on_chip or self._locked == 0 else 0

    def permute(self, dims: tuple[int, ...]) -> NkiTensor:
        """Reorder dimensions; the partition dimension stays first."""
        dims = tuple(dims)
        if sorted(dims) != list(range(self.ndim)):
            raise refuse("view_dim", f"permute({dims}) of a tensor of shape {self.shape}", "name every dimension once")
        if self._fixed() and dims[0] != 0:
            raise refuse("view_partition", f"permute({dims}) moves the partition dimension", "keep dimension 0 first")
        return self._derive(tuple(self.shape[d] for d in dims), tuple(self.strides[d] for d in dims), self.offset)

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """Repeat a dimension of extent 1."""
        self._check_dim(dim)
        if self.shape[dim] != 1:
            raise refuse("view_broadcast", f"dimension {dim} of shape {self.shape} has not extent 1", "select it first")
        if dim == 0 and self._on_chip:
            raise refuse(
                "view_partition", "the partition dimension of an on-chip tensor cannot be broadcast by a view",
                "multiply with a column of ones on TensorE, or load with a DMA whose source repeats",
            )  # fmt: skip
        shape, strides = list(self.shape), list(self.strides)
        shape[dim], strides[dim] = size, 0
        return self._derive(tuple(shape), tuple(strides), self.offset)

    def expand_dim(self, dim: int) -> NkiTensor:
        """Insert a dimension of extent 1."""
        if not self._fixed() <= dim <= self.ndim:
            raise refuse("view_partition", f"expand_dim({dim}) of shape {self.shape}", f"{self._fixed()}..{self.ndim}")
        shape, strides = list(self.shape), list(self.strides)
        inner = strides[dim] * shape[dim] if dim < self.ndim else 1
        shape.insert(dim, 1)
        strides.insert(dim, inner)
        return self._derive(tuple(shape), tuple(strides), self.offset)

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Drop a dimension of extent 1."""
        self._check_dim(dim, self._fixed())
        if self.shape[dim] != 1:
            raise refuse("view_dim", f"squeeze_dim({dim}) of shape {self.shape}", "only a dimension of extent 1 goes")
        keep = [d for d in range(self.ndim) if d != dim]
        return self._derive(tuple(self.shape[d] for d in keep), tuple(self.strides[d] for d in keep), self.offset)

    def reshape_dim(self, dim: int, shape: tuple[int, ...]) -> NkiTensor:
        """Split one dimension; one extent may be -1."""
        self._check_dim(dim)
        extents = _infer(tuple(shape), self.shape[dim])
        if extents == (self.shape[dim],):
            return self
        if dim < self._fixed():
            raise refuse(
                "view_partition", f"reshape_dim(0, {shape}) splits the partition dimension", "split a free one"
            )
        return self.reshape((*self.shape[:dim], *extents, *self.shape[dim + 1 :]))

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Merge dimensions start_dim .. end_dim (inclusive)."""
        self._check_dim(start_dim, self._fixed())
        self._check_dim(end_dim, start_dim)
        merged = prod(self.shape[start_dim : end_dim + 1])
        return self.reshape((*self.shape[:start_dim], merged, *self.shape[end_dim + 1 :]))

    def reshape(self, *shape: Any) -> NkiTensor:
        """Another shape over the same elements, without a copy."""
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        extents = _infer(wanted, self.size)
        fixed = self._fixed()
        if fixed and (not extents or extents[0] != self.shape[0]):
            raise refuse(
                "view_partition", f"reshape({extents}) of shape {self.shape} changes the partition dimension",
                f"keep the first extent {self.shape[0]}",
            )  # fmt: skip
        strides = _reshaped_strides(self.shape[fixed:], self.strides[fixed:], extents[fixed:])
        if strides is None:
            raise refuse(
                "view_layout", f"reshape({extents}) of a view with shape {self.shape} and strides {self.strides}",
                "the elements do not lie in that order; copy into a new tile first",
            )  # fmt: skip
        return self._derive(extents, self.strides[:fixed] + strides, self.offset)

    def rearrange(self, src_pattern: tuple, dst_pattern: tuple, fixed_sizes: dict[str, int] | None = None) -> NkiTensor:
        """Split, reorder and merge named dimensions, as in einops."""
        return rearranged(self, src_pattern, dst_pattern, fixed_sizes or {})

    def view(self, dtype: object) -> NkiTensor:
        """The same bits as another dtype; the last dimension scales with the item size."""
        to = _dtype(dtype)
        if self._dynamic is not None:
            raise refuse("indirect_view", "view(dtype) behind a run-time term", "reinterpret first")
        old, new = ITEMSIZE[self.dtype], ITEMSIZE[to]
        shape, strides, offset = list(self.shape), list(self.strides), self.offset
        if old != new:
            if strides[-1] != 1 and shape[-1] != 1:
                raise refuse(
                    "view_layout", f"view({to}) of strides {self.strides}", "the last dimension must be contiguous"
                )
            if (shape[-1] * old) % new or any(s * old % new for s in strides[:-1]) or offset * old % new:
                raise refuse(
                    "view_layout", f"view({to}) of {self.dtype} shape {self.shape}",
                    f"rows and offsets must be multiples of {new} bytes",
                )  # fmt: skip
            shape[-1] = shape[-1] * old // new
            strides = [s * old // new for s in strides[:-1]] + [1]
            offset = offset * old // new
        view = self._derive(tuple(shape), tuple(strides), offset)
        view.dtype = to
        return view

    reinterpret_cast = view

    def ap(
        self,
        pattern: Any,
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: object = None,
    ) -> NkiTensor:
        """An explicit [[stride, count], ...] pattern over the storage; `offset` adds to the view's own."""
        to = self.dtype if dtype is None else _dtype(dtype)
        base = self.offset * ITEMSIZE[self.dtype] // ITEMSIZE[to]
        steps = tuple((int(stride), int(count)) for stride, count in pattern)
        view = self._derive(tuple(n for _, n in steps), tuple(s for s, _ in steps), base + (offset or 0))
        view.dtype = to
        if self._on_chip and (len(steps) < 2 or (steps[0][1] > 1 and steps[0][0] != view._row())):
            raise refuse(
                "ap_partition", f"pattern {[list(s) for s in steps]} on an on-chip tensor with {view._row()} elements a row",
                f"lead with [{view._row()}, partitions] and name at least one free dimension",
            )  # fmt: skip
        if any(n < 1 for _, n in steps):
            raise refuse(
                "index_bounds", f"pattern {[list(s) for s in steps]} has an empty dimension", "counts are >= 1"
            )
        if scalar_offset is not None and vector_offset is not None:
            raise refuse("indirect_view", "scalar_offset and vector_offset together", "an access has one run-time term")
        if scalar_offset is None and vector_offset is None:
            return view
        if self._dynamic is not None:
            self._check_dynamic(1)
        self._check_dim(indirect_dim)
        stride = prod(self.shape[indirect_dim + 1 :]) * ITEMSIZE[self.dtype] // ITEMSIZE[to]
        if vector_offset is not None:
            if indirect_dim != 0 or self._on_chip:
                raise refuse("indirect_dim", "vector_offset away from dimension 0 of an HBM tensor", "index HBM rows")
            view._dynamic = Dynamic("vector", None, vector_offset.operand(), stride, self.shape[0])
            view._locked = 0
            return view
        if self._on_chip and indirect_dim == 0:
            self._check_dynamic(0)
        if isinstance(scalar_offset, NkiTensor):
            view._dynamic = Dynamic("scalar", None, scalar_offset.operand(), stride, 0)
        else:
            if self._on_chip and getattr(scalar_offset, "dtype", "int32") == "int64":
                raise refuse("scalar_width", "an int64 scalar_offset on an on-chip tensor", "compute it as int32")
            view._dynamic = Dynamic("scalar", scalar_offset.ref, None, stride, 0)
        return view

    # -- what tensors do not do -----------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise refuse(
            "host_control_flow", "a tensor as a Python condition: its values do not exist while the kernel is built",
            "compute a mask with nl.where/nisa.select_reduce, or loop with nl.while_loop",
        )  # fmt: skip

    def __iter__(self) -> Any:
        raise refuse("host_control_flow", "iteration over a tensor", "loop over range(t.shape[0]) and slice")

    def __repr__(self) -> str:
        return f"NkiTensor({self.name!r}, {self._storage.space}, {self.dtype}, shape={self.shape})"


def _no_operator(symbol: str) -> Any:
    def operator(self: NkiTensor, *_: Any) -> Any:
        raise refuse(
            "tensor_operator", f"the Python operator {symbol} on a tensor",
            "call nki.isa or nki.language: tensors have no operators",
        )  # fmt: skip

    return operator


for _name, _symbol in {
    "add": "+", "radd": "+", "sub": "-", "rsub": "-", "mul": "*", "rmul": "*", "truediv": "/", "rtruediv": "/",
    "matmul": "@", "neg": "-", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "pow": "**", "mod": "%",
}.items():  # fmt: skip
    setattr(NkiTensor, f"__{_name}__", _no_operator(_symbol))


def _dtype(dtype: object) -> DType:
    found = named(dtype)
    if found is None:
        raise refuse("dtype", f"unknown dtype {dtype!r}", f"use one of {', '.join(DTYPES)}")
    return found


def _slice_bounds(key: slice, extent: int, dim: int, shape: tuple[int, ...]) -> tuple[int, int, int]:
    start = 0 if key.start is None else key.start
    stop = extent if key.stop is None else key.stop
    step = 1 if key.step is None else key.step
    for bound in (start, stop, step):
        if isinstance(bound, NkiScalar | VirtualRegister):
            raise refuse(
                "dynamic_slice", f"a run-time scalar as a slice bound in dimension {dim}", "use nl.ds(start, size)"
            )
    if start < 0:
        start += extent
    if stop < 0:
        stop += extent
    if not (0 <= start < stop <= extent and step > 0):
        raise refuse(
            "index_bounds", f"slice {start}:{stop}:{step} in dimension {dim} of a tensor of shape {shape}",
            f"stay in 0 .. {extent} with a positive step and at least one element: clamp partial tiles with min()",
        )  # fmt: skip
    return start, stop, step


def _infer(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    known = prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and known and size % known == 0:
        shape = tuple(size // known if n == -1 else n for n in shape)
    if prod(shape) != size or any(n < 1 for n in shape):
        raise refuse("view_size", f"shape {shape} for {size} elements", "the element count must stay the same")
    return tuple(int(n) for n in shape)


def _reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the reshaped view, or None where a copy would be needed (the rule of torch.Tensor.view)."""
    runs: list[list[int]] = []  # [elements, stride] of maximal dense runs, outermost first
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == extent * stride:
            runs[-1] = [runs[-1][0] * extent, stride]
        else:
            runs.append([extent, stride])
    out: list[int] = []
    run = len(runs) - 1
    left = runs[run][0] if runs else 1
    step = runs[run][1] if runs else 1
    for extent in reversed(wanted):
        if extent == 1:
            out.append(step)
            continue
        if left == 1:
            run -= 1
            left, step = runs[run]
        if left % extent:
            return None
        out.append(step)
        left //= extent
        step *= extent
    return tuple(reversed(out))
