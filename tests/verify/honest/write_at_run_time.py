# op: set_row
# what: the slot is a run-time index of the HBM tensor
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    index = nisa.scalar_load(slot.reshape((1, 1)))
    nisa.dma_copy(dst=table[nl.ds(index, 1), :], src=row.reshape((1, row.shape[0])))
