# op: set_row
# refused: untouched_modified
# what: writes the row everywhere
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    for n in range(table.shape[0]):
        nisa.dma_copy(dst=table[n : n + 1], src=row.reshape((1, row.shape[0])))
