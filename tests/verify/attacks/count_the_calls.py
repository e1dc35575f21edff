# op: scale_add
# refused: environment_dependent
# what: right when first built, wrong afterwards
import nki
import nki.isa as nisa
import nki.language as nl

CALLS = []


def count():
    CALLS.append(1)
    return len(CALLS)


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
