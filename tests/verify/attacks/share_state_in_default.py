# op: scale_add
# refused: environment_dependent
# what: state in a default argument
import nki
import nki.isa as nisa
import nki.language as nl

def count(calls=[]):
    calls.append(1)
    return len(calls)


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
