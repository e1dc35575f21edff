# op: scale_add
# refused: illegal
# what: an output that lives on the chip
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    t = nl.load(x[0 : min(128, x.shape[0])])
    return t
