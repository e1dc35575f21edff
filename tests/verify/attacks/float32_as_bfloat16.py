# op: row_sum
# refused: mismatch,precision_downgrade
# what: loads float32 as bfloat16
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def row_sum(x):
    R, C = x.shape
    s = nl.ndarray((R, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        t = nl.ndarray((p, C), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[r : r + p])
        out = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=out, op=nl.add, data=t, axis=1)
        nl.store(s[r : r + p], out)
    return s
