# op: set_row
# what: by way of SBUF and arithmetic on the scalar; returns the table too
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    N, C = table.shape
    tile = nl.ndarray((1, C), dtype=row.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=row.reshape((1, C)))
    where = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=where, src=slot.reshape((1, 1)))
    first = nisa.scalar_load(where)
    flat = table.reshape((N * C,))
    nisa.dma_copy(dst=flat[nl.ds(first * C, C)], src=tile)
    return table
