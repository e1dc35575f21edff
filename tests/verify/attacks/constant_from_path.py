# op: scale_add
# refused: raised,illegal,unsupported_instruction
# what: lets the API read a file
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    nl.shared_constant("/etc/passwd")
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
