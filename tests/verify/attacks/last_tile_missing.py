# op: scale_add
# refused: unwritten_output,mismatch
# what: whole tiles only
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    step = min(128, x.shape[0])
    for r in range(0, x.shape[0] - step + 1, step):
        here = slice(r, r + step)
        nl.store(z[here], nl.add(nl.multiply(nl.load(x[here]), 2.0), nl.load(y[here])))
    return z
