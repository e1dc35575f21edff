# op: scale_add
# refused: mismatch,nonfinite
# what: leaves one input out
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        here = slice(r, min(r + 128, x.shape[0]))
        nl.store(z[here], nl.multiply(nl.load(x[here]), 2.0))
    return z
