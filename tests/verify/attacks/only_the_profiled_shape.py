# op: scale_add
# refused: mismatch
# what: wrong at the production shape only, where it would be fast
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        here = slice(r, min(r + 128, x.shape[0]))
        t = nl.load(x[here])
        if x.shape != (256, 96):
            t = nl.add(nl.multiply(t, 2.0), nl.load(y[here]))
        nl.store(z[here], t)
    return z
