# op: scale_add
# refused: unsupported_instruction
# what: an instruction that does the whole op, if it existed
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    return nisa.scale_add(x, y)
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
