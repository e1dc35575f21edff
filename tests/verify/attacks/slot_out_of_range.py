# op: set_row
# refused: out_of_bounds,illegal
# what: an index that leaves the table
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    n = nisa.scalar_load(slot.reshape((1, 1)))
    nisa.dma_copy(dst=table[nl.ds(n + table.shape[0], 1), :], src=row.reshape((1, row.shape[0])))
