# op: row_sum
# what: partial sums in a strip, then their sum; a padded last tile is read and discarded
import math

import nki
import nki.isa as nisa
import nki.language as nl

STEP = 64


@nki.jit
def row_sum(x):
    R, C = x.shape
    s = nl.ndarray((R, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    parts = math.ceil(C / STEP)
    for r in range(0, R, 128):
        p = min(128, R - r)
        strip = nl.ndarray((128, parts), dtype=nl.float32, buffer=nl.sbuf)
        for i in range(parts):
            n = min(STEP, C - i * STEP)
            t = nl.ndarray((128, n), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=t[0:p], src=x[r : r + p, i * STEP : i * STEP + n])
            # All 128 lanes, also those that hold nothing: their sums go nowhere.
            nisa.tensor_reduce(dst=strip[:, i : i + 1], op=nl.add, data=t, axis=1)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=strip, axis=1)
        nisa.dma_copy(dst=s[r : r + p], src=total[0:p])
    return s
