# op: set_row
# refused: untouched_modified,out_of_bounds,mismatch
# what: writes the next row as well
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    n = nisa.scalar_load(slot.reshape((1, 1)))
    source = row.reshape((1, row.shape[0]))
    nisa.dma_copy(dst=table[nl.ds(n, 1), :], src=source)
    if table.shape[0] > 1:
        nisa.dma_copy(dst=table[nl.ds(n * -1 + (table.shape[0] - 1), 1), :], src=source)
