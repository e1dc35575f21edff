# op: scale_add
# refused: timeout
# what: builds forever inside a builtin, where no Python runs
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    sum(iter(int, 1))
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
