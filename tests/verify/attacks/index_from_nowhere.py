# op: set_row
# refused: unwritten_read,illegal
# what: loads the index from memory that nothing wrote
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    where = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    n = nisa.scalar_load(where)
    nisa.dma_copy(dst=table[nl.ds(n, 1), :], src=row.reshape((1, row.shape[0])))
