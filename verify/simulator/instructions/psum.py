"""How TensorE writes PSUM: overwrite or add, and the tiles of its array that an instruction uses.

accumulate=None adds where a PSUM location was written before and overwrites elsewhere, element by element, so
overlapping windows of one tile may accumulate.
"""

import numpy as np

from nkismith.verify.simulator.blas import product
from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.hardware import PARTITIONS, PSUM_BANK_BYTES
from nkismith.verify.simulator.machine import extent

ROW_TILES = (32, 64, 128)


def check_moving(site, columns):
    """Moving columns that one instruction may stream into its destination."""
    limit = site.target.matmul_free_max_fp32
    if site.dtype("dst") == "bfloat16" and site.target.matmul_free_max_bf16:
        limit = site.target.matmul_free_max_bf16
    if columns > limit:
        raise site.refuse("matmul_moving", f"{columns} moving columns, at most {limit} on {site.target.name}", "tile N")


def check_accumulate(site):
    """accumulate is True, False or None."""
    if site.attr("accumulate") not in (None, True, False):
        raise site.refuse("operand_type", f"accumulate={site.attr('accumulate')!r}", "True, False or None")


def check_bank(site):
    """On NeuronCore-v3 one instruction of TensorE writes a single PSUM bank; a tensor starts at the begin of one."""
    operand = site.operand("dst")
    if site.target.generation > 3 or operand.dynamic is not None:
        return
    low, high = extent(operand)
    size = ITEMSIZE[operand.dtype]
    first, last = low * size // PSUM_BANK_BYTES, (high * size - 1) // PSUM_BANK_BYTES
    if first != last:
        raise site.refuse(
            "psum_bank",
            f"dst spans bytes {low * size} .. {high * size - 1} of a partition, banks {first} to {last} of its tile",
            f"write inside one bank of {PSUM_BANK_BYTES} bytes: split the moving tile at its multiples",
        )


def check_pe_tile(site, rows, columns_used, columns, alone=False):
    """tile_position and tile_size name a tile of the 128 x 128 array in which the stationary operand fits."""
    position, size = site.attr("tile_position") or (), site.attr("tile_size") or ()
    if not position and not size:
        return
    if not is_pair(position) or not is_pair(size):
        raise site.refuse(
            "matmul_tile", f"tile_position={position}, tile_size={size}", "give both as (row, column) pairs, or neither"
        )
    if size[0] not in ROW_TILES or size[1] not in columns:
        raise site.refuse("matmul_tile", f"tile_size={size}", f"rows of {ROW_TILES}, columns of {columns}")
    for start, width in zip(position, size, strict=True):
        if start % width or not 0 <= start <= PARTITIONS - width:
            raise site.refuse(
                "matmul_tile", f"tile_position={position} with tile_size={size}", "multiples of the size, inside 128"
            )
    if rows > size[0] or columns_used > size[1]:
        raise site.refuse("matmul_tile", f"a stationary tile of ({rows}, {columns_used}) in {size}", "shrink it")
    if alone and size[1] != PARTITIONS:
        raise site.refuse("matmul_double_row", "double_row with column tiling", "tile rows only")


def is_pair(value):
    """Two ints."""
    return isinstance(value, tuple) and len(value) == 2 and all(type(n) is int for n in value)


def adding(m, site):
    """Which elements of dst a matmul adds to: all (True), none (False), or a mask [M, N]."""
    asked = site.attr("accumulate")
    if asked is not None:
        return bool(asked)
    operand = m.operand("dst")
    if operand.dynamic is not None:  # a scatter: its columns are not known apart
        return operand.buffer in m.matmul_written
    written = matmul_wrote(m, operand)
    if written is False and m.memory.fresh(operand.buffer):
        return False
    if written is True:
        return True
    unwritten = m.memory.taint(operand)
    if unwritten is None:
        return True
    written = written | ~unwritten.reshape(operand.partitions, -1)
    return written if written.any() else False


def matmul_wrote(m, operand):
    """What a matmul has written of an operand: True, False, or a mask [M, N]."""
    record = m.matmul_written.get(operand.buffer, {}).get(ITEMSIZE[operand.dtype], False)
    if record is False or record is True:
        return record
    return record_view(record, operand).reshape(operand.partitions, -1)


def record_view(record, operand):
    """The entries of an operand in a record of its PSUM buffer, writable, in the operand's shape."""
    row = record.shape[1]
    strides = (row, *[s for s, _ in operand.pattern])
    return np.ndarray(operand.shape, bool, record, operand.start * row + operand.offset, strides)


def add_product(m, site, left, right, rows, columns):
    """Write left @ right to dst, or add it to what is there, and mark what that leaves.

    `rows` and `columns` are masks of the rows of `left` and columns of `right` that hold unwritten data, or None.
    """
    add, operand, tainted = adding(m, site), m.operand("dst"), False
    if rows is not None or columns is not None:
        tainted = np.zeros((operand.partitions, operand.free), bool)
        tainted |= False if rows is None else rows[:, None]
        tainted |= False if columns is None else columns
    if add is False:
        m.emit("dst", product, left, right)
    else:
        wrote = matmul_wrote(m, operand)
        if add is True and wrote is not True and m.target.generation < 4 and not np.all(wrote):
            m.warn(f"adds to PSUM that no matmul wrote, which {m.target.name} does not define")
        old = m.current_taint("dst")
        if old is not None:
            tainted = tainted | (old.reshape(operand.partitions, -1) & add)
        before, result = m.f32("dst"), product(left, right)
        if add is True:
            m.emit("dst", np.add, before, result)
        else:
            m.put("dst", np.where(add, before + result, result))
    record_write(m, operand)
    m.mark("dst", tainted)


def record_write(m, operand):
    """Note that a matmul wrote an operand. A view with another element size has a record of its own."""
    buffer, size = m.buffers[operand.buffer], ITEMSIZE[operand.dtype]
    records = m.matmul_written.setdefault(operand.buffer, {})
    if records.get(size) is True:
        return
    if operand.dynamic is not None or m.memory.covers(operand):
        records[size] = True
        return
    if size not in records:
        row = buffer.free * ITEMSIZE[buffer.dtype] // size
        records[size] = np.zeros((buffer.shape[0], row), bool)
    record_view(records[size], operand)[...] = True
