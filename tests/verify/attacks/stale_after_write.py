# op: set_row
# refused: untouched_modified,mismatch
# what: also writes the row into the slot it loads after changing it
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    n = nisa.scalar_load(slot.reshape((1, 1)))
    source = row.reshape((1, row.shape[0]))
    nisa.dma_copy(dst=table[nl.ds(n * 0, 1), :], src=source)
    nisa.dma_copy(dst=table[nl.ds(n, 1), :], src=source)
