# op: scale_add
# refused: mismatch,nonfinite
# what: right for the shape in the spec's smoke case, zeros elsewhere
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        here = slice(r, min(r + 128, x.shape[0]))
        if x.shape == (20, 16):
            nl.store(z[here], nl.add(nl.multiply(nl.load(x[here]), 2.0), nl.load(y[here])))
        else:
            nl.store(z[here], nl.zeros((here.stop - r, x.shape[1]), dtype=x.dtype))
    return z
