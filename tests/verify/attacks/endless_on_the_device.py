# op: set_row
# refused: step_budget,illegal
# what: a device loop that never ends
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    t = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
    go = nisa.register_alloc(1)

    def body(register):
        nisa.memset(dst=t, value=0.0)
        return register

    nl.while_loop(go, body)
    n = nisa.scalar_load(slot.reshape((1, 1)))
    nisa.dma_copy(dst=table[nl.ds(n, 1), :], src=row.reshape((1, row.shape[0])))
