# op: row_sum
# what: ScalarE copies and sums at once; the copy is thrown away
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def row_sum(x):
    R, C = x.shape
    s = nl.ndarray((R, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        t = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        waste = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[r : r + p])
        nisa.activation_reduce(dst=waste, op=nl.copy, data=t, reduce_op=nl.add, reduce_res=total)
        nisa.dma_copy(dst=s[r : r + p], src=total)
    return s
