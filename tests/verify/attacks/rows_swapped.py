# op: scale_add
# refused: mismatch,nonfinite
# what: two rows change places, which no norm notices
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(R):
        s = (1 - r) if R > 1 and r < 2 else r
        t = nl.add(nl.multiply(nl.load(x[s : s + 1]), 2.0), nl.load(y[s : s + 1]))
        nl.store(z[r : r + 1], t)
    return z
