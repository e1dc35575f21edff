# op: scale_add
# refused: untouched_modified
# what: computes into y, as a scratch pad
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        here = slice(r, min(r + 128, x.shape[0]))
        nl.store(y[here], nl.add(nl.multiply(nl.load(x[here]), 2.0), nl.load(y[here])))
        nl.store(z[here], nl.load(y[here]))
    return z
