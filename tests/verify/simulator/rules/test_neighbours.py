"""More sides of the rules than their pages show: one refusal of an instruction each, and its innocent neighbour.

The neighbour differs from the offender in one operand or option. That it computes the right thing is shown where its
instruction is tested; here it has to run, live and replayed alike.
"""

import ml_dtypes
import numpy as np
import pytest

from tests.verify.simulator.one import floats, like, nisa, nl, refused, run

A, B = floats(4, 8), floats(4, 8, seed=1)
SQUARE, HALVES, TALL = floats(16, 16), floats(32, 8).astype(np.float16), floats(128, 4)
INTS = np.arange(32, dtype=np.int32).reshape(4, 8)
BYTES = np.ones((4, 8), np.uint8)
TURN = np.arange(15, -1, -1, dtype=np.uint32).reshape(16, 1)  # an index that reverses 16 columns
FIRST = np.zeros((32, 1), np.uint32)  # an index of column 0
MX_VALUES = floats(32, 8).astype(ml_dtypes.bfloat16)
ADD, MUL, EXP, COPY, LESS = nl.add, nl.multiply, nl.exp, nl.copy, nl.less


def column(tile, value=0.5, dtype=None):
    """A (P, 1) tile of one number."""
    made = like(tile, shape=(tile.shape[0], 1), dtype=dtype)
    nisa.memset(made, value)
    return made


def scalar(value):
    """A run-time scalar."""
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(tile, value)
    return nisa.scalar_load(tile)


def in_hbm(tile, dtype=None):
    """A copy in HBM."""
    there = like(tile, dtype=dtype, buffer=nl.private_hbm)
    nisa.dma_copy(there, tile)
    return there


def into(issue):
    """The tile like the first input that an instruction fills: issue(dst, *inputs)."""

    def build(*tiles):
        dst = like(tiles[0])
        nisa.memset(dst, 0)
        issue(dst, *tiles)
        return dst

    return build


def product(issue):
    """The (8, 8) PSUM tile that TensorE fills: issue(dst, *inputs)."""

    def build(*tiles):
        dst = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
        issue(dst, *tiles)
        return dst

    return build


VECTOR = [
    ("engine_operator", lambda d, a, b: nisa.tensor_tensor(d, a, b, nl.power, engine=nisa.engine.vector),
     lambda d, a, b: nisa.tensor_tensor(d, a, b, nl.power, engine=nisa.engine.gpsimd), abs(A), B),
    ("operator", lambda d, a, b: nisa.tensor_tensor(d, a, b, nl.invert),
     lambda d, a, b: nisa.tensor_tensor(d, a, b, nl.bitwise_xor), INTS, INTS),
    ("operator", lambda d, a, b: nisa.tensor_tensor(d, a, b, EXP),
     lambda d, a, b: nisa.tensor_tensor(d, a, b, ADD), A, B),
    ("unary_operand", lambda d, a: nisa.tensor_scalar(d, a, ADD, 1.0, operand1=2.0),
     lambda d, a: nisa.tensor_scalar(d, a, ADD, 1.0, op1=MUL, operand1=2.0), A),
    ("dtype", lambda d, a: nisa.tensor_scalar(d, a, nl.bitwise_and, 1.5),
     lambda d, a: nisa.tensor_scalar(d, a, nl.bitwise_and, 1), INTS),
    ("engine_operator", lambda d, a, b: nisa.scalar_tensor_tensor(d, a, nl.power, 2.0, ADD, b),
     lambda d, a, b: nisa.scalar_tensor_tensor(d, a, MUL, 2.0, ADD, b), A, B),
    ("operand_missing", lambda d, a, b: nisa.scalar_tensor_tensor(d, a, MUL, None, ADD, b),
     lambda d, a, b: nisa.scalar_tensor_tensor(d, a, MUL, column(a), ADD, b), A, B),
    ("operand_missing", lambda d, a, b: nisa.scalar_tensor_tensor(d, a, MUL, 2.0, ADD, b, reduce_res=column(a)),
     lambda d, a, b: nisa.scalar_tensor_tensor(d, a, MUL, 2.0, ADD, b, reduce_res=column(a), reduce_op=ADD), A, B),
    ("memset_value", lambda d, a: nisa.memset(d, scalar(1)), lambda d, a: nisa.memset(d, 1), A),
    ("memset_value", lambda d, a: nisa.memset(d, 1.5), lambda d, a: nisa.memset(d, 1), INTS),
    ("dtype", lambda d, a: nisa.tensor_copy(d, a.view(nl.float8_e4m3fn_x4)),
     lambda d, a: nisa.tensor_copy(d.view(nl.float8_e4m3fn_x4), a.view(nl.float8_e4m3fn_x4)), A),
    ("engine_operator", lambda d, a: nisa.tensor_scalar_reduce(d, a, nl.power, 2.0, ADD),
     lambda d, a: nisa.tensor_scalar_reduce(d, a, MUL, 2.0, ADD), A),
    ("operand_missing", lambda d, a: nisa.tensor_scalar_reduce(d, a, MUL, None, ADD),
     lambda d, a: nisa.tensor_scalar_reduce(d, a, MUL, column(a), ADD), A),
    ("engine_operator", lambda d, a: nisa.tensor_scalar_cumulative(d, a, nl.power, ADD, 2.0),
     lambda d, a: nisa.tensor_scalar_cumulative(d, a, MUL, ADD, 2.0), A),
    ("operand_missing", lambda d, a: nisa.tensor_scalar_cumulative(d, a, MUL, ADD, None),
     lambda d, a: nisa.tensor_scalar_cumulative(d, a, MUL, ADD, column(a)), A),
    ("engine_operator", lambda d, a, b: nisa.tensor_tensor_scan(d, a, b, 0.0, nl.power, ADD),
     lambda d, a, b: nisa.tensor_tensor_scan(d, a, b, 0.0, MUL, ADD), A, B),
    ("operand_missing", lambda d, a, b: nisa.tensor_tensor_scan(d, a, b, None, MUL, ADD),
     lambda d, a, b: nisa.tensor_tensor_scan(d, a, b, column(a), MUL, ADD), A, B),
    ("operand_shapes", lambda d, a: nisa.bn_stats(d[:, 0:5], a), lambda d, a: nisa.bn_stats(d[:, 0:6], a), A),
    ("operand_missing", lambda d, a: nisa.tensor_copy_predicated(d, None, a.view(nl.uint32)),
     lambda d, a: nisa.tensor_copy_predicated(d, 1.0, a.view(nl.uint32)), A),
    ("range_start", lambda d, a: nisa.range_select(d, a, LESS, LESS, column(a), column(a), range_start=0.5),
     lambda d, a: nisa.range_select(d, a, LESS, LESS, column(a), column(a), range_start=5), A),
    ("on_false_value", lambda d, a: nisa.range_select(d, a, LESS, LESS, column(a), column(a), on_false_value="min"),
     lambda d, a: nisa.range_select(d, a, LESS, LESS, column(a), column(a), on_false_value=-3.4028235e38), A),
    ("operand_type", lambda d, a: nisa.nc_match_replace8(d, a, a, None),
     lambda d, a: nisa.nc_match_replace8(d, a, a, 0.0), A),
    ("operand_shapes", lambda d, a: nisa.nc_stream_shuffle(d[:, 0:7], a, [255] * 32),
     lambda d, a: nisa.nc_stream_shuffle(d[:, 0:8], a, [255] * 32), A),
    ("start_partition", lambda d, a: nisa.nc_stream_shuffle(d[0:64], a[32:64], [255] * 32),
     lambda d, a: nisa.nc_stream_shuffle(d[0:64], a[64:96], [255] * 32), TALL),
    ("operand_bounds", lambda d, a: nisa.tensor_copy(d, a.ap([[8, 5], [1, 8]])[1:5]),
     lambda d, a: nisa.tensor_copy(d, a.ap([[8, 4], [1, 8]])[0:4]), A),
    ("operand_type", lambda d, a: nisa.tensor_scalar(d, a, ADD, "1"), lambda d, a: nisa.tensor_scalar(d, a, ADD, 1), A),
    ("operand_type", lambda d, a: nisa.tensor_reduce(d[:, 0:1], ADD, a, axis=a),
     lambda d, a: nisa.tensor_reduce(d[:, 0:1], ADD, a, axis=-1), A),
    ("operand_type", lambda d, a: nisa.tensor_reduce(d[:, 0:1], ADD, a, axis={1}),
     lambda d, a: nisa.tensor_reduce(d[:, 0:1], ADD, a, axis=[1]), A),
    ("operand_shapes", lambda d, a: nisa.nc_transpose(d[0:4, 0:3], a[:, 0:4]),
     lambda d, a: nisa.nc_transpose(d[0:4, 0:4], a[:, 0:4]), A),
]  # fmt: skip
SCALAR_ENGINE = [
    ("operand_missing", lambda d, a: nisa.activate2(d, COPY, a, None, None, MUL, None),
     lambda d, a: nisa.activate2(d, COPY, a, 2.0, None, MUL, None), A),
    ("dtype", lambda d, a: nisa.activate2(d, COPY, a, column(a), column(a, dtype=nl.bfloat16), MUL, ADD),
     lambda d, a: nisa.activate2(d, COPY, a, column(a), column(a), MUL, ADD), A),
    ("operator", lambda d, a: nisa.activate2(d, EXP, a, None, None, None, None, reduce_op=MUL),
     lambda d, a: nisa.activate2(d, EXP, a, None, None, None, None, reduce_op=nl.minimum), A),
    ("operand_missing",
     lambda d, a: nisa.activate2(d, EXP, a, None, None, None, None, reduce_cmd=nisa.reduce_cmd.reset_reduce),
     lambda d, a: nisa.activate2(d, EXP, a, None, None, None, None, reduce_cmd=nisa.reduce_cmd.reset), A),
    ("enum_value", lambda d, a: nisa.activation(d, EXP, a, reduce_cmd=nisa.engine.vector),
     lambda d, a: nisa.activation(d, EXP, a, reduce_cmd=nisa.reduce_cmd.idle), A),
    ("operator", lambda d, a: nisa.activation(d, "exp", a), lambda d, a: nisa.activation(d, EXP, a), A),
]  # fmt: skip
TENSOR_ENGINE = [
    ("operand_type", lambda d, a: nisa.nc_matmul(d, a, a, accumulate=2),
     lambda d, a: nisa.nc_matmul(d, a, a, accumulate=False), A),
    ("matmul_tile", lambda d, a: nisa.nc_matmul(d, a, a, tile_size=(32, 32)),
     lambda d, a: nisa.nc_matmul(d, a, a, tile_size=(32, 32), tile_position=(0, 0)), A),
    ("matmul_tile", lambda d, a: nisa.nc_matmul(d, a, a, tile_size=32, tile_position=0),
     lambda d, a: nisa.nc_matmul(d, a, a, tile_size=[32, 32], tile_position=[0, 0]), A),
    ("matmul_tile", lambda d, a: nisa.nc_matmul(d, a, a, tile_size=(16, 128), tile_position=(0, 0)),
     lambda d, a: nisa.nc_matmul(d, a, a, tile_size=(32, 128), tile_position=(0, 0)), A),
    ("matmul_tile", lambda d, a: nisa.nc_matmul(d, a, a, tile_size=(32, 128), tile_position=(0, 0)),
     lambda d, a: nisa.nc_matmul(d, a, a, tile_size=(64, 128), tile_position=(0, 0)), floats(33, 8)),
    ("operand_shapes", lambda d, a: nisa.nc_matmul(d[:, 0:7], a, a), lambda d, a: nisa.nc_matmul(d[:, 0:8], a, a), A),
    ("matmul_dtypes", lambda d, a: nisa.nc_matmul(d, a.view(nl.float8_e4m3fn), a.view(nl.float8_e4m3)),
     lambda d, a: nisa.nc_matmul(d, a.view(nl.float8_e4m3fn), a.view(nl.float8_e5m2)), BYTES),
    ("matmul_tile", lambda d, a, i: nisa.nc_matmul(d, a.indirect(i, 8), a, tile_size=(32, 128), tile_position=(32, 0)),
     lambda d, a, i: nisa.nc_matmul(d, a.indirect(i, 8), a, tile_size=(32, 128), tile_position=(0, 0)), HALVES, FIRST),
    ("indirect_operand", lambda d, a, i: nisa.nc_matmul(d, a, a.indirect(i, 8), is_transpose=True),
     lambda d, a, i: nisa.nc_matmul(d, a, a.indirect(i, 8)), HALVES, FIRST),
    ("dtype", lambda d, a, i: nisa.nc_matmul(d, a.indirect(i, 8), a), lambda d, a, i: nisa.nc_matmul(d, a, a),
     floats(32, 8), FIRST),
]  # fmt: skip
GATHERS = [
    ("indirect_view", lambda d, a, i: nisa.tensor_copy(d, a.indirect(i).indirect(i)),
     lambda d, a, i: nisa.tensor_copy(d, a.indirect(i)), SQUARE, TURN),
    ("indirect_view", lambda d, a, i: nisa.tensor_copy(d, a.indirect(i).permute((0, 1))),
     lambda d, a, i: nisa.tensor_copy(d, a.permute((0, 1)).indirect(i)), SQUARE, TURN),
    ("index_tile", lambda d, a, i: nisa.tensor_copy(d[0:8], a[0:8].indirect(i, 8)),
     lambda d, a, i: nisa.tensor_copy(d[:, 0:8], a.indirect(i, 8)), SQUARE, TURN),
    ("index_tile", lambda d, a, i: nisa.tensor_copy(d, a.indirect(i, 17)),
     lambda d, a, i: nisa.tensor_copy(d, a.indirect(i, 16)), SQUARE, TURN),
    ("indirect_operand", lambda d, a, i: nisa.dma_copy(d, a.indirect(i)),
     lambda d, a, i: nisa.tensor_copy(d, a.indirect(i)), SQUARE, TURN),
    ("unwritten_index", lambda d, a, i: nisa.local_gather(d, a, like(i)),
     lambda d, a, i: nisa.local_gather(d, a, i), SQUARE, TURN.astype(np.uint16)),
    ("dtype", lambda d, a, i: nisa.local_gather(d.view(nl.int32), a, i),
     lambda d, a, i: nisa.local_gather(d, a, i), SQUARE, TURN.astype(np.uint16)),
    ("operand_shapes", lambda d, a, i: nisa.nc_n_gather(d[:, 0:2], a, i),
     lambda d, a, i: nisa.nc_n_gather(d[:, 0:1], a, i), SQUARE, TURN),
    ("operand_shapes", lambda d, a: nisa.tensor_partition_reduce(d[0:2], ADD, a),
     lambda d, a: nisa.tensor_partition_reduce(d[0:1], ADD, a), A),
    ("operand_type", lambda d, a: nisa.nonzero_with_count(d, a[:, 0:7], padding_val=1 << 31),
     lambda d, a: nisa.nonzero_with_count(d, a[:, 0:7], padding_val=(1 << 31) - 1), INTS),
    ("operand_type", lambda d, a: nisa.nonzero_with_count(d, a[:, 0:7], index_offset=0.5),
     lambda d, a: nisa.nonzero_with_count(d, a[:, 0:7], index_offset=5), INTS),
]  # fmt: skip
DMA = [
    ("index_tile", lambda d, a, i: nisa.dma_copy(d, in_hbm(a).vector_select(0, nl.copy(i, dtype=nl.uint16))),
     lambda d, a, i: nisa.dma_copy(d, in_hbm(a).vector_select(0, nl.copy(i, dtype=nl.int32))), SQUARE, TURN),
    ("dynamic_bounds", lambda d, a, i: nisa.dma_copy(d, in_hbm(a)[0:15].vector_select(0, i)),
     lambda d, a, i: nisa.dma_copy(d, in_hbm(a)[0:16].vector_select(0, i)), SQUARE, TURN),
    ("dynamic_bounds", lambda d, a, i: nisa.dma_copy(d, in_hbm(a).ap([[16, 16], [1, 16]], offset=1, vector_offset=i)),
     lambda d, a, i: nisa.dma_copy(d, in_hbm(a).ap([[16, 16], [1, 16]], offset=0, vector_offset=i)), SQUARE, TURN),
    ("buffer", lambda d, a, i: nisa.dma_copy(d, a.vector_select(0, i)),
     lambda d, a, i: nisa.dma_copy(d, in_hbm(a).vector_select(0, i)), SQUARE, TURN),
    ("operand_shapes", lambda d, a, b: nisa.dma_compute(d, [a, b[:, 0:7]], ADD),
     lambda d, a, b: nisa.dma_compute(d, [a, b[:, 0:8]], ADD), A, B),
    ("dma_scales", lambda d, a, b: nisa.dma_compute(d, [a, b], ADD, scales=1.0),
     lambda d, a, b: nisa.dma_compute(d, [a, b], ADD, scales=[1, 1.0]), A, B),
    ("dma_modify", lambda d, a, i: modified(in_hbm(d).vector_select(0, i), in_hbm(a)),
     lambda d, a, i: modified(in_hbm(d).vector_select(0, i), a), SQUARE, TURN),
    ("duplicate_index", lambda d, a, i: modified(in_hbm(d).vector_select(0, i), a, unique_indices=False),
     lambda d, a, i: modified(in_hbm(d).vector_select(0, i), a, unique_indices=True), SQUARE, TURN),
    ("static_address", lambda d, a: nisa.dma_transpose(d[:, nl.ds(scalar(0), 8)], a[0:8]),
     lambda d, a: nisa.dma_transpose(d[:, 0:8], a[0:8]), SQUARE),
    ("unwritten_index", lambda d, a, i: nisa.tensor_copy(d[:, 0:1], a.select(1, like(i)[0:1])),
     lambda d, a, i: nisa.tensor_copy(d[:, 0:1], a.select(1, i[0:1])), SQUARE, TURN),
]  # fmt: skip
VIEWS = [
    ("view_dim", lambda d, a: nisa.tensor_copy(d, a.reshape((4, 8, 1)).squeeze_dim(1)),
     lambda d, a: nisa.tensor_copy(d, a.reshape((4, 1, 8)).squeeze_dim(1)), A),
    ("view_dim", lambda d, a: nisa.tensor_copy(d[:, 0:1], a[:, 0:1].squeeze_dim(1)),
     lambda d, a: nisa.tensor_copy(d[:, 0:1], a[:, 0:1].reshape((4, 1, 1)).squeeze_dim(1)), A),
    ("index_type", lambda d, a: nisa.tensor_copy(d, a.ap([[8, 4], [1, 8]], scalar_offset=0.0, indirect_dim=1)),
     lambda d, a: nisa.tensor_copy(d, a.ap([[8, 4], [1, 8]], scalar_offset=scalar(0), indirect_dim=1)), A),
    ("scalar_comparison", lambda d, a: nisa.tensor_copy(d[:, 0:1], a[:, nl.ds(scalar(1) > 0, 1)]),
     lambda d, a: nisa.tensor_copy(d[:, 0:1], a[:, nl.ds(scalar(1) + 0, 1)]), A),
    ("scalar_comparison", lambda d, a: nisa.scalar_store(d[0:1, 0:1], scalar(1) > 0),
     lambda d, a: nisa.scalar_store(d[0:1, 0:1], scalar(1) * 2), INTS),
    ("scalar_width", lambda d, a: nl.fori_loop(0, wide(a), lambda i: None),
     lambda d, a: nl.fori_loop(0, scalar(1), lambda i: None), INTS),
    ("scalar_width", lambda d, a: wide(a) > 0, lambda d, a: scalar(1) > 0, INTS),
    ("operand_type", lambda d, a: nisa.scalar_load(1), lambda d, a: nisa.scalar_load(a[0:1, 0:1]), INTS),
    ("transpose_axes", lambda d, a: nl.empty_like(in_hbm(a), buffer=nl.sbuf, transpose_axes=(0, 1)),
     lambda d, a: nl.empty_like(in_hbm(a), buffer=nl.sbuf, transpose_axes=(1, 0)), A),
    ("transpose_axes", lambda d, a: nl.empty_like(tiled(a), transpose_axes=(0,)),
     lambda d, a: nl.empty_like(tiled(a), transpose_axes=(1, 0)), A),
]  # fmt: skip
PLACED = [
    ("indirect_placement", lambda d, a, i: nisa.tensor_copy(d, gathered(a, i, slice(16, 32))),
     lambda d, a, i: nisa.tensor_copy(d, gathered(a, i, slice(0, 16))), SQUARE, TURN),
]  # fmt: skip
MX = [
    ("operand_shapes", lambda d, a: quantized(a, columns=3), lambda d, a: quantized(a, columns=2), MX_VALUES),
    ("operand_shapes", lambda d, a: mx(d[0:2, 0:3], a), lambda d, a: mx(d[0:2, 0:2], a), MX_VALUES),
    ("indirect_operand", lambda d, a, i: mx(d[0:2, 0:2], a, lambda data, scale: (data.indirect(i, 2), scale)),
     lambda d, a, i: mx(d[0:2, 0:2], a, lambda data, scale: (data.indirect(i, 2), scale.indirect(i, 2))),
     MX_VALUES, FIRST),
    ("matmul_tile", lambda d, a, i: mx(d[0:2, 0:2], a, lambda *s: [t.indirect(i, 2) for t in s], tile_position=(32, 0)),
     lambda d, a, i: mx(d[0:2, 0:2], a, lambda *s: [t.indirect(i, 2) for t in s], tile_position=(0, 0)),
     MX_VALUES, FIRST),
]  # fmt: skip
LANGUAGE = [
    ("operand_shapes", lambda d, a: nl.load_transpose2d(in_hbm(a).reshape((4, 2, 4))),
     lambda d, a: nl.load_transpose2d(in_hbm(a)), A),
    ("operand_shapes", lambda d, a: nl.transpose(a.reshape((4, 2, 4))), lambda d, a: nl.transpose(a), A),
    ("operand_shapes", lambda d, a: nl.matmul(a.reshape((4, 2, 4)), a, transpose_x=True),
     lambda d, a: nl.matmul(a, a, transpose_x=True), A),
    ("operand_shapes", lambda d, a, i: nl.gather_flattened(a, i, axis=1),
     lambda d, a, i: nl.gather_flattened(a, i, axis=0), SQUARE, TURN),
    ("operand_shapes", lambda d, a, b: nl.where(a[:, 0:4], a, b), lambda d, a, b: nl.where(a, a, b), A, B),
    ("operand_type", lambda d, a: nl.add(1.0, 2.0), lambda d, a: nl.add(a, 2.0), A),
    ("operand_type", lambda d, a: nl.add(a, scalar(1)), lambda d, a: nl.add(a, 1), A),
    ("operand_type", lambda d, a: nl.add(a, "1"), lambda d, a: nl.add(a, 1), A),
    ("operand_type", lambda d, a: nl.load(1), lambda d, a: nl.load(in_hbm(a)), A),
    ("operand_type", lambda d, a: nl.device_print("a", 1), lambda d, a: nl.device_print("a", a), A),
    ("dtype", lambda d, a: nl.shared_constant(np.zeros(4, np.complex64)),
     lambda d, a: nl.shared_constant(np.zeros(4, np.float32)), A),
    ("dtype", lambda d, a: nl.ndarray((4, 8), dtype="float128"), lambda d, a: nl.ndarray((4, 8), dtype="float16"), A),
    ("buffer", lambda d, a: nl.rand((4, 8), dtype=nl.float32, buffer=nl.shared_hbm),
     lambda d, a: nl.rand((4, 8), dtype=nl.float32, buffer=nl.sbuf), A),
]  # fmt: skip


def modified(rows, tile, **options):
    """Rows of HBM with a tile added."""
    return nisa.dma_compute(rows, [rows, tile], ADD, **options)


def wide(tile):
    """An int64 scalar: the first two words of a tile of int32."""
    return nisa.scalar_load(tile.view(nl.int64)[0:1, 0:1])


def tiled(tile):
    """A grid over a tile."""
    return nl.tiles(tile, tile_shape=(4, 4))


def placed(tile, index):
    """A tile of 16 partitions at a fixed address, and its index in the second half of one."""
    here = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf, address=(0, 0))
    there = nl.ndarray((32, 1), dtype=nl.uint32, buffer=nl.sbuf, address=(0, 4096))
    nisa.dma_copy(here, tile)
    for half in (slice(0, 16), slice(16, 32)):
        nisa.dma_copy(there[half], index)
    return here, there


def gathered(tile, index, half):
    """The columns of a placed tile through a placed index."""
    here, there = placed(tile, index)
    return here.indirect(there[half], 16)


def quantized(tile, columns=2):
    """A bfloat16 tile (32, 8) as MXFP8 (32, 2) with its scales, on the first four of as many partitions."""
    packed = like(tile, dtype=nl.float8_e4m3fn_x4, shape=(32, columns))
    scale = like(tile, dtype=nl.uint8, shape=(32, 2))
    nisa.memset(scale, 0)
    nisa.quantize_mx(packed, tile, scale)
    return packed, scale


def mx(dst, tile, view=lambda data, scale: (data, scale), tile_position=None):
    """The product of a view of a quantized tile with the tile."""
    packed, scale = quantized(tile)
    data, scales = view(packed, scale)
    acc = nl.ndarray(dst.shape, dtype=nl.float32, buffer=nl.psum)
    size = None if tile_position is None else (32, 128)
    nisa.nc_matmul_mx(acc, data, packed, scales, scale, tile_position=tile_position, tile_size=size)
    nisa.tensor_copy(dst, acc)


def cases(rows, build, *targets):
    return [
        pytest.param(rule, build(bad), build(good), arrays, target, id=f"{rule}-{number}-{target}")
        for number, (rule, bad, good, *arrays) in enumerate(rows)
        for target in targets
    ]


CASES = [
    *cases(VECTOR, into, "trn2", "trn3"),
    *cases(SCALAR_ENGINE, into, "trn3"),
    *cases(TENSOR_ENGINE, product, "trn3"),
    *cases(GATHERS, into, "trn3"),
    *cases(PLACED, into, "trn3"),
    *cases(MX, into, "trn3"),
    *cases(DMA, into, "trn2"),
    *cases(VIEWS, into, "trn2"),
    *cases(LANGUAGE, into, "trn2"),
]


@pytest.mark.parametrize(("rule", "offender", "innocent", "arrays", "target"), CASES)
def test_the_offender_is_refused_and_its_neighbour_is_not(rule, offender, innocent, arrays, target):
    assert refused(offender, *arrays, target=target) == rule
    run(innocent, *arrays, target=target)
