# op: scale_add
# refused: forbidden_import,forbidden_access
# what: evaluates text through typing
import nki
import nki.isa as nisa
import nki.language as nl

from typing import get_type_hints


class Hints:
    value: "__import__('os').getpid()"


VALUES = get_type_hints(Hints)


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
