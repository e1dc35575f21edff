# op: scale_add
# refused: illegal
# what: a tile with more partitions than there are
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((256, x.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=t, value=0.0)
    nl.store(z, t[0 : x.shape[0]])
    return z
