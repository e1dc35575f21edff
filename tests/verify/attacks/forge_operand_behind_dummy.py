# op: scale_add
# refused: forbidden_access
# what: permits itself internals by a class that has fields of that name
import nki
import nki.isa as nisa
import nki.language as nl

class Dummy:
    operand: int = 0
    _storage: int = 0


def look(tensor):
    return tensor._storage, tensor.operand()


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
