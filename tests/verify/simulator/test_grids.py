"""Grids of tiles and blocks: navigation, exact boundaries, operands, storage on chip, refusals."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.kernel import TensorType, record
from tests.verify.simulator.one import floats


def described(build, *shape, dtype="float32"):
    """What `build` returns of an HBM tensor of this shape; the kernel itself stores nothing."""
    found = []

    def kernel(x):
        found.append(build(x))

    record(kernel, (TensorType(shape, dtype),))
    return found[0]


class TestNavigation:
    def test_a_grid_counts_tiles(self):
        shape, tile, step = described(
            lambda x: (g := nl.tiles(x, tile_shape=(128, 256))) and (g.shape, g.tile_shape, g.index_step_elements),
            512, 1024,
        )  # fmt: skip
        assert (shape, tile, step) == ((4, 4), (128, 256), (128, 256))

    def test_blocks_group_tiles(self):
        def build(x):
            g = nl.blocks(x, tile_shape=(128, 256), block_shape=(2, 2))
            inside = nl.tiles(g[1, 0])
            return g.shape, g.block_shape, g.index_step_elements, g[0, 1].element_shape, inside.shape, type(g[0])

        assert described(build, 512, 1024) == (
            (2, 2), (2, 2), (256, 512), (256, 512), (2, 2), nl.NkiBlockGrid
        )  # fmt: skip

    def test_indexing_keeps_the_class_and_drops_the_coordinate(self):
        def build(x):
            g = nl.tiles(x, tile_shape=(128, 256))
            return [
                (type(s), s.shape, s.element_shape) for s in (g[1, 2], g[1, :], g[:, 2], g[-1], g[1:3, ::2], g[..., 0])
            ]

        grid = nl.NkiTileGrid
        assert described(build, 512, 1024) == [
            (grid, (), (128, 256)), (grid, (4,), (128, 1024)), (grid, (4,), (512, 256)), (grid, (4,), (128, 1024)),
            (grid, (2, 2), (256, 512)), (grid, (4,), (512, 256)),
        ]  # fmt: skip

    def test_boundary_tiles_are_clamped(self):
        def build(x):
            g = nl.tiles(x, tile_shape=(128, 256))
            return g.shape, g[2, 1].element_shape, g[2, 1].is_remainder, g[0, 0].is_remainder, g.is_remainder

        assert described(build, 300, 400) == ((3, 2), (44, 144), True, False, True)

    def test_leading_dimensions_are_slabs(self):
        def build(x):
            g = nl.tiles(x, tile_shape=(128, 64))
            return g.shape, g[1].shape, g[1, 0, 0].element_shape, g[1, 0, 0].data.shape

        assert described(build, 2, 256, 128) == ((2, 2, 2), (2, 2), (128, 64), (128, 64))

    def test_tiles_of_tiles_may_be_smaller(self):
        def build(x):
            part = nl.tiles(x, tile_shape=(128, 256))[1, 0]
            return nl.tiles(part, tile_shape=(64, 128)).shape

        assert described(build, 256, 512) == (2, 2)

    def test_nothing_is_issued(self):
        def kernel(x):
            nl.blocks(nl.tiles(x, tile_shape=(128, 64)), block_shape=(1, 2))[0, 0].data  # noqa: B018

        trace, _ = record(kernel, (TensorType((256, 256), "float32"),))
        assert not trace.programs[0].body
        assert len(trace.buffers) == 1

    @pytest.mark.parametrize("key", [(4, 0), (0, -5), (0, 0, 0), (slice(3, 1), 0), (slice(None, None, -1), 0)])
    def test_out_of_the_grid_is_refused(self, key):
        with pytest.raises(LegalityError) as caught:
            described(lambda x: nl.tiles(x, tile_shape=(128, 256))[key], 512, 1024)
        assert caught.value.rule == "index_bounds"

    def test_slabs_are_not_sliced(self):
        with pytest.raises(LegalityError) as caught:
            described(lambda x: nl.tiles(x, tile_shape=(128, 64))[0:1], 2, 256, 128)
        assert caught.value.rule == "index_bounds"


class TestArguments:
    @pytest.mark.parametrize(
        ("error", "wrong"),
        [
            (TypeError, {"tile_shape": [128, 64]}), (TypeError, {"tile_shape": (128, 64.0)}),
            (TypeError, {"tile_shape": (True, 64)}), (TypeError, {"element_shape": 128}),
            (TypeError, {"buffer": "sbuf"}), (TypeError, {"buffer": None}),
            (ValueError, {"tile_shape": (128,)}), (ValueError, {"tile_shape": (128, 0)}),
            (ValueError, {"element_shape": (256, -1)}), (ValueError, {"tile_shape": (2, 128, 64)}),
            (ValueError, {"tile_shape": (256, 64)}), (ValueError, {"element_shape": (2, 256, 128)}),
        ],
    )  # fmt: skip
    def test_of_alloc_tiles(self, error, wrong):
        right = {"tile_shape": (128, 64), "element_shape": (256, 128), "buffer": nl.sbuf, "dtype": nl.float32}
        described(lambda x: nl.alloc_tiles(**right), 1, 1)
        with pytest.raises(error):
            described(lambda x: nl.alloc_tiles(**right | wrong), 1, 1)

    @pytest.mark.parametrize(
        ("error", "block"), [(ValueError, (1,)), (ValueError, (1, 1, 1)), (TypeError, [1, 1]), (ValueError, (0, 1))]
    )
    def test_of_blocks(self, error, block):
        with pytest.raises(error):
            described(lambda x: nl.blocks(x, tile_shape=(128, 64), block_shape=block), 256, 128)

    def test_a_tensor_needs_a_tile_shape(self):
        with pytest.raises(ValueError, match="tile_shape"):
            described(lambda x: nl.tiles(x), 256, 128)
        with pytest.raises(TypeError):
            described(lambda x: nl.tiles(3, tile_shape=(1, 1)), 256, 128)

    def test_are_keywords(self):
        with pytest.raises(TypeError):
            described(lambda x: nl.alloc_tiles((128, 64), (128, 64), nl.sbuf, nl.float32), 1, 1)


class TestStorage:
    @pytest.mark.parametrize("buffer", ["sbuf", "psum"])
    def test_on_chip_is_a_dense_rectangle(self, buffer):
        def build(x):
            g = nl.alloc_tiles(
                tile_shape=(128, 64), element_shape=(300, 100), buffer=getattr(nl, buffer), dtype=nl.float32
            )
            return g.buffer, g.dtype, g.shape, g[2, 1].element_shape, g[2, 1].data.shape, g._source.shape

        region, dtype, shape, last, operand, storage = described(build, 1, 1)
        assert region is getattr(nl, buffer)
        assert (dtype, shape, last, operand) == ("float32", (3, 2), (44, 36), (44, 36))
        assert storage == (128, 3 * 2 * 64)

    def test_in_hbm_is_the_extent(self):
        def build(x):
            g = nl.alloc_tiles(
                tile_shape=(128, 64), element_shape=(2, 300, 100), buffer=nl.shared_hbm, dtype=nl.bfloat16
            )
            return g.shape, g._source.shape

        assert described(build, 1, 1) == ((2, 3, 2), (2, 300, 100))

    def test_tiles_do_not_overlap(self):
        """Every tile of an on-chip grid is written with its number; then all are read back."""

        @nki.jit
        def kernel(x):
            g = nl.alloc_tiles(tile_shape=(64, 32), element_shape=(160, 80), buffer=nl.sbuf, dtype=nl.float32)
            out = nl.ndarray((160, 80), dtype=nl.float32, buffer=nl.shared_hbm)
            there = nl.tiles(out, tile_shape=(64, 32))
            for i in range(3):
                for j in range(3):
                    nisa.memset(g[i, j].data, 3 * i + j)
            for i in range(3):
                for j in range(3):
                    nisa.dma_copy(there[i, j].data, g[i, j].data)
            return out

        got = nki.simulate(kernel)(np.zeros((1, 1), np.float32))
        want = np.arange(160)[:, None] // 64 * 3 + np.arange(80) // 32
        assert np.array_equal(got, want)

    def test_empty_like_keeps_the_geometry(self):
        def build(x):
            g = nl.tiles(x, tile_shape=(128, 64))
            same, other = nl.empty_like(g, buffer=nl.sbuf), nl.empty_like(g[0, :], dtype=nl.bfloat16)
            return same.shape, same.tile_shape, same.element_shape, same.buffer, other.element_shape, other.dtype

        assert described(build, 300, 100) == ((3, 2), (128, 64), (300, 100), nl.sbuf, (128, 100), "bfloat16")


class TestData:
    def test_copy_tile_by_tile(self):
        @nki.jit
        def kernel(src):
            dst = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm)
            a, b = nl.tiles(src, tile_shape=(128, 64)), nl.tiles(dst, tile_shape=(128, 64))
            for i in range(a.shape[0]):
                for j in range(a.shape[1]):
                    tile = nl.ndarray(a[i, j].element_shape, dtype=src.dtype, buffer=nl.sbuf)
                    nisa.dma_copy(dst=tile.data, src=a[i, j].data)
                    nisa.dma_copy(dst=b[i, j].data, src=tile.data)
            return dst

        x = floats(300, 100)
        assert np.array_equal(nki.simulate(kernel)(x), x)

    @pytest.mark.parametrize("shape", [(256, 128), (512, 256)])
    def test_copy_block_by_block(self, shape):
        """A block moves as one transfer into tiles on chip, and comes back."""

        @nki.jit
        def kernel(src):
            dst = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm)
            a = nl.blocks(src, tile_shape=(128, 64), block_shape=(2, 2))
            b = nl.blocks(dst, tile_shape=(128, 64), block_shape=(2, 2))
            for i in range(a.shape[0]):
                for j in range(a.shape[1]):
                    held = nl.alloc_blocks(
                        tile_shape=(128, 64), block_shape=(2, 2), element_shape=a[i, j].element_shape,
                        buffer=nl.sbuf, dtype=src.dtype,
                    )  # fmt: skip
                    assert a[i, j].is_data_representable
                    nisa.dma_copy(held.data, a[i, j].data)
                    nisa.dma_copy(b[i, j].data, held.data)
            return dst

        x = floats(*shape)
        assert np.array_equal(nki.simulate(kernel)(x), x)

    def test_a_loaded_block_holds_its_tiles(self):
        @nki.jit
        def kernel(src):
            held = nl.alloc_tiles(tile_shape=(64, 32), element_shape=(128, 64), buffer=nl.sbuf, dtype=src.dtype)
            nisa.dma_copy(held.data, nl.tiles(src, tile_shape=(64, 32)).data)
            out = nl.ndarray((2, 2, 64, 32), dtype=src.dtype, buffer=nl.shared_hbm)
            for i in range(2):
                for j in range(2):
                    nisa.dma_copy(out[i, j], held[i, j].data)
            return out

        x = floats(128, 64)
        want = x.reshape(2, 64, 2, 32).transpose(0, 2, 1, 3)
        assert np.array_equal(nki.simulate(kernel)(x), want)

    def test_a_row_of_tiles_is_one_stretch(self):
        def build(x):
            g = nl.alloc_tiles(tile_shape=(128, 64), element_shape=(256, 192), buffer=nl.sbuf, dtype=nl.float32)
            return g[1, :].data.shape, nl.tiles(x, tile_shape=(128, 64))[1, :].data.shape

        assert described(build, 256, 192) == ((128, 192), (128, 192))

    def test_what_no_pattern_covers_is_told_and_refused(self):
        def told(x):
            g = nl.tiles(x, tile_shape=(128, 64))
            return g.is_data_representable, g[0:2].is_data_representable, g[2].is_data_representable

        assert described(told, 300, 64) == (False, True, True)
        with pytest.raises(LegalityError) as caught:
            described(lambda x: nl.tiles(x, tile_shape=(128, 64)).data, 300, 64)
        assert caught.value.rule == "grid_data"

    def test_tiles_with_gaps(self):
        def told(x):
            g = nl.tiles(x, tile_shape=(128, 64))
            return g[0, ::2].is_data_representable

        assert described(told, 128, 256) is False
