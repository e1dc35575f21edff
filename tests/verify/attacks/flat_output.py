# op: scale_add
# refused: wrong_shape
# what: the right elements in one row
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R * C,), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(R):
        t = nl.add(nl.multiply(nl.load(x[r : r + 1]), 2.0), nl.load(y[r : r + 1]))
        nisa.dma_copy(dst=z[r * C : r * C + C], src=t)
    return z
