# op: scale_add
# refused: unwritten_output
# what: stores a tile as it was found in memory, hoping for the last run's result
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        p = min(128, x.shape[0] - r)
        nl.store(z[r : r + p], nl.ndarray((p, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf))
    return z
