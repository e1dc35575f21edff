# op: set_row
# refused: untouched_modified,mismatch
# what: rewrites the whole table through bfloat16
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    N, C = table.shape
    for r in range(0, N, 128):
        p = min(128, N - r)
        t = nl.ndarray((p, C), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=table[r : r + p])
        nisa.dma_copy(dst=table[r : r + p], src=t)
    n = nisa.scalar_load(slot.reshape((1, 1)))
    nisa.dma_copy(dst=table[nl.ds(n, 1), :], src=row.reshape((1, C)))
