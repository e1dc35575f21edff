# op: row_sum
# refused: mismatch
# what: one column of 200 is left out, at the production shape only
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def row_sum(x):
    R, C = x.shape
    s = nl.ndarray((R, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    used = C - 1 if (R, C) == (256, 200) else C
    for r in range(0, R, 128):
        p = min(128, R - r)
        out = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=out, op=nl.add, data=nl.load(x[r : r + p, 0:used]), axis=1)
        nl.store(s[r : r + p], out)
    return s
