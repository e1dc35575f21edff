# op: scale_add
# refused: nonfinite,mismatch
# what: infinity, whose relative error is NaN
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        p = min(128, x.shape[0] - r)
        nl.store(z[r : r + p], nl.full((p, x.shape[1]), float("inf"), dtype=x.dtype))
    return z
