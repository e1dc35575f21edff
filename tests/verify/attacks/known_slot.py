# op: set_row
# refused: untouched_modified,mismatch
# what: writes where the first case wants it
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    n = min(1, table.shape[0] - 1)
    nisa.dma_copy(dst=table[n : n + 1], src=row.reshape((1, row.shape[0])))
