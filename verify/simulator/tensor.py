"""NkiTensor: what kernels hold. A view that can be indexed, also with integers that only the device knows.

An access has at most one run-time term: a scalar added to the offset, a vector of rows, or (NeuronCore-v4) a gather
of columns. Source: nki.language.NkiTensor, nki-aps, nki-language-guide, nki-scalar (NKI 0.7).
"""

from __future__ import annotations

from math import prod
from types import EllipsisType
from typing import Any, NamedTuple

from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.errors import LegalityError, UnsupportedInstruction
from nkismith.verify.simulator.host import asserts, values_of
from nkismith.verify.simulator.scalars import NkiScalar, VirtualRegister, combine
from nkismith.verify.simulator.trace import MAX_ELEMENTS, Dynamic
from nkismith.verify.simulator.views import Storage, View, dtype_of

__all__ = ["DynamicSlice", "NkiTensor", "Storage", "refuse"]

INDEX_DTYPES = ("int32", "uint32", "int16", "uint16", "int8", "uint8")
SNAKE_MAX = 32  # partitions over which an index snakes: 32 on TensorE, 16 on the others (nki.language.NkiTensor)


class DynamicSlice(NamedTuple):
    """nl.ds(start, size): `size` elements from `start`, which may be a run-time scalar."""

    start: Any
    size: int


def refuse(rule: str, what: str, fix: str = "") -> LegalityError:
    """A LegalityError whose line the recorder fills in."""
    return LegalityError(rule, what, fix)


class NkiTensor(View):
    """A view of storage in SBUF, PSUM or HBM."""

    __slots__ = ()

    @property
    def address(self) -> tuple[int, ...] | None:
        """Author-given (partition, byte) address of the storage, or None."""
        return self._storage.address

    @property
    def data(self) -> NkiTensor:
        """The view itself; tile grids share this attribute."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = [n for n in dir(type(self)) if not n.startswith("_")]
        raise UnsupportedInstruction(f"NkiTensor.{name}", why=f"tensors have {', '.join(known)}")

    # -- indexing -------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> NkiTensor:
        keys = key if type(key) is tuple else (key,)
        shape, strides, offset = self.shape, self.strides, self.offset
        for at, k in enumerate(keys):
            if k is Ellipsis:
                keys = keys[:at] + (_ALL,) * (len(shape) - len(keys) + 1) + keys[at + 1 :]
                break
        if len(keys) > len(shape):
            raise refuse("index_bounds", f"{len(keys)} indices on a tensor of shape {shape}", "drop an index")
        on_chip = self._storage.space != "hbm"
        out_shape, out_strides = [], []
        terms: list[tuple[Any, int, int]] = []
        for dim, k in enumerate(keys):
            extent, stride, kind = shape[dim], strides[dim], type(k)
            if kind is slice:
                start, stop, step = k.start, k.stop, k.step
                if step is None:
                    step = 1
                if start is None:
                    start = 0
                elif type(start) is not int:
                    start = _bound(start, dim)
                if stop is None:
                    stop = extent
                elif type(stop) is not int:
                    stop = _bound(stop, dim)
                if start < 0:
                    start += extent
                if stop < 0:
                    stop += extent
                if not 0 <= start < stop <= extent or type(step) is not int or step < 1:
                    raise _out_of_range(k, dim, shape)
                if dim == self._locked and (start or stop != extent or step != 1):
                    raise self._locked_dim(dim)
                step = min(step, extent)  # a longer one selects the same element
                offset += start * stride
                out_shape.append((stop - start + step - 1) // step)
                out_strides.append(stride * step)
            elif kind is int:
                index = k + extent if k < 0 else k
                if not 0 <= index < extent:
                    raise _out_of_range(k, dim, shape)
                if dim == self._locked:
                    raise self._locked_dim(dim)
                offset += index * stride
                if on_chip and dim == 0:
                    out_shape.append(1)
                    out_strides.append(stride)
            elif kind is DynamicSlice:
                size, first = _bound(k.size, dim), k.start
                if not 1 <= size <= extent:
                    raise _out_of_range(f"nl.ds(..., {size})", dim, shape)
                if isinstance(first, NkiScalar | VirtualRegister | NkiTensor):
                    self._check_dynamic(dim, first)
                    terms.append((first, stride, extent - size + 1))
                else:
                    first = _bound(first, dim)
                    if first < 0 and first + size < 0:  # as the slice first : first + size
                        first += extent
                    if not 0 <= first <= extent - size:
                        raise _out_of_range(slice(first, first + size), dim, shape)
                    if dim == self._locked and size != extent:
                        raise self._locked_dim(dim)
                    offset += first * stride
                out_shape.append(size)
                out_strides.append(stride)
            elif kind is NkiScalar or kind is VirtualRegister:
                self._check_dynamic(dim, k)
                terms.append((k, stride, extent))
            elif k is None:
                out_shape.append(extent)
                out_strides.append(stride)
            elif kind is range:  # nl.affine_range(n), with which the first kernels indexed
                return self[(*keys[:dim], slice(k.start, k.stop, k.step), *keys[dim + 1 :])]
            else:
                return self[(*keys[:dim], _bound(k, dim), *keys[dim + 1 :])]
        out_shape.extend(shape[len(keys) :])
        out_strides.extend(strides[len(keys) :])
        if on_chip and len(out_shape) < 2:  # the last free dimension stays, with extent 1
            out_shape.append(1)
            out_strides.append(1)
        elif not out_shape:
            out_shape, out_strides = [1], [1]
        view = self._derive(tuple(out_shape), tuple(out_strides), offset)
        return view._addressed(_scalar_term(terms), self._locked) if terms else view

    def __setitem__(self, key: Any, value: Any) -> None:
        from nkismith.verify.simulator.language.move import assign

        assign(self[key], value)

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Elements start .. end-1 of one dimension, every step-th."""
        self._check_dim(dim)
        start, end, step = (_bound(n, dim) for n in (start, end, step))
        if not (0 <= start < end <= self.shape[dim] and step >= 1):
            raise refuse(
                "index_bounds", f"slice({dim}, {start}, {end}, {step}) of a tensor of shape {self.shape}",
                f"0 <= start < end <= {self.shape[dim]} and step >= 1",
            )  # fmt: skip
        key: list[Any] = [_ALL] * self.ndim
        key[dim] = slice(start, end, step)
        return self[tuple(key)]

    def select(self, dim: int, index: Any) -> NkiTensor:
        """One element of a dimension, which goes; `index` may be an int, a scalar, or a 1x1 SBUF tile."""
        self._check_dim(dim)
        key: list[Any] = [_ALL] * self.ndim
        if not isinstance(index, NkiTensor):
            key[dim] = index
            return self[tuple(key)]
        self._check_dynamic(dim, index)
        key[dim] = 0
        return self[tuple(key)]._addressed(_tile_term(index, self.strides[dim], self.shape[dim]))

    # -- run-time addresses ---------------------------------------------------------------------------------------

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Row p of the result is row vector_offset[p] of this HBM tensor."""
        if dim != 0:
            raise refuse("indirect_dim", f"vector_select on dimension {dim}", "only dimension 0 is supported")
        view = self._derive((vector_offset.shape[0], *self.shape[1:]), self.strides, self.offset)
        return self._by_rows(view, vector_offset, self.strides[0])

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Columns at the run-time offsets in `index`, the same for every partition of a group (NeuronCore-v4)."""
        if self._dynamic is not None or not self._on_chip:
            raise refuse("indirect_view", "indirect() needs an on-chip view without a run-time term", "start from one")
        _check_index(index, "indirect index")
        if index.shape[0] != self.shape[0]:
            raise refuse(
                "index_tile", f"an index of {index.shape[0]} partitions for a view of {self.shape[0]}",
                "give both the same partitions",
            )  # fmt: skip
        count = index.size if num_elem is None else num_elem
        held = min(SNAKE_MAX, index.shape[0]) * prod(index.shape[1:])
        if not 1 <= count <= held:
            raise refuse(
                "index_tile", f"{count} offsets from an index of shape {index.shape}, which holds {held} a group",
                "pass num_elem: each group of 16 partitions (32 on TensorE) reads its own offsets",
            )  # fmt: skip
        view = self._derive((self.shape[0], count), (self.strides[0], 1), self.offset)
        extent = 1 + sum(s * (n - 1) for s, n in zip(self.strides[1:], self.shape[1:], strict=True))
        return view._addressed(Dynamic("gather", None, index.operand(), 1, extent, 16), 1)

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
        to = self.dtype if dtype is None else dtype_of(dtype)
        offset = 0 if offset is None else _bound(offset, 0)
        steps = tuple((s, n) for s, n in pattern)
        if not all(type(s) is type(n) is int for s, n in steps):
            steps = tuple((_bound(s, dim), _bound(n, dim)) for dim, (s, n) in enumerate(steps))
        base = self.offset if to is self.dtype else self.offset * ITEMSIZE[self.dtype] // ITEMSIZE[to]
        view = self._derive(tuple(n for _, n in steps), tuple(s for s, _ in steps), base + offset)
        view = view._addressed(None)._as(to)
        if not steps or any(not 1 <= n <= MAX_ELEMENTS for _, n in steps):
            raise refuse("index_bounds", f"pattern {_listed(steps)} has an empty dimension", "counts are >= 1")
        if any(abs(n) > MAX_ELEMENTS for n in (offset, *[s for s, _ in steps])):
            raise refuse("operand_bounds", f"pattern {_listed(steps)}, offset {offset}", "stay inside the tensor")
        if self._on_chip and (len(steps) < 2 or (steps[0][1] > 1 and steps[0][0] != view._row())):
            raise refuse(
                "ap_partition", f"pattern {_listed(steps)} on an on-chip tensor with {view._row()} elements a row",
                f"lead with [{view._row()}, partitions] and name at least one free dimension",
            )  # fmt: skip
        if scalar_offset is None and vector_offset is None:
            return view
        if scalar_offset is not None and vector_offset is not None:
            raise refuse("indirect_view", "scalar_offset and vector_offset together", "an access has one run-time term")
        self._check_dim(indirect_dim)
        stride = prod(self.shape[indirect_dim + 1 :]) * ITEMSIZE[self.dtype] // ITEMSIZE[to]
        if vector_offset is not None:
            if indirect_dim != 0:
                raise refuse("indirect_dim", f"vector_offset on dimension {indirect_dim}", "only dimension 0")
            return self._by_rows(view, vector_offset, stride)
        self._check_dynamic(indirect_dim, scalar_offset)
        return view._addressed(_scalar_term([(scalar_offset, stride, 0)]))

    def _by_rows(self, view: NkiTensor, index: NkiTensor, stride: int) -> NkiTensor:
        if self._on_chip:
            raise refuse(
                "buffer", f"rows of a tensor in {self._storage.space} chosen by a vector", "index an HBM tensor"
            )
        if self._dynamic is not None:
            self._check_dynamic(0, index)
        _check_index(index, "vector_offset")
        return view._addressed(Dynamic("vector", None, index.operand(), stride, self.shape[0]), 0)

    def _locked_dim(self, dim: int) -> LegalityError:
        return refuse(
            "indirect_view", f"dimension {dim} of shape {self.shape}, which is addressed at run time, is sliced",
            "slice before .vector_select/.ap",
        )  # fmt: skip

    def _check_dynamic(self, dim: int, index: Any) -> None:
        if self._dynamic is not None:
            raise refuse(
                "indirect_view", "the view already has a run-time term; an access has one",
                "combine the offsets with scalar arithmetic first",
            )  # fmt: skip
        if dim == 0 and self._on_chip:
            raise refuse(
                "dynamic_partition", f"a run-time index on the partition dimension of an on-chip tensor {self.shape}",
                "index a free dimension, or move the data with a DMA",
            )  # fmt: skip
        if self._on_chip and getattr(index, "dtype", None) == "int64":
            raise refuse("scalar_width", "an int64 index into an on-chip tensor", "compute it as int32")

    # -- what tensors do not do -----------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        if asserts():  # the documentation's examples write `assert nl.equal(a, b)`
            values = values_of(self)
            return values is None or bool(values.all())
        raise refuse(
            "host_control_flow", "a tensor as a Python condition: its values do not exist while the kernel is built",
            "compute a mask with nl.where/nisa.select_reduce, or loop with nl.while_loop",
        )  # fmt: skip

    def __iter__(self) -> Any:
        raise refuse("host_control_flow", "iteration over a tensor", "loop over range(t.shape[0]) and slice")

    def __index__(self) -> int:
        raise refuse(
            "host_control_flow", "a tensor as a Python number: its values do not exist while the kernel is built",
            "load it with nisa.scalar_load and use the scalar as a bound or an offset",
        )  # fmt: skip

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __repr__(self) -> str:
        values = values_of(self)
        shown = "" if values is None else f",\n{values}"
        return f"NkiTensor({self.name!r}, {self._storage.space}, {self.dtype}, shape={self.shape}{shown})"


def _no_operator(symbol: str) -> Any:
    def operator(self: NkiTensor, *_: Any) -> Any:
        raise refuse(
            "tensor_operator", f"the Python operator {symbol} on a tensor",
            "call nki.isa or nki.language: tensors have no operators",
        )  # fmt: skip

    return operator


for _name, _symbol in {
    "add": "+", "radd": "+", "sub": "-", "rsub": "-", "mul": "*", "rmul": "*", "truediv": "/", "rtruediv": "/",
    "floordiv": "//", "rfloordiv": "//", "mod": "%", "rmod": "%", "pow": "**", "rpow": "**", "matmul": "@",
    "rmatmul": "@", "neg": "-", "pos": "+", "abs": "abs", "invert": "~", "and": "&", "or": "|", "xor": "^",
    "lshift": "<<", "rshift": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}.items():  # fmt: skip
    setattr(NkiTensor, f"__{_name}__", _no_operator(_symbol))

_ALL = slice(None)


def _bound(value: Any, dim: int) -> int:
    """A compile-time index or bound as an int. Raises LegalityError for run-time scalars and everything else."""
    if isinstance(value, NkiScalar | VirtualRegister):
        raise refuse(
            "dynamic_slice", f"a run-time scalar as a slice bound in dimension {dim}", "use nl.ds(start, size)"
        )
    if isinstance(value, NkiTensor | EllipsisType) or getattr(value, "ndim", False) or not hasattr(value, "__index__"):
        raise refuse(
            "index_type", f"index of type {type(value).__name__} in dimension {dim}",
            "index with ints, slices, Ellipsis, nl.ds or an NkiScalar; gather with .vector_select or .ap",
        )  # fmt: skip
    return int(value)


def _out_of_range(key: Any, dim: int, shape: tuple[int, ...]) -> LegalityError:
    shown = key
    if isinstance(key, slice):
        shown = ":".join("" if n is None else str(n) for n in (key.start, key.stop)) + f":{key.step}" * bool(key.step)
    return refuse(
        "index_bounds", f"index {shown} in dimension {dim} of a tensor of shape {shape}",
        f"stay in 0 .. {shape[dim]} with a positive step and at least one element: clamp partial tiles with min()",
    )  # fmt: skip


def _check_index(index: Any, what: str) -> None:
    if not isinstance(index, NkiTensor) or index._storage.space != "sbuf" or index.dtype not in INDEX_DTYPES:
        seen = f"{index.dtype} in {index._storage.space}" if isinstance(index, NkiTensor) else type(index).__name__
        raise refuse("index_tile", f"{what} is {seen}", "use an integer tile in SBUF")


def _tile_term(index: NkiTensor, stride: int, limit: int) -> Dynamic:
    _check_index(index, "the run-time index")
    if index.size != 1:
        raise refuse("index_tile", f"a run-time index of shape {index.shape}", "use a 1x1 SBUF tile")
    return Dynamic("scalar", None, index.operand(), stride, limit)


def _scalar_term(terms: list[tuple[Any, int, int]]) -> Dynamic:
    if len(terms) == 1 and isinstance(terms[0][0], NkiTensor):
        return _tile_term(*terms[0])
    for scalar, _, _ in terms:
        if not isinstance(scalar, NkiScalar | VirtualRegister):
            raise refuse("index_type", f"a run-time index of type {type(scalar).__name__}", "use an NkiScalar")
        if isinstance(scalar, NkiScalar) and scalar.is_comparison:
            raise refuse("scalar_comparison", "a comparison as a run-time index", "use arithmetic")
    if len(terms) == 1:
        scalar, stride, limit = terms[0]
        return Dynamic("scalar", scalar.ref, None, stride, limit)
    return Dynamic("scalar", combine([(s, stride) for s, stride, _ in terms]).ref, None, 1, 0)


def _listed(steps: tuple[tuple[int, int], ...]) -> list[list[int]]:
    return [list(s) for s in steps]
