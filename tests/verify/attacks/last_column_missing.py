# op: scale_add
# refused: unwritten_output
# what: all columns but the last
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        here, w = slice(r, min(r + 128, R)), max(C - 1, 1)
        nl.store(z[here, 0:w], nl.add(nl.multiply(nl.load(x[here, 0:w]), 2.0), nl.load(y[here, 0:w])))
    return z
