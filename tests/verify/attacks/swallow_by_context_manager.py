# op: scale_add
# refused: environment_dependent
# what: a context manager in place of try
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    with nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.sbuf) as t:
        print(t)
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
