# op: row_sum
# refused: mismatch,nonfinite
# what: scales up the sum of half the columns
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
        half = max(C // 2, 1)
        out = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=out, op=nl.add, data=t[:, 0:half], axis=1)
        nisa.tensor_scalar(dst=out, data=out, op0=nl.multiply, operand0=C / half)
        nl.store(s[r : r + p], out)
    return s
