# op: scale_add
# refused: raised
# what: calls itself without end
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    def again(n):
        return again(n + 1)

    again(0)
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
