# op: row_sum
# refused: mismatch,precision_downgrade
# what: a running sum in bfloat16 that changes tiles at every step
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def row_sum(x):
    R, C = x.shape
    s = nl.ndarray((R, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        t = nl.load(x[r : r + p])
        total = nl.ndarray((p, 1), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for c in range(C):
            fresh = nl.ndarray((p, 1), dtype=nl.bfloat16, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=fresh, data1=total, data2=t[:, c : c + 1], op=nl.add)
            total = fresh
        out = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=total)
        nl.store(s[r : r + p], out)
    return s
