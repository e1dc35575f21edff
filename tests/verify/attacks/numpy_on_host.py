# op: scale_add
# refused: forbidden_import
# what: computes in NumPy
import nki
import nki.isa as nisa
import nki.language as nl


import numpy as np


@nki.jit
def scale_add(x, y):
    return 2 * np.asarray(x) + np.asarray(y)
