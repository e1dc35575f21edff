"""Microscaling formats (NeuronCore-v4): VectorE quantizes to MXFP8, TensorE multiplies MXFP8 and MXFP4.

A group of 32 values, 8 partitions by 4 elements, shares one power-of-two scale. Packed x4 elements hold 4 consecutive
elements of a partition, the first in the lowest bits. The scales of the four groups of a quadrant lie on 4 partitions
of that quadrant, starting at 0, 4, 8 or 12. Source: nki.isa.quantize_mx, nki.isa.nc_matmul_mx, mxfp-matmul (NKI 0.7).
"""

import numpy as np
from ml_dtypes import float4_e2m1fn, float8_e4m3fn, float8_e5m2

from nkismith.verify.simulator.dtypes import PACKED, SIXTEEN_BIT_FLOATS
from nkismith.verify.simulator.hardware import PARTITIONS, QUADRANT, STATIONARY_FREE_MAX
from nkismith.verify.simulator.instruction import PLAIN, PSUM, SBUF, instruction, out, tile
from nkismith.verify.simulator.instructions.psum import add_product, check_accumulate, check_moving, check_pe_tile

GROUP_PARTITIONS, GROUP_ELEMENTS = 8, 4
GROUPS_A_QUADRANT = QUADRANT // GROUP_PARTITIONS
SCALE_OFFSETS = (0, 4, 8, 12)
SCALE_BIAS = 127
SCALE_DTYPES = frozenset({"float8_e8m0fnu", "uint8"})
QUANTIZED = {"float8_e4m3fn_x4": (float8_e4m3fn, 8), "float8_e5m2_x4": (float8_e5m2, 15)}  # dtype, largest exponent
DST_DTYPES = frozenset({"float32", "bfloat16"})


def unpacked(values, dtype):
    """Packed [P, N] as float32 [P, N, 4]."""
    if dtype == "float4_e2m1fn_x4":
        nibbles = (values[..., None] >> np.arange(0, 16, 4, dtype=np.uint16)) & np.uint16(0xF)
        return nibbles.astype(np.uint8).view(float4_e2m1fn).astype(np.float32)
    element = QUANTIZED[dtype][0]
    parts = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, 4)
    return parts.view(element).astype(np.float32)


def scale_partitions(site, data, scale):
    """For each group of 8 partitions of `data`, the partition of the operand `scale` that holds its scales."""
    rows, start = site.partitions(data), site.operand(scale).start
    address = site.buffer(scale).address
    physical = start + (address[0] if address else 0)
    groups = np.arange(rows // GROUP_PARTITIONS)
    if rows <= QUADRANT:
        return groups, physical
    quadrant, inside = np.divmod(groups, GROUPS_A_QUADRANT)
    return quadrant * QUADRANT + inside, physical


def check_scale(site, data, scale, columns):
    """Scales: [P/8, N] inside one quadrant, else [P, N]; 4 partitions of a quadrant are used, from 0, 4, 8, 12."""
    partitions, physical = scale_partitions(site, data, scale)
    if site.free(scale) != columns:
        raise site.refuse("mx_scale", f"{scale} is {site.shape(scale)}", f"{columns} columns, as {data} has")
    if physical % QUADRANT not in SCALE_OFFSETS:
        raise site.refuse("mx_scale", f"{scale} starts at {physical % QUADRANT} of its quadrant", "0, 4, 8 or 12")
    if site.partitions(scale) <= partitions.max():
        raise site.refuse(
            "mx_scale",
            f"{scale} has {site.partitions(scale)} partitions, its last scale lies on {partitions.max()}",
            "[P/8, N] for P <= 32, else [P, N]",
        )


def check_groups(site, name):
    """Partitions come in whole quadrants."""
    if site.partitions(name) % QUADRANT or site.partitions(name) > PARTITIONS:
        raise site.refuse("mx_partitions", f"{name} has {site.partitions(name)} partitions", "32, 64, 96 or 128")


@instruction(
    engines=("vector",),
    targets=("trn3",),
    limits=("src: bf16 or fp16, P a multiple of 32, N of 4", "dst: (P, N/4)", "dst_scale: (P/8, N/4) or (P, N/4)"),
    cost="N/4",
)
class quantize_mx:
    """Quantize groups of 8 partitions by 4 elements to MXFP8 with one scale each.

    The scale is 2^(floor(log2(amax)) - (Emax - 1)), Emax 8 for e4m3fn and 15 for e5m2; 2^-127 for a group of zeros.
    """

    def signature(
        dst: out(SBUF, frozenset(QUANTIZED)),
        src: tile(SBUF, SIXTEEN_BIT_FLOATS),
        dst_scale: out(SBUF, SCALE_DTYPES, aligned=False),
    ): ...

    def check(site):
        check_groups(site, "src")
        if site.free("src") % GROUP_ELEMENTS:
            raise site.refuse("free_size", f"src has {site.free('src')} elements a partition", "a multiple of 4")
        columns = site.free("src") // GROUP_ELEMENTS
        if (site.partitions("dst"), site.free("dst")) != (site.partitions("src"), columns):
            raise site.refuse("operand_shapes", f"dst is {site.shape('dst')}", f"({site.partitions('src')}, {columns})")
        check_scale(site, "src", "dst_scale", columns)

    def run(m, site):
        element, largest = QUANTIZED[site.dtype("dst")]
        values = m.f32("src")
        grouped = values.reshape(-1, GROUP_PARTITIONS, values.shape[1] // GROUP_ELEMENTS, GROUP_ELEMENTS)
        peak = np.abs(grouped).max(axis=(1, 3))
        _, exponent = np.frexp(peak)  # peak = mantissa * 2^exponent with mantissa in [0.5, 1)
        power = np.where(peak > 0, exponent - 1 - (largest - 1), -SCALE_BIAS)
        power = np.clip(power, -SCALE_BIAS, SCALE_BIAS)
        quantized = np.ldexp(grouped, -power[:, None, :, None]).astype(element)
        m.put_raw("dst", np.ascontiguousarray(quantized.reshape(values.shape)).view(np.uint32))
        rows, _ = scale_partitions(site, "src", "dst_scale")
        m.view("dst_scale").view(np.uint8).reshape(site.partitions("dst_scale"), -1)[rows] = power + SCALE_BIAS

    def taint(m, site):
        mask = m.taint("src")
        rows, _ = scale_partitions(site, "src", "dst_scale")
        groups = False
        if mask is not None:
            grouped = mask.reshape(-1, GROUP_PARTITIONS, mask.shape[1] // GROUP_ELEMENTS, GROUP_ELEMENTS)
            groups = grouped.any(axis=(1, 3))
        m.mark("dst", False if mask is None else np.repeat(groups, GROUP_PARTITIONS, axis=0))
        operand = m.operand("dst_scale")
        for i, row in enumerate(rows):
            line = operand._replace(start=operand.start + int(row), partitions=1)
            m.memory.mark(line, False if mask is None else groups[i].reshape(line.shape))


@instruction(
    engines=("tensor",),
    taint="run",
    targets=("trn3",),
    limits=(
        "P of both: 32, 64, 96 or 128; the contraction is 4P",
        "M even, at most 128; N at most 4096 into float32, 8192 into bfloat16",
        "tile_size rows 32, 64 or 128, columns 128",
    ),
    cost="max(N, 64)",
)
class nc_matmul_mx:
    """dst = dequantized stationary.T @ dequantized moving, contracting the partitions and the 4 packed values.

    accumulate as in nc_matmul. MXFP8 and MXFP4 operands may be mixed.
    """

    def signature(
        dst: out(PSUM, DST_DTYPES, indirect=True),
        stationary: tile(SBUF, PACKED, indirect=True),
        moving: tile(SBUF, PACKED, indirect=True),
        stationary_scale: tile(SBUF, SCALE_DTYPES, indirect=True, aligned=False),
        moving_scale: tile(SBUF, SCALE_DTYPES, indirect=True, aligned=False),
        tile_position: PLAIN = None,
        tile_size: PLAIN = None,
        accumulate: PLAIN = None,
    ): ...

    def accumulates(site):
        return site.attr("accumulate") is not False

    def check(site):
        k, m, n = site.partitions("moving"), site.free("stationary"), site.free("moving")
        check_groups(site, "moving")
        if site.partitions("stationary") != k:
            raise site.refuse(
                "matmul_contraction",
                f"stationary has {site.partitions('stationary')} partitions, moving {k}",
                "both operands hold the contraction on partitions",
            )
        if m > STATIONARY_FREE_MAX or m % 2:
            raise site.refuse("matmul_stationary", f"{m} stationary columns", f"even, at most {STATIONARY_FREE_MAX}")
        check_moving(site, n)
        if (site.partitions("dst"), site.free("dst")) != (m, n):
            raise site.refuse("operand_shapes", f"dst is {site.shape('dst')}, the product is ({m}, {n})", "match it")
        check_accumulate(site)
        check_pe_tile(site, k, m, columns=(128,))
        for data in ("stationary", "moving"):
            check_scale(site, data, f"{data}_scale", site.free(data))
            own, scale = site.operand(data).dynamic, site.operand(f"{data}_scale").dynamic
            if (own and own.index) != (scale and scale.index):
                raise site.refuse(
                    "indirect_operand", f"{data} and {data}_scale gather differently", "one index for both"
                )
            if own is not None and tuple(site.attr("tile_position") or (0, 0)) != (0, 0):
                raise site.refuse("matmul_tile", f"{data} is indirect under tiling", "drop tile_position")

    def run(m, site):
        stationary, moving = dequantized(m, site, "stationary"), dequantized(m, site, "moving")
        rows, columns = (tainted_columns(m, site, name) for name in ("stationary", "moving"))
        add_product(m, site, stationary.T, moving, rows, columns)


def dequantized(m, site, name):
    """An MX operand [P, N] as float32 [4P, N]."""
    rows, _ = scale_partitions(site, name, f"{name}_scale")
    powers = m.raw(f"{name}_scale")[rows].view(np.uint8).astype(np.int32) - SCALE_BIAS
    scale = np.ldexp(np.float32(1), powers)
    scale[powers == 255 - SCALE_BIAS] = np.nan
    values = unpacked(m.raw(name), site.dtype(name)) * np.repeat(scale, GROUP_PARTITIONS, axis=0)[..., None]
    return np.ascontiguousarray(values.transpose(0, 2, 1)).reshape(-1, values.shape[1])


def tainted_columns(m, site, name):
    """Columns of an MX operand in which a value or a used scale is unwritten; None if there are none."""
    rows, _ = scale_partitions(site, name, f"{name}_scale")
    values, scales = m.taint(name), m.taint(f"{name}_scale")
    columns = np.zeros(site.free(name), bool)
    if values is not None:
        columns |= values.any(axis=0)
    if scales is not None:
        columns |= scales[rows].any(axis=0)
    return columns if columns.any() else None
