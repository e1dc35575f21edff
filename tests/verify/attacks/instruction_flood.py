# op: scale_add
# refused: output_limit,timeout,memory
# what: records millions of instructions
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    t = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(100_000_000):
        nisa.memset(dst=t, value=0.0)
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
