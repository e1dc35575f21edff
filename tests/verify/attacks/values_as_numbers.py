# op: scale_add
# refused: raised,illegal
# what: takes a value out of a tensor
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    n = int(x[0:1, 0:1])
    print(n)
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
