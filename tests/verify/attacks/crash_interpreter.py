# op: scale_add
# refused: crashed,raised
# what: overflows the interpreter's own stack
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    nested = iter([1])
    for _ in range(1_000_000):
        nested = map(abs, nested)
    next(nested)
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
