"""Grids of tiles and blocks over tensors: navigation in tile coordinates, without copies or instructions.

A tile is the grain of compute, a block (a rectangle of tiles) the grain of transfer. In HBM a grid is a view of a
tensor. On chip, `alloc_tiles` lays tiles one after the other along the free dimension, each at partition 0, and a
tensor with one row of tiles can be viewed as a grid too. Boundary tiles are clamped to the exact extent.
Source: nki.language.tiles, blocks, alloc_tiles, alloc_blocks, NkiGrid (NKI 0.7).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any

from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.hardware import PARTITIONS
from nkismith.verify.simulator.recorder import current
from nkismith.verify.simulator.tensor import NkiTensor, refuse

__all__ = ["NkiBlockGrid", "NkiGrid", "NkiTileGrid", "alloc_blocks", "alloc_tiles", "blocks", "tiles"]

_ALL = slice(None)


@dataclass(frozen=True)
class _Axis:
    """One source dimension of a selection, in elements: cells start at `start`, every `step`, and end at `stop`.

    `tile` is the nominal tile extent (1 for an untiled dimension), `block` the tiles a cell groups, `extent` where
    the source ends, `taken` whether an integer index consumed the dimension.
    """

    start: int
    stop: int
    step: int
    tile: int
    block: int
    extent: int
    tiled: bool
    taken: bool = False

    @property
    def cell(self) -> int:
        """Elements of a whole cell."""
        return self.tile * self.block

    @property
    def count(self) -> int:
        """Cells selected."""
        return max(0, ceil((self.stop - self.start) / self.step))

    @property
    def elements(self) -> int:
        """Elements selected: whole cells, the last one clamped to the source."""
        if not self.count:
            return 0
        last = self.start + (self.count - 1) * self.step
        return (self.count - 1) * self.cell + min(self.cell, self.extent - last)

    @property
    def dense(self) -> bool:
        """Do the selected cells follow each other without gaps?"""
        return self.count == 1 or self.step == self.cell

    def pick(self, key: Any, dim: int) -> _Axis:
        """The cells that an integer or a slice selects. Raises LegalityError out of range."""
        if isinstance(key, slice):
            start, stop, step = key.indices(self.count)
            if step < 1 or start >= stop:
                raise refuse("index_bounds", f"cells {key} of {self.count} in dimension {dim}", "a forward slice")
            first = self.start + start * self.step
            last = self.start + (stop - 1) * self.step
            return replace(self, start=first, stop=min(last + self.cell, self.extent), step=step * self.step)
        index = int(key)
        at = index + self.count if index < 0 else index
        if not 0 <= at < self.count:
            raise refuse("index_bounds", f"cell {index} of {self.count} in dimension {dim}", f"0..{self.count - 1}")
        first = self.start + at * self.step
        return replace(self, start=first, stop=min(first + self.cell, self.extent), step=self.cell, taken=True)


class NkiGrid:
    """A tensor region in tile or block coordinates. `shape` counts cells; `data` is the selection as one operand."""

    def __init__(self, source: NkiTensor, axes: tuple[_Axis, ...], folded: bool) -> None:
        if type(source) is not NkiTensor or any(type(axis) is not _Axis for axis in axes):
            raise TypeError("grids are made by nl.tiles, nl.blocks, nl.alloc_tiles and nl.alloc_blocks")
        self._source, self._axes, self._folded = source, axes, folded

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        free = [d for d, axis in enumerate(self._axes) if not axis.taken]
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            keys = keys[:at] + (_ALL,) * (len(free) - len(keys) + 1) + keys[at + 1 :]
        if len(keys) > len(free):
            raise refuse("index_bounds", f"{len(keys)} indices on a grid of shape {self.shape}", "drop an index")
        axes = list(self._axes)
        for dim, k in zip(free, keys, strict=False):
            if isinstance(k, slice) and not axes[dim].tiled:
                if k != _ALL:
                    raise refuse("index_bounds", f"slice of untiled dimension {dim}", "index one slab at a time")
                continue
            axes[dim] = axes[dim].pick(k, dim)
        return type(self)(self._source, tuple(axes), self._folded)

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along every dimension that no integer has consumed."""
        return tuple(a.count for a in self._axes if not a.taken)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Nominal elements of a tile."""
        return tuple(a.tile for a in self._axes if a.tiled)

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Selected elements of every source dimension; a slab that an integer chose is left out."""
        return tuple(a.elements for a in self._axes if a.tiled or not a.taken)

    @property
    def index_step_elements(self) -> tuple[int, ...]:
        """Source elements that one step of each grid coordinate advances."""
        return tuple(a.step for a in self._axes if not a.taken)

    @property
    def is_remainder(self) -> bool:
        """Is a selected cell smaller than its nominal shape?"""
        return any(a.elements < a.count * a.cell for a in self._axes if a.tiled)

    @property
    def buffer(self) -> MemoryRegion:
        """The memory of the backing tensor."""
        return self._source.buffer

    @property
    def dtype(self) -> str:
        """The dtype of the backing tensor."""
        return self._source.dtype

    @property
    def is_data_representable(self) -> bool:
        """Can one access pattern express the whole selection?"""
        return self._operand() is not None

    @property
    def data(self) -> NkiTensor:
        """The whole selection as one tensor. Several rows of tiles come partition first: (rows of a tile, tiles, ...).

        Raises LegalityError (`grid_data`) where no access pattern can express it.
        """
        found = self._operand()
        if found is None:
            raise refuse(
                "grid_data", f"no access pattern covers {self.element_shape} elements in tiles of {self.tile_shape}",
                "index one tile or block; is_data_representable tells beforehand",
            )  # fmt: skip
        return found

    def _operand(self) -> NkiTensor | None:
        tiled = [a for a in self._axes if a.tiled]
        if any(not a.dense and a.elements < a.count * a.cell for a in tiled):
            return None
        return self._folded_operand(tiled) if self._folded else self._strided_operand(tiled)

    def _strided_operand(self, tiled: list[_Axis]) -> NkiTensor | None:
        """A view of a tensor whose dimensions are the grid's."""
        view, dim = self._source, 0
        for axis in self._axes:
            if axis.taken and not axis.tiled:
                view = view.select(dim, axis.start)
                continue
            if axis.dense:
                view = view.slice(dim, axis.start, axis.start + axis.elements)
            else:
                return None
            dim += 1
        rows, lead = tiled[0], view.ndim - len(tiled)
        many = ceil(rows.elements / rows.tile)
        if many == 1 or self._source._storage.space != "hbm" or lead:
            return view
        if rows.elements % rows.tile:
            return None
        split = view.reshape_dim(0, (many, rows.tile))  # row of tiles, row in the tile
        for position, axis in enumerate(tiled[1:], start=2):
            if axis.elements % axis.tile and axis.elements > axis.tile:
                return None
            parts = ceil(axis.elements / axis.tile)
            split = split.reshape_dim(2 * position - 2, (parts, -1))
        free = range(2, split.ndim)
        order = (1, 0, *[d for d in free if d % 2 == 0], *[d for d in free if d % 2])
        return split.permute(order)

    def _folded_operand(self, tiled: list[_Axis]) -> NkiTensor | None:
        """Tiles that lie one after the other in the free dimension of an on-chip tensor."""
        capacity = [ceil(a.extent / a.tile) for a in tiled]
        cell = prod(a.tile for a in tiled[1:])
        first = 0
        for axis, held in zip(tiled, capacity, strict=True):
            first = first * held + axis.start // axis.tile
        counts = [ceil(a.elements / a.tile) for a in tiled]
        steps = [prod(capacity[d + 1 :]) * cell for d in range(len(tiled))]
        rows = min(tiled[0].elements, tiled[0].tile)
        if (counts[0] > 1 and tiled[0].elements % tiled[0].tile) or any(not a.dense for a in tiled):
            return None
        inner = [min(a.elements, a.tile) for a in tiled[1:]]
        if any(c > 1 and a.elements % a.tile for c, a in zip(counts[1:], tiled[1:], strict=True)):
            contiguous = len(tiled) == 2 and counts[0] == 1
            if not contiguous:
                return None
            flat = self._source[0:rows]
            return flat.slice(1, first * cell, first * cell + tiled[1].elements)
        row = self._source._row()
        pattern = [[row, rows]] + [[s, c] for s, c in zip(steps, counts, strict=True) if c > 1]
        strides = [prod(a.tile for a in tiled[d + 1 :]) for d in range(1, len(tiled))]
        pattern += [[s, n] for s, n in zip(strides, inner, strict=True)]
        view = self._source.ap(pattern, offset=first * cell)
        several = sum(c > 1 for c in counts)
        if len(inner) == 1 and several == 1 and counts[0] == 1:  # one row of whole tiles is one stretch
            return view.flatten_dims(1, 2)
        return view

    def empty_like(self, dtype: Any, buffer: Any, name: str, transpose_axes: Any, address: Any) -> Any:
        """New storage of this grid's geometry, packed densely (nl.empty_like)."""
        shape, tile = self.element_shape, self.tile_shape
        if transpose_axes is not None:
            if len(transpose_axes) != len(shape) or len(tile) != len(shape):
                raise refuse("transpose_axes", f"transpose_axes={transpose_axes} of a grid of {shape}", "one per dim")
            shape = tuple(shape[a] for a in transpose_axes)
            tile = tuple(tile[a] for a in transpose_axes)
        block = tuple(a.block for a in self._axes if a.tiled)
        return _alloc(type(self), tile, block, shape, buffer or self.buffer, dtype or self.dtype, address, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, tile_shape={self.tile_shape}, {self._source!r})"


class NkiTileGrid(NkiGrid):
    """A tensor in tile coordinates; an integer index keeps the class, `.data` gives the operand."""


class NkiBlockGrid(NkiGrid):
    """A tensor in block coordinates; nl.tiles(block) shows the tiles of a block."""

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Tiles of a block along every tiled dimension."""
        return tuple(a.block for a in self._axes if a.tiled)


def tiles(source: Any, *, tile_shape: tuple[int, ...] | None = None) -> NkiTileGrid:
    """A tensor, or the selection of a grid, as a grid of tiles."""
    return _view(NkiTileGrid, source, tile_shape, None)


def blocks(source: Any, *, tile_shape: tuple[int, ...] | None = None, block_shape: tuple[int, ...]) -> NkiBlockGrid:
    """A tensor, or the selection of a grid, as a grid of blocks of tiles."""
    return _view(NkiBlockGrid, source, tile_shape, block_shape)


def alloc_tiles(
    *,
    tile_shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    buffer: MemoryRegion,
    dtype: Any,
    address: Any = None,
    name: str = "",
) -> NkiTileGrid:
    """New uninitialised storage as a grid of tiles. Raises TypeError or ValueError on shapes or a buffer that do not
    fit."""
    return _alloc(NkiTileGrid, tile_shape, None, element_shape, buffer, dtype, address, name)


def alloc_blocks(
    *,
    tile_shape: tuple[int, ...],
    block_shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    buffer: MemoryRegion,
    dtype: Any,
    address: Any = None,
    name: str = "",
) -> NkiBlockGrid:
    """New uninitialised storage as a grid of blocks of tiles; the tiles lie as those of alloc_tiles."""
    return _alloc(NkiBlockGrid, tile_shape, block_shape, element_shape, buffer, dtype, address, name)


def _view(kind: Any, source: Any, tile_shape: Any, block_shape: Any) -> Any:
    if isinstance(source, NkiGrid):
        nominal = source.tile_shape if tile_shape is None else _checked("tile_shape", tile_shape)
        if nominal != source.tile_shape and (source._folded or not all(a.dense for a in source._axes)):
            raise refuse("grid_retile", f"tiles of {source.tile_shape} as tiles of {nominal}", "keep the tiles")
        grouped = _block(block_shape, nominal)
        axes, tiled = [], 0
        for axis in source._axes:
            if axis.tiled:
                size, block = nominal[tiled], grouped[tiled]
                tiled += 1
                axes.append(
                    replace(
                        axis, stop=axis.start + axis.elements, step=size * block, tile=size, block=block,
                        extent=axis.start + axis.elements if not source._folded else axis.extent, taken=False,
                    )
                )  # fmt: skip
            else:
                axes.append(axis)
        return kind(source._source, tuple(axes), source._folded)
    if not isinstance(source, NkiTensor):
        raise TypeError(f"nl.{kind.__name__[3:-4].lower()}s takes a tensor or a grid, not {type(source).__name__}")
    if tile_shape is None:
        raise ValueError("tile_shape is needed for a tensor")
    nominal = _checked("tile_shape", tile_shape)
    return kind(source, _axes(source.shape, nominal, _block(block_shape, nominal)), False)


def _alloc(
    kind: Any, tile_shape: Any, block_shape: Any, element_shape: Any, buffer: Any, dtype: Any, address: Any, name: str
) -> Any:
    nominal, shape = _checked("tile_shape", tile_shape), _checked("element_shape", element_shape, 1)
    if not isinstance(buffer, MemoryRegion):
        raise TypeError(f"buffer={buffer!r}: use nl.sbuf, nl.psum, nl.shared_hbm or nl.private_hbm")
    axes = _axes(shape, nominal, _block(block_shape, nominal))
    if buffer.space == "hbm":
        return kind(current().allocate(shape, dtype, buffer, name, address), axes, False)
    if len(shape) != len(nominal):
        raise ValueError(f"on chip every dimension is tiled: tile_shape {nominal} for element_shape {shape}")
    if nominal[0] > PARTITIONS:
        raise ValueError(f"tile_shape {nominal}: a tile has at most {PARTITIONS} partitions")
    held = prod(ceil(n / t) for n, t in zip(shape, nominal, strict=True))
    rows, free = min(nominal[0], shape[0]), prod(nominal[1:])
    return kind(current().allocate((rows, held * free), dtype, buffer, name, address), axes, True)


def _checked(what: str, shape: Any, least: int = 2) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or not all(type(n) is int for n in shape):
        raise TypeError(f"{what}={shape!r}: a tuple of ints")
    if len(shape) < least or any(n < 1 for n in shape):
        raise ValueError(f"{what}={shape}: at least {least} positive extents")
    return shape


def _block(block_shape: Any, nominal: tuple[int, ...]) -> tuple[int, ...]:
    if block_shape is None:
        return (1,) * len(nominal)
    checked = _checked("block_shape", block_shape)
    if len(checked) != len(nominal):
        raise ValueError(f"block_shape={checked} for tile_shape={nominal}: one count a tile dimension")
    return checked


def _axes(shape: tuple[int, ...], nominal: tuple[int, ...], block: tuple[int, ...]) -> tuple[_Axis, ...]:
    lead = len(shape) - len(nominal)
    if lead < 0:
        raise ValueError(f"tile_shape {nominal} has more dimensions than {shape}")
    untiled = [_Axis(0, n, 1, 1, 1, n, False) for n in shape[:lead]]
    parts = zip(shape[lead:], nominal, block, strict=True)
    return (*untiled, *[_Axis(0, n, t * b, t, b, n, True) for n, t, b in parts])
