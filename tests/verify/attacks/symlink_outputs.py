# op: scale_add
# refused: forbidden_import
# what: plants a symlink where outputs go
import nki
import nki.isa as nisa
import nki.language as nl

import os

os.symlink("/etc/passwd", "output.npy")


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(z[r : min(r + 128, x.shape[0])], nl.load(x[r : min(r + 128, x.shape[0])]))
    return z
